"""Ranks that are a line behind from the first one on, and a step that was torn: neither is a new start of the trainer."""

import json

import pytest
from reading import read

from trainvitals.logs.parser import Parser
from trainvitals.records import Step

LINE = "iter {step}: loss {loss:.4f}, time 250.00ms, mfu 12.00%\n"
UNKNOWN = "update {step} loss {loss:.4f}\n"


def lagging(line, ranks=4):
    """Half of the ranks are a line behind."""
    return "".join(
        line.format(step=10 * (number - rank // 2), loss=5 - (number - rank // 2) / 50, rank=rank)
        for number in range(7, 40)
        for rank in range(ranks)
    )


@pytest.mark.parametrize("line", [LINE, UNKNOWN, "[rank{rank}]: " + UNKNOWN])
def test_ranks_that_are_a_line_behind_from_the_first_on_begin_no_attempt(line):
    _, steps, _ = read(lagging(line))
    assert {step.attempt for step in steps} == {1}
    assert sorted(step.step for step in steps) == list(range(60, 400, 10))


def test_a_rank_by_another_name_may_be_the_only_one_that_is_behind():
    text = "".join(
        "[rank0]: " + LINE.format(step=10 * n, loss=2) + "[rank1]: " + LINE.format(step=10 * n - 10, loss=2) for n in range(7, 20)
    )
    _, steps, _ = read(text)
    assert {step.attempt for step in steps} == {1}


def test_one_rank_that_goes_back_after_one_line_has_started_again():
    _, steps, _ = read(LINE.format(step=900, loss=2) + "".join(LINE.format(step=step, loss=3) for step in range(0, 50, 10)))
    assert [step.attempt for step in steps] == [1, 2, 2, 2, 2, 2]


TORN = 999_999_999_999_999


@pytest.mark.parametrize("line", [LINE, UNKNOWN])
def test_a_step_that_is_absurdly_far_ahead_is_a_torn_line(line):
    text = "".join(line.format(step=step, loss=2) for step in [*range(1, 60), TORN, *range(60, 160)])
    parser, steps, _ = read(text)
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(1, 160)]
    assert parser.counters["torn_lines"] == 1


def test_a_counter_that_goes_on_far_ahead_is_followed():
    text = "".join(LINE.format(step=step, loss=2) for step in [*range(1, 60), *range(TORN - 9, TORN)])
    _, steps, _ = read(text)
    assert [step.step for step in steps] == [*range(1, 60), *range(TORN - 9, TORN)]


def test_steps_that_are_long_lost_are_no_torn_line():
    _, steps, _ = read("".join(LINE.format(step=step, loss=2) for step in [*range(1, 60), 900_000, 900_001]))
    assert [step.step for step in steps[-2:]] == [900_000, 900_001]


def test_a_step_that_is_held_waits_over_a_restart_of_the_watch():
    data = "".join(LINE.format(step=step, loss=2) for step in [*range(1, 60), TORN, *range(60, 70)]).encode()
    cut = data.index(b"iter 60:")
    parser = Parser()
    records = parser.feed(data[:cut])
    state = json.loads(json.dumps(parser.to_state()))
    parser = Parser()
    parser.restore(state)
    records += parser.feed(data[cut:]) + parser.finish()
    assert [record.step for record in records if isinstance(record, Step)] == list(range(1, 70))
