"""A trainer whose clock is behind the watchdog's: the breaker pauses it, and people are told; what is read late is still history."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from test_start_without_store import Place

from trainvitals.control.request import read_request

DAY_S = 86_400


class Behind(Place):
    """``behind_s``: of the trainer's clock."""

    behind_s = 600.0

    def append(self, record):
        record = dict(record)
        for name in ("time_ns", "started_ns"):
            if name in record:
                record[name] -= round(self.behind_s * 1e9)
        super().append(record)


@pytest.fixture
def place(tmp_path):
    made = Behind(tmp_path)
    yield made
    made.store.close()
    made.outbox.close()


def train_live(place, count=120):
    place.header()
    place.watchdog.turn()
    for step in range(count):
        place.clock.advance(1)
        place.step(step, loss=2.0 + 0.001 * (step % 7))
        place.watchdog.turn()


@pytest.mark.parametrize("behind_s", [90.0, 600.0, 3 * DAY_S])
def test_a_trainer_whose_clock_is_behind_is_paused_and_its_trouble_is_told(place, behind_s):
    place.behind_s = behind_s
    place.begin()
    train_live(place)
    place.blow_up(120)
    assert read_request(place.dir).desired == "paused"
    assert len(place.told()) == 1


def no_number_while_nobody_reads(place):
    place.behind_s = 0.0
    place.begin()
    train_live(place)
    for step in range(120, 126):
        place.clock.advance(1)
        place.step(step, loss=math.nan)


def test_what_a_watchdog_reads_after_it_was_away_is_history_for_the_breaker(place):
    no_number_while_nobody_reads(place)
    place.clock.advance(600)
    place.begin()
    place.turns()
    assert read_request(place.dir).desired == "running"
    (stale,) = [event for event in place.events("breaker") if event.data["decision"] == "stale"]
    assert "10 min" in stale.text


def test_a_watchdog_that_stood_still_for_an_hour_takes_what_came_meanwhile_by_its_time(place):
    no_number_while_nobody_reads(place)
    place.clock.advance(3_600)
    place.turns()
    assert read_request(place.dir).desired == "running"


def test_nobody_is_told_of_a_run_that_was_given_up_days_ago(place):
    place.behind_s = 0.0
    place.header()
    for step in range(120):
        place.clock.advance(1)
        place.step(step, loss=2.0)
    for step in range(120, 126):
        place.step(step, loss=math.nan)
    place.clock.advance(3 * DAY_S)
    place.settings = replace(place.settings)
    place.begin()
    place.turns()
    assert place.told() == []
