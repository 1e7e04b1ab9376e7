"""Logs to which each start of the trainer appends: a restart soon after a start goes back by a few points, as ranks do that overtake each other."""

import itertools
import json
import random

import pytest

from trainvitals.logs.parser import Parser
from trainvitals.records import Step


def attempts_of(text, format="auto"):
    parser = Parser(format, mtime_ns=1_767_400_000_000_000_000)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [(record.attempt, record.step) for record in records if isinstance(record, Step)]


def timed(steps, seconds):
    return "".join(
        f"2026-01-02 {3 + at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d},123 INFO step={step}/4000 train_loss=2.5\n"
        for step, at in zip(steps, seconds, strict=True)
    )


def bare(steps):
    return "".join(f"iter {step}: loss 3.0, time 1.0ms, mfu 1.0%\n" for step in steps)


def test_steps_that_come_again_minutes_later_are_a_new_attempt():
    text = (
        timed([1, 50, 100, 150], [0, 60, 120, 180])
        + timed([1, 50], [600, 660])
        + timed([1, 50, 100, 150, 200], range(900, 1200, 60))
    )
    parser, steps = attempts_of(text)
    assert steps == [(1, s) for s in (1, 50, 100, 150)] + [(2, 1), (2, 50)] + [(3, s) for s in (1, 50, 100, 150, 200)]
    assert parser.counters["repeated_steps"] == 0


def test_the_newest_step_again_minutes_later_is_a_new_attempt_when_the_training_goes_on_from_it_through_what_was_told():
    again = timed([100, 110, 120], [0, 10, 20]) + timed([120, 130], [400, 410])
    assert attempts_of(again)[1] == [(1, 100), (1, 110), (1, 120), (1, 130)]


@pytest.mark.parametrize("skew_s", [0, 20, 100])
def test_ranks_whose_clocks_differ_are_one_attempt(skew_s):
    generator = random.Random(skew_s)
    text = ""
    for step in range(1, 200):
        ranks = list(range(8))
        generator.shuffle(ranks)
        for rank in ranks:
            text += timed([step], [200 + 5 * step + (skew_s if rank == 3 else 0)])
    parser, steps = attempts_of(text)
    assert steps == [(1, step) for step in range(1, 200)]
    assert parser.ranks_seen >= 7


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_overtake_each_other_without_times_are_one_attempt(seed):
    generator = random.Random(seed)
    lines = [(step + generator.random() * 1.5, step) for step in range(1, 300) for _ in range(4)]
    _, steps = attempts_of(bare(step for _, step in sorted(lines)))
    assert sorted(steps) == [(1, step) for step in range(1, 300)]


def test_where_every_step_was_told_once_a_few_steps_back_are_a_new_attempt():
    _, steps = attempts_of(bare([*range(1, 21), 17, 18, 19, 20, 21, 22]))
    assert steps[-6:] == [(2, step) for step in range(17, 23)]
    _, steps = attempts_of(bare([800, 815, 820, 825, 830, 826, 830, 840]))
    assert steps[-3:] == [(2, 826), (2, 830), (2, 840)]


def test_one_step_that_is_told_again_is_a_repetition():
    parser, steps = attempts_of(bare([1, 2, 3, 4, 5, 3, 6, 7]))
    assert steps == [(1, step) for step in range(1, 8)]
    assert parser.counters["repeated_steps"] == 1
    parser, steps = attempts_of(bare([1, 2, 3, 4, 5, 3]))
    assert steps == [(1, step) for step in range(1, 6)]
    assert parser.counters["repeated_steps"] == 1


def test_a_late_step_that_nobody_told_stays_in_its_attempt():
    assert attempts_of(bare([100, 110, 120, 140, 130, 150]))[1] == [(1, s) for s in (100, 110, 120, 140, 130, 150)]
    assert attempts_of(bare([100, 110, 120, 140, 130]))[1] == [(1, s) for s in (100, 110, 120, 140, 130)]


def test_a_table_has_one_writer_so_a_step_that_comes_again_is_a_restart_at_once():
    starts = [[0, 200], [0, 200, 400, 600, 800], [0]]
    text = "step,loss,lr\n" + "".join(f"{step},2.5,0.1\n" for step in itertools.chain(*starts))
    assert attempts_of(text)[1] == [(number + 1, step) for number, steps in enumerate(starts) for step in steps]
    text = "step,loss,lr\n" + "".join(f"{step},2.5,0.1\n" for step in [*range(110, 120), *range(115, 125)])
    assert attempts_of(text)[1][10:] == [(2, step) for step in range(115, 125)]


def test_a_held_step_outlives_a_restart_of_the_reader():
    data = bare([*range(1, 21), 17, 18, 19, 20, 21, 22, 21, 23]).encode()
    whole = Parser()
    expected = whole.feed(data) + whole.finish()
    for cut in range(0, len(data), 9):
        first, second = Parser(), Parser()
        records = first.feed(data[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert records + second.feed(data[cut:]) + second.finish() == expected
        assert second.counters == whole.counters
