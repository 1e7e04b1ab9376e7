"""A clock that is set: heartbeats go on to be later than the one before, and a silence lasts as long as the person said."""

from __future__ import annotations

import pytest
from test_watchdog import FOR_EVER, Bench

from trainvitals.control.inbox import submit
from trainvitals.control.requests import SILENCE

HOUR_S = 3600


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.header()
    made.train(0, 50)
    made.watchdog.turn()
    yield made
    made.store.close()


def beats(bench):
    return list(bench.store.raw("heartbeat", ["alive"], {"run": "r"}, *FOR_EVER)["time_ns"])


def set_clock(bench, by_s):
    bench.clock.advance(by_s, wall_only=True)


def test_a_clock_that_is_set_back_hides_no_heartbeat_also_over_a_restart(bench):
    latest = max(beats(bench))
    set_clock(bench, -600)
    for turn in range(6):
        if turn == 3:
            bench.start()
        bench.clock.advance(6)
        bench.watchdog.turn()
        assert max(beats(bench)) > latest
        latest = max(beats(bench))


def nan_for_a_while(bench, first):
    """A critical incident; whether it was told."""
    before = len(bench.said)
    for step in range(first, first + 10):
        bench.clock.advance(1)
        bench.step(step, loss=float("nan"))
    bench.watchdog.turn()
    told = any(said.startswith("incident opened") for said in bench.said[before:])
    bench.train(first + 10, 600)
    bench.watchdog.turn()
    return told


@pytest.mark.parametrize("hours", [-8, 8])
def test_a_silence_of_an_hour_lasts_an_hour_after_the_clock_was_set(bench, hours):
    set_clock(bench, hours * HOUR_S)
    data = {"seconds": HOUR_S, "comment": "maintenance", "up_to": "critical"}
    submit(bench.dir, "r", kind=SILENCE, by="ana", source="cli", data=data, clock=bench.clock)
    bench.clock.advance(2)
    bench.watchdog.turn()
    assert not nan_for_a_while(bench, 50)
    bench.clock.advance(HOUR_S)
    bench.watchdog.turn()
    assert nan_for_a_while(bench, 1_000)
