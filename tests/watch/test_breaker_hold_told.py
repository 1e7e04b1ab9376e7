"""What holds the breaker reaches the pages while it is so: by the watchdog's own file, and through the store."""

from __future__ import annotations

import pytest
from far_bench import FarBench

from trainvitals.control import inbox
from trainvitals.control.request import submit
from trainvitals.web import actions
from trainvitals.web.control_words import breaker_words
from trainvitals.web.process import read_breaker


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = FarBench(tmp_path, monkeypatch)
    made.turn()
    yield made
    made.store.close()


def ask(bench, action):
    submit(bench.dir, "r", action=action, by="ana", source="cli", reason="night", clock=bench.clock)


def test_the_quiet_start_a_person_and_switching_it_off_are_told_as_they_come(bench):
    run = bench.settings.runs[0]
    assert "of 200 quiet points" in read_breaker(run)[1] and "of 200 quiet points" in bench.told().breaker_hold
    ask(bench, "checkpoint")
    bench.turn(4)
    assert "quiet points" in read_breaker(run)[1]
    ask(bench, "pause")
    bench.turn(4)
    assert read_breaker(run) == ("dry-run", "a person paused or resumed; disarmed for 500 more points")
    assert bench.told().breaker_hold == read_breaker(run)[1] == inbox.watcher_of(bench.dir).breaker_hold
    actions.set_breaker(bench.dashboard, "r", "off", "ana", "night", bench.clock)
    bench.turn(5)
    assert read_breaker(run) == ("off", "")


def test_the_card_says_what_holds_an_armed_breaker_and_nothing_of_one_that_is_off():
    hold = "2 of 2 automatic pauses of the last 24 h are used: it only alerts now; next one at 02:58 UTC"
    assert f"Held now: {hold}." in breaker_words("armed", "armed", hold)
    assert "Held now" not in breaker_words("armed") + breaker_words("off", "armed", hold)
