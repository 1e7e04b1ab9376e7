"""DeepSpeed's own lines, alone and beside a trainer that prints its own."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.logs.grammars.deepspeed import DeepSpeed
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"
PROGRESS = "[2026-01-02 03:04:05,386] [INFO] [logging.py:60:log_dist] [Rank 0] step={}, skipped={}, lr=[2.5e-05, 2.5e-05], mom=[(0.9, 0.999)]\n"


def parse(data):
    parser = Parser()
    records = parser.feed(data.encode() if isinstance(data, str) else data) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def test_each_optimizer_step_is_one_record_with_what_was_skipped_since_the_last():
    parser, steps, events = parse((DATA / "deepspeed.log").read_bytes())
    assert parser.format == "deepspeed"
    assert [(step.attempt, step.step, step.values.get("skipped")) for step in steps] == [
        (1, 10, 4.0), (1, 20, 1.0), (1, 30, 0.0), (2, 30, None), (2, 40, 1.0),
    ]  # fmt: skip
    assert steps[0].values == {"lr": 2.5e-5, "skipped": 4.0, "samples_per_s": 25.75}
    assert steps[1].values["lr"] == steps[2].values["lr"] == 5e-5
    assert steps[0].time_ns == 1_767_323_045_386_000_000
    told = [
        (event.kind, event.data.get("phase"), event.data.get("state"), event.step) for event in events if event.kind != "message"
    ]
    assert told == [
        ("phase", "start", "begin", None),
        ("attempt_start", None, None, 10),
        ("phase", "checkpoint", "begin", 20),
        ("phase", "checkpoint", "end", 20),
        ("phase", "start", "begin", None),
        ("resume", None, None, 20),
        ("attempt_start", None, None, 30),
    ]


def test_the_pipeline_engines_line_completes_the_record_of_its_step():
    _, steps, _ = parse((DATA / "deepspeed_pipeline.log").read_bytes())
    assert [(step.step, dict(step.values), dict(step.nonfinite)) for step in steps] == [
        (1, {"lr": 2.5e-5, "skipped": 0.0, "loss": 9.1234, "step_time_s": 88.5, "samples_per_s": 5.785}, {}),
        (2, {"lr": 2.5e-5, "skipped": 1.0, "samples_per_s": 3.25, "aux_loss": 1.25, "step_time_s": 80.5}, {"loss": "nan"}),
        (3, {"loss": 8.125, "step_time_s": 80.5, "samples_per_s": 6.785}, {}),
    ]


def test_the_line_of_an_engine_that_was_just_made_is_no_step():
    line = PROGRESS.format(0, 0)
    assert not DeepSpeed.claims(line)
    _, steps, _ = parse(line)
    assert steps == []


def test_a_step_is_given_out_in_a_silence_and_not_again():
    parser = Parser()
    assert parser.feed(PROGRESS.format(10, 0).encode()) == []
    assert [record.step for record in parser.idle() if isinstance(record, Step)] == [10]
    assert parser.idle() == []
    assert [
        record.step for record in parser.feed(PROGRESS.format(20, 0).encode()) + parser.finish() if isinstance(record, Step)
    ] == [20]


def test_megatrons_line_takes_the_place_of_deepspeeds_with_their_values():
    _, steps, _ = parse(
        PROGRESS.format(0, 0) + PROGRESS.format(1, 0) + "steps: 1 loss: 9.1234 iter time (s): 88.5 samples/sec: 5.785\n"
        " iteration        1/    1000 | elapsed time per iteration (ms): 88500.0 | lm loss: 9.123400E+00 | number of skipped iterations:   0 |\n"
        + PROGRESS.format(2, 0) + "steps: 2 loss: 9.1234 iter time (s): 88.5 samples/sec: 5.785\n"
    )  # fmt: skip
    assert [(step.step, step.attempt, step.values["loss"], step.values["samples_per_s"]) for step in steps] == [
        (1, 1, 9.1234, 5.785)
    ]
    assert steps[0].time_ns == 1_767_323_045_386_000_000


def test_hugging_faces_dictionaries_take_the_place_of_deepspeeds_lines():
    parser, steps, _ = parse(
        PROGRESS.format(10, 0)
        + "".join(
            f"{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-5, 'epoch': 0.{n}}}\n" + PROGRESS.format(20 * n, 0)
            for n in (1, 2, 3)
        )
    )
    assert parser.format == "huggingface"
    assert all(step.values["loss"] == 1.5 for step in steps)
    assert len({step.attempt for step in steps}) == 1


def test_steps_between_megatrons_lines_are_not_made_up_of_deepspeeds():
    lines = ["done with setup ...\n", PROGRESS.format(0, 0)]
    for step in range(1, 41):
        lines.append(PROGRESS.format(step, 0))
        if step % 10 == 0:
            lines.append(f" iteration {step:8d}/    1000 | lm loss: 9.1E+00 | number of skipped iterations:   0 |\n")
    _, steps, _ = parse("".join(lines))
    assert [step.step for step in steps] == [10, 20, 30, 40]


def test_steps_withheld_for_megatron_are_given_out_when_it_does_not_come():
    lines = "done with setup ...\n" + "".join(PROGRESS.format(step, 0) for step in range(1, 300))
    _, steps, _ = parse(lines)
    assert [step.step for step in steps] == list(range(1, 300))
    _, steps, _ = parse("done with setup ...\n" + PROGRESS.format(1, 0))
    assert steps == []


def test_steps_before_hugging_faces_first_dictionary_are_withheld_when_it_said_that_it_trains():
    lines = ["***** Running training *****\n", *(PROGRESS.format(step, 0) for step in (10, 20, 30))]
    parser, steps, _ = parse("".join(lines) + "{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-5, 'epoch': 0.1}\n")
    assert (parser.format, len(steps)) == ("huggingface", 1)
    _, steps, _ = parse("".join(lines))
    assert [step.step for step in steps] == [10, 20, 30]


def test_gpt_neox_is_read_as_megatron_with_the_rate_before_the_marker():
    parser, steps, events = parse((DATA / "neox.log").read_bytes())
    assert parser.format == "megatron"
    assert [step.step for step in steps] == [10, 20, 30]
    assert [step.attempt for step in steps] == [1, 1, 1]
    assert "loss" not in steps[0].values
    assert steps[0].nonfinite == {}
    assert steps[1].values == {
        "step_time_s": pytest.approx(9.2592), "lr": 1.2e-6, "tflops_per_gpu": 45.2, "loss": 10.5, "loss_scale": 4096.0, "skipped": 0.0,
        "nan_iterations": 0.0, "samples_per_s": 3.456,
    }  # fmt: skip
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [event.data["validation_loss"] for event in events if "validation_loss" in event.data] == [10.4]


@pytest.mark.parametrize(
    "line",
    [
        "skipped=0, lr=[0.0]",
        "[INFO] skipped=3 of 10 files",
        "steps: 5 loss: 1.0",
        "iter time (s): 3",
        "print(f'steps: {self.global_steps} loss: {loss:0.4f} iter time (s): {iter_time:0.3f} samples/sec: {tput:0.3f}')",
        "[2026-01-02 03:04:05,387] [INFO] [timer.py:157:stop] 0/20, SamplesPerSec=3.21",
    ],
)
def test_other_lines_are_not_claimed(line):
    assert not DeepSpeed.claims(line)
    assert DeepSpeed(LineTimes()).feed(line) == []


LINES = [
    "done with setup ...",
    "***** Running training *****",
    *(DATA / "deepspeed.log").read_text().splitlines(),
    *(DATA / "deepspeed_pipeline.log").read_text().splitlines(),
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(LINES),
            st.text(max_size=80),
            st.tuples(st.sampled_from(LINES), st.integers(0, 160)).map(lambda x: x[0][: x[1]]),
        ),
        max_size=12,
    ),
    st.data(),
)
def test_no_line_makes_it_raise_and_a_state_continues_the_same(lines, data):
    at = data.draw(st.integers(0, len(lines)))
    whole, first, second = DeepSpeed(LineTimes()), DeepSpeed(LineTimes()), DeepSpeed(LineTimes())
    expected = [record for line in lines for record in whole.feed(line)] + whole.finish()
    got = [record for line in lines[:at] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state())))
    got += [record for line in lines[at:] for record in second.feed(line)] + second.finish()
    assert got == expected
