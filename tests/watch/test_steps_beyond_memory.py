"""A store that is away for longer than memory has room: detection goes on, and the steps are read again from the run's files."""

from __future__ import annotations

import math

import pytest
from test_watchdog import Bench

from trainvitals.errors import StoreUnavailable
from trainvitals.watch import gap, outgoing
from trainvitals.watch.sources import RunSources


class Away:
    """In front of the store. ``broken_after``: commits that are taken before it breaks again, None = all."""

    def __init__(self, store):
        self.store, self.is_away, self.broken_after = store, False, None

    def commit(self, points, state):
        if self.is_away or self.broken_after == 0:
            raise StoreUnavailable("away")
        if self.broken_after is not None:
            self.broken_after -= 1
        self.store.commit(points, state)

    def load_state(self, prefix):
        return self.store.load_state(prefix)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(outgoing, "MAX_PENDING_POINTS", 120)
    monkeypatch.setattr(outgoing, "MAX_PENDING_OTHERS", 80)
    monkeypatch.setattr(gap, "PIECE_S", -1.0)
    made = Bench(tmp_path)
    made.away = Away(made.store)
    made.start(made.away)
    yield made
    made.store.close()


def small_reads(bench, monkeypatch, size=4_000):
    old = RunSources.poll

    def poll(self):
        self._max_bytes = size
        return old(self)

    monkeypatch.setattr(RunSources, "poll", poll)


def long_absence(bench):
    bench.header()
    bench.train(0, 50)
    bench.watchdog.turn()
    bench.away.is_away = True
    for part in range(20):
        bench.train(50 + part * 25, 25, seed=part)
        bench.watchdog.turn()
    bench.train(550, 5, loss=math.nan)
    bench.watchdog.turn()


def of_loss(bench):
    return [event for event in bench.events("incident") if event.data["family"] == "loss"]


def settle(bench, turns=40):
    for _ in range(turns):
        bench.clock.advance(5)
        bench.watchdog.turn()


def test_what_happens_after_memory_is_full_is_found_and_every_step_is_stored_once_in_the_end(bench):
    long_absence(bench)
    assert any("loss_nonfinite" in incident.rules for incident in bench.watchdog._incidents._keeper.open_incidents)
    assert len(bench.watchdog._out._pending.points) <= 120
    assert len(bench.train_rows()) == 50
    bench.away.is_away = False
    settle(bench)
    assert list(bench.train_rows()["step"]) == list(range(555))
    (incident,) = of_loss(bench)
    assert incident.data["rules"][0] == "loss_nonfinite"
    assert len(bench.events("attempt_start")) == 1
    bench.train(555, 10)
    settle(bench, 2)
    assert list(bench.train_rows()["step"]) == list(range(565))


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_a_store_that_goes_away_again_while_the_steps_are_read_again_loses_none(bench, monkeypatch, after):
    long_absence(bench)
    small_reads(bench, monkeypatch)
    bench.away.is_away, bench.away.broken_after = False, after
    settle(bench, 10)
    bench.away.broken_after = None
    settle(bench)
    assert list(bench.train_rows()["step"]) == list(range(555))
    assert len(of_loss(bench)) == 1


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_a_kill_while_the_steps_are_read_again_loses_none(bench, monkeypatch, after):
    long_absence(bench)
    small_reads(bench, monkeypatch)
    bench.away.is_away, bench.away.broken_after = False, after
    settle(bench, 6)
    bench.away.broken_after = None
    bench.start()
    settle(bench, 60)
    assert list(bench.train_rows()["step"]) == list(range(555))
    assert len(of_loss(bench)) == 1


def test_what_no_file_has_is_counted_where_it_found_no_room(bench):
    bench.header()
    bench.train(0, 50)
    bench.watchdog.turn()
    bench.away.is_away = True
    for number in range(300):
        bench.watchdog.note(f"note {number}", f"subject {number}")
    bench.watchdog.turn()
    assert bench.watchdog.counters.events_not_kept >= 150
    bench.away.is_away = False
    settle(bench, 3)
    assert any("events not kept" in event.text for event in bench.events("watch"))
