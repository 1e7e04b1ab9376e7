"""A way back that a supervisor took and then died with is carried out soon or not at all; the run is as it was then only for a while."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.control.audited import ask
from trainvitals.supervisor import history
from trainvitals.supervisor.history import Start, Wish, from_document, to_document
from trainvitals.supervisor.wishes import too_old

HOUR_NS = 3_600 * 10**9
DAY_NS = 24 * HOUR_NS


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, more=["--steps", "60"])


def left_behind(place: Place, age_ns: int) -> None:
    """What a supervisor that died right after it had taken a request leaves: here of a run that was stopped by its end."""
    place.more += ["--faults", "killed@20"]
    with place.running() as stop:
        wait_until(lambda: place.kinds == ["killed", ""] or place.last_step() > 25, "the second start")
        stop.set()
    checkpoint = str(sorted(place.checkpoints.iterdir())[0])
    wish = Wish("id-1", "ana", "data was wrong", checkpoint, taken_ns=time.time_ns() - age_ns)
    history.save(str(place.run_dir), replace(place.history, wish=wish))


def test_one_that_was_taken_an_hour_ago_is_held_with_a_sentence_and_a_resume_goes_on_without_it(place: Place) -> None:
    left_behind(place, DAY_NS)
    with place.running():
        wait_until(lambda: bool(place.history.held) and place.history.hold_seq is not None, "the hold")
        held = place.history
        assert held.wish is None and held.held_rule == "restart_failed"
        assert "that ana asked for was taken 24 h" in held.held
        told = [event for event in place.events() if event["data"]["state"] == "held"][-1]
        assert told["data"]["rule"] == "restart_failed" and "never carried out" in told["text"]
        starts = len(held.starts)
        ask(str(place.run_dir), "small", action="resume", by="ben", source="cli", reason="no longer wanted")
        wait_until(lambda: place.codes[-1:] == [0] and len(place.history.starts) > starts, "the end")
    assert "going back" not in "".join(event["text"] for event in place.events()[-6:])


def test_one_that_was_taken_a_moment_ago_is_carried_out(place: Place) -> None:
    left_behind(place, 5 * 10**9)
    wanted = place.history.wish
    assert wanted is not None
    with place.running():
        wait_until(lambda: place.history.last is not None and place.history.last.resume_from == wanted.to, "the way back")
    assert not place.history.held


def test_a_trainer_that_goes_on_is_left_alone_and_the_old_way_back_is_told_and_forgotten(place: Place) -> None:
    supervisor = place.supervisor()
    start = Start(1, 0)
    history.save(str(place.run_dir), history.History((start,), wish=Wish("id", "ana", "why", "/ckpt/100", taken_ns=1)))
    supervisor._history = place.history
    supervisor._running = SimpleNamespace(start=start, is_alive=True)
    supervisor._look_at_old_wish()
    assert place.history.wish is None and not place.history.held
    (told,) = place.events()
    assert told["data"]["state"] == "refused" and told["severity"] == "warning" and "Ask again" in told["text"]


@pytest.mark.parametrize(
    ("taken_ns", "is_old"),
    [(DAY_NS, False), (DAY_NS - 2 * HOUR_NS, True), (DAY_NS + 60 * 10**9, False), (DAY_NS + 2 * HOUR_NS, True), (0, True)],
)
def test_its_age_is_told_by_the_clock_and_a_clock_that_was_set_back_tells_nothing(taken_ns: int, is_old: bool) -> None:
    wish = Wish("id", "ana", "why", "/ckpt/100", taken_ns=taken_ns)
    assert bool(too_old(wish, DAY_NS, 3_600.0)) is is_old
    assert too_old(None, DAY_NS, 3_600.0) == ""


def test_a_state_of_an_older_or_a_newer_version_is_read(place: Place) -> None:
    document = to_document(replace(history.History(), wish=Wish("id", "ana", "why", "/ckpt/100", taken_ns=7)))
    assert from_document(document).wish == Wish("id", "ana", "why", "/ckpt/100", taken_ns=7)
    del document["wish"]["taken_ns"]
    document["wish"]["of_a_newer_version"] = 1
    assert from_document(document).wish == Wish("id", "ana", "why", "/ckpt/100")
