"""The trainer said that it was done, and something broke while it was taken down: nobody is woken for that."""

from __future__ import annotations

import json

import pytest

from trainvitals.__main__ import main

LINE = " [2026-01-02 03:{:02d}:{:02d}] iteration {:8d}/     200 | consumed samples: 64 | elapsed time per iteration (ms): 9.0 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
DONE = "[after training is done] datetime: 2026-01-02 03:03:21\n"


def death(tmp_path, capsys, tail, more=0, rule="run_dead"):
    path = tmp_path / "train.log"
    steps = "".join(LINE.format(step // 60, step % 60, step) for step in range(1, 201))
    after = "".join(LINE.format(step // 60, step % 60, step) for step in range(201, 201 + more))
    path.write_text(steps + tail.replace("STEPS", after))
    main(["detect", str(path)])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(one["severity"], one["message"]) for one in found if one["rule"] == rule]


@pytest.mark.parametrize(
    "line",
    [
        "double free or corruption (!prev)",
        "srun: error: node06: tasks 1-3: Segmentation fault (core dumped)",
        "RuntimeError: NCCL communicator was aborted on rank 3.",
    ],
)
def test_a_crash_behind_the_last_word_is_a_warning(tmp_path, capsys, line):
    ((severity, message),) = death(tmp_path, capsys, DONE + line + "\n")
    assert severity == "warning"
    assert message.startswith("the trainer said after step 200 that it was done, and then: ")


def test_a_rank_that_waits_for_one_that_left_wakes_nobody(tmp_path, capsys):
    line = "[rank3]: RuntimeError: NCCL communicator was aborted on rank 3.\n"
    assert death(tmp_path, capsys, DONE + line, rule="nccl_timeout")[0][0] == "warning"
    assert death(tmp_path, capsys, line, rule="nccl_timeout")[0][0] == "critical"


@pytest.mark.parametrize("line", ["OSError: [Errno 28] No space left on device: '/ckpt/x'", "CUDA error: out of memory"])
def test_what_may_cost_the_last_checkpoint_wakes_somebody_all_the_same(tmp_path, capsys, line):
    ((severity, message),) = death(tmp_path, capsys, DONE + line + "\n")
    assert (severity, message[:12]) == ("critical", "the run died")


@pytest.mark.parametrize("tail", ["double free or corruption (!prev)\n", DONE + "STEPSdouble free or corruption (!prev)\n"])
def test_a_crash_of_a_run_that_trains_is_a_death(tmp_path, capsys, tail):
    ((severity, _),) = death(tmp_path, capsys, tail, more=30)
    assert severity == "critical"
