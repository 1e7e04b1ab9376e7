"""The last planned step ends a run whose log says nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_watch_time import HOUR_S, run_on, stalls
from test_watchdog import Bench


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.settings = replace(made.settings, runs=(replace(made.settings.runs[0], total_steps=100),))
    made.start()
    yield made
    made.store.close()


def train_live(bench, first, last):
    for step in range(first, last):
        bench.step(step, loss=2.0)
        run_on(bench, 1)


def test_silence_after_the_last_planned_step_is_no_stall(bench):
    bench.header()
    train_live(bench, 1, 101)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 5)
    bench.start()
    run_on(bench, 5)
    assert stalls(bench) == []


def test_a_run_that_goes_on_beyond_its_plan_is_watched_like_any_other(bench):
    bench.header()
    train_live(bench, 1, 160)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 5)
    assert stalls(bench)[-1].severity.value == "critical"


def test_silence_before_the_last_planned_step_is_a_stall(bench):
    bench.header()
    train_live(bench, 1, 60)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 5)
    assert stalls(bench)[-1].severity.value == "critical"
