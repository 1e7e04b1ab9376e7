"""Lightning says that the planned steps are done; for NeMo's and Lightning's logs that is the end of the run."""

from __future__ import annotations

import pytest
from reading import read

STOPPED = "`Trainer.fit` stopped: `max_steps=40` reached."
NEMO = "Training epoch 0, iteration {0}/39 | lr: 0.0003 | global_batch_size: 64 | global_step: {0} | reduced_train_loss: 2.5 | train_step_timing in s: 0.5\n"
BAR = "Epoch 0: {0}%|####      | {0}/100 [00:10<00:15,  3.70it/s, v_num=0, train_loss=1.{0:02d}]\r"


def ends(events):
    return [(event.step, event.data["state"]) for event in events if event.data.get("phase") == "finished"]


@pytest.mark.parametrize("glue", ["", "Epoch 0: 100%|##########| 40/40 [00:20<00:00, 2.00it/s, v_num=0]"])
def test_a_nemo_log_ends_with_its_last_step(glue):
    parser, steps, events = read("".join(map(NEMO.format, range(40))) + glue + STOPPED + "\n")
    assert parser.format == "nemo" and [step.step for step in steps] == list(range(40))
    assert ends(events) == [(39, "begin")]


@pytest.mark.parametrize("line", ["{}\n", BAR.format(99) + "{}\n", BAR.format(99).rstrip("\r") + "{}\n"])
def test_a_bar_ends_with_its_last_step_also_where_the_line_is_glued_to_it(line):
    parser, steps, events = read("".join(map(BAR.format, range(1, 100))) + line.format(STOPPED))
    assert parser.format == "lightning_bar" and [step.step for step in steps] == list(range(1, 100))
    assert ends(events) == [(99, "begin")]


@pytest.mark.parametrize(
    "line",
    [
        "`Trainer.fit` stopped: No training batches.",
        "Trainer.fit stopped",
        "max_steps=40 reached",
        "`Trainer.fit` stopped: `max_time=1` reached.",
    ],
)
def test_other_words_are_no_planned_end(line):
    assert ends(read("".join(map(NEMO.format, range(40))) + line + "\n")[2]) == []
