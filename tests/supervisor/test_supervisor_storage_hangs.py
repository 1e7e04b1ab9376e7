"""Storage below the checkpoints that answers nothing: the supervisor says so, still ends when it is told to, and goes on afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.control import supervised
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity
from trainvitals.supervisor import looks


class Storage:
    """Looks at it beyond the ``free`` first ones hang until it ``answers``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.free = 1
        for name in ("choose", "named"):
            monkeypatch.setattr(looks.choice, name, self._slow(getattr(looks.choice, name)))

    def _slow(self, of: Any) -> Any:
        def look(*arguments: Any, **named: Any) -> Any:
            self.free -= 1
            if self.free < 0:
                assert self.answers.wait(120.0)
            return of(*arguments, **named)

        return look


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(looks, "HUNG_S", 0.2)
    monkeypatch.setattr(looks, "POLL_S", 0.02)
    monkeypatch.setattr(looks, "END_WITHIN_S", 0.1)
    made = Storage(monkeypatch)
    yield made
    made.answers.set()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, more=["--steps", "60"])


def told(place: Place, state: str) -> list[dict[str, Any]]:
    return [event for event in place.events() if event["data"]["state"] == state]


def test_the_end_of_the_trainer_and_the_storage_are_told_and_it_goes_on_when_that_answers(place: Place, storage: Storage) -> None:
    place.more += ["--faults", "killed@25"]
    with place.running() as stop:
        wait_until(lambda: bool(told(place, "storage_hangs")), "a word about the storage")
        (ended,) = told(place, "ended")
        assert "killed" in ended["data"]["kind"], "that it ended is said before the look"
        (hangs,) = told(place, "storage_hangs")
        assert hangs["severity"] == "critical" and str(place.checkpoints) in hangs["text"]
        storage.answers.set()
        wait_until(lambda: bool(place.codes), "the end of the training")
        assert not stop.is_set()
    assert place.codes == [0] and place.kinds == ["killed", "finished"] and place.errors == []
    assert [start.resume_step for start in place.history.starts] == [None, 20]
    assert len(told(place, "storage_answers")) == 1


def test_a_supervisor_that_waits_for_storage_ends_when_it_is_told_to_and_the_next_one_goes_on(
    place: Place, storage: Storage
) -> None:
    place.more += ["--faults", "killed@25"]
    with place.running() as stop:
        wait_until(lambda: bool(told(place, "ended")), "the end of the trainer")
        stop.set()
        wait_until(lambda: bool(place.codes), "the end of the supervisor")
    assert place.codes == [0] and told(place, "left")
    storage.answers.set()
    assert place.supervisor().run() == 0
    assert place.kinds == ["killed", "finished"]
    assert [start.resume_step for start in place.history.starts] == [None, 20]


def test_storage_that_hangs_at_the_very_start_is_told_and_a_trainer_starts_when_it_answers(
    place: Place, storage: Storage
) -> None:
    storage.free = 0
    with place.running():
        wait_until(lambda: bool(told(place, "storage_hangs")), "a word about the storage")
        assert place.history.starts == ()
        storage.answers.set()
        wait_until(lambda: bool(place.codes), "the end of the training")
    assert place.codes == [0] and place.kinds == ["finished"]


def test_a_way_back_that_hangs_is_refused_in_words_while_the_trainer_goes_on(place: Place, storage: Storage) -> None:
    place.more = ["--steps", "100000"]
    with place.running():
        wait_until(lambda: place.last_step() >= 25, "steps")
        to = str(place.checkpoints / "checkpoint-10")
        supervised.ask_rollback(place.run_dir, "small", to=to, by="ana", reason="damaged", source="cli")
        wait_until(lambda: bool(told(place, "refused")), "a refusal")
        assert "has not come back" in told(place, "refused")[0]["text"]
        before = place.last_step()
        wait_until(lambda: place.last_step() > before, "the trainer going on")
        storage.answers.set()


def event(state: str, **data: Any) -> Event:
    return Event("supervisor", 1_000, id=state, text=state, source="supervisor", data={"state": state, **data})


def test_a_person_is_woken_for_it_until_the_trainer_is_started_again() -> None:
    engine = Engine("r")
    (found,) = engine.update(event("storage_hangs", reason="the look has not come back for 2 min"))
    assert (found.rule, found.severity) == ("restart_failed", Severity.CRITICAL)
    assert "cannot start it again: the look has not come back for 2 min" in found.message
    (closed,) = engine.update(event("started"))
    assert closed.id == found.id and not closed.is_open
