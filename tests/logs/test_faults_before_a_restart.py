"""What a start of the trainer ended in is told of that start, and was not survived because the next one trains."""

from __future__ import annotations

import pytest
from reading import MTIME_NS

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Severity

LINE = " [2026-01-02 {}:{:02d}:{:02d}] iteration {:8d}/    9000 | consumed samples: 64 | elapsed time per iteration (ms): 9.0 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
LOADED = "  successfully loaded checkpoint from /ckpt at iteration {}\n"


def steps(first, last, hour="03"):
    return "".join(LINE.format(hour, step // 60, step % 60, step) for step in range(first, last + 1))


def fault(log):
    parser = Parser(mtime_ns=MTIME_NS)
    (found,) = [one for one in parser.feed(log.encode()) + parser.finish() if isinstance(one, Event) and one.kind == "fault"]
    return found


@pytest.mark.parametrize(
    "rest", [LOADED.format(150) + steps(151, 190, "05"), LOADED.format(200) + steps(201, 240, "05"), steps(101, 240, "05")]
)
def test_a_death_that_a_restart_followed_is_no_fault_that_was_survived(rest):
    event = fault(steps(1, 200) + OOM + rest)
    assert event.attempt == 1
    assert event.severity is Severity.CRITICAL
    assert "survived" not in event.data


def test_a_fault_that_the_same_start_outlived_was_survived():
    event = fault(steps(1, 200) + OOM + steps(201, 240))
    assert (event.attempt, event.severity, event.data["survived"]) == (1, Severity.WARNING, True)


def test_what_is_tried_before_the_first_step_is_of_no_start_and_was_survived():
    event = fault(OOM + steps(1, 50))  # a trainer that looks for the batch size that fits
    assert event.attempt is None
    assert event.data["survived"] is True
