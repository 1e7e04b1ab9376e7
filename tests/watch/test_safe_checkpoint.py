"""The safe checkpoint stays while an incident is open: a whole watchdog, real checkpoint files, and a trainer that deletes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from test_watchdog import HOST, Bench

from tests.checkpoints.checkpoint_makers import huggingface_parts, write_parts
from trainvitals.checkpoints import CheckpointWatcher, inspect
from trainvitals.checkpoints.life import Patience
from trainvitals.control import read_request
from trainvitals.control.records import ControlStatus
from trainvitals.records import CheckpointState
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.pin_work import PinWork
from trainvitals.watch.safe_checkpoint import SafeCheckpoint
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog


class Place(Bench):
    """A run whose trainer saves every 100 steps and keeps the newest ``keep``."""

    keep = 2

    def __init__(self, tmp_path: Path, **options: str) -> None:
        self.checkpoints = tmp_path / "checkpoints"
        self.checkpoints.mkdir()
        self.copy_limit = 0
        self.pins = True
        self.save_on_pause = "auto"
        super().__init__(tmp_path, **options)

    def start(self, store=None):
        run = replace(self.settings.runs[0], checkpoints=(str(self.checkpoints),), save_on_pause=self.save_on_pause)
        watch = replace(self.settings.watch, pin_safe_checkpoint=self.pins, pin_copy_max_bytes=self.copy_limit)
        watcher = CheckpointWatcher([str(self.checkpoints)], self.clock, Patience(0.5, 0.5, 0.5))
        self.safe = SafeCheckpoint(run, watch, PinWork(in_thread=False))
        self.watchdog = Watchdog(
            self.settings, run, store or self.store, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable(HOST, lambda pid: self.processes.get(pid, (True, None)))),
            scanner=CheckpointScanner(watcher, self.clock, 1, in_thread=False),
            breaker=BreakerAction(run, lambda _dir: self.status), node=HOST, say=self.said.append, safe=self.safe,
        )  # fmt: skip
        self.watchdog.restore()
        return self.watchdog

    def save(self, step: int, name: str = "") -> Path:
        path = write_parts(self.checkpoints / (name or f"checkpoint-{step}"), huggingface_parts(step), self.clock.time_ns() / 1e9)
        numbered = sorted(self.checkpoints.glob("checkpoint-*"), key=lambda found: int(found.name.removeprefix("checkpoint-")))
        for old in numbered[: -self.keep]:
            shutil.rmtree(old)
        return path

    def run_on(self, first: int, last: int, loss: float = 2.0) -> None:
        """Train, save every 100 steps, and let the watchdog look now and then."""
        for step in range(first, last + 1):
            self.train(step, 1, loss, seed=step)
            if step % 100 == 0:
                self.save(step)
            if step % 50 == 0:
                self.watchdog.turn()
        self.settle()

    def settle(self) -> None:
        for _ in range(6):
            self.clock.advance(1)
            self.watchdog.turn()

    def told(self, state: str) -> list[str]:
        return [event.text for event in self.events("pin") if event.data["state"] == state]

    def pinned(self) -> list[str]:
        place = self.checkpoints / ".trainvitals-pinned"
        return sorted(path.name for path in place.iterdir() if path.name != ".owners") if place.is_dir() else []

    def findings(self, rule: str = "checkpoint_safe_expiring") -> list[dict]:
        newest = {event.id: event.data for event in self.events("finding") if event.data["rule"] == rule}
        return list(newest.values())


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.header()
    yield made
    made.store.close()


def test_nothing_is_pinned_while_all_is_well(place):
    place.run_on(1, 450)
    assert place.pinned() == [] and place.events("pin") == []
    assert place.safe.rollback.checkpoint.step == 400


def test_the_safe_one_is_pinned_when_the_loss_turns_sick_and_outlives_the_trainers_deletion(place):
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    assert place.pinned() == ["checkpoint-400"] and len(place.told("kept")) == 1
    place.run_on(471, 800, loss=4.0)  # the trainer goes on, saves sick weights, and deletes what is older
    assert sorted(path.name for path in place.checkpoints.glob("checkpoint-*")) == ["checkpoint-700", "checkpoint-800"]
    kept = place.checkpoints / ".trainvitals-pinned" / "checkpoint-400"
    report = inspect(str(kept))
    assert report.state is CheckpointState.VERIFIED and report.step == 400
    assert place.safe.rollback.checkpoint.path == str(kept) and place.safe.rollback.is_pinned
    shown = [event for event in place.events("checkpoint") if event.data["path"] == str(kept)]
    assert {event.data["state"] for event in shown} == {"verified"} and len(shown) == 2  # found alone, then its bytes were read
    assert place.findings() == []


def test_it_is_let_go_when_a_newer_one_is_safe(place):
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    place.run_on(471, 1000)
    assert place.pinned() == [] and "newer" in place.told("let_go")[0]
    kept = str(place.checkpoints / ".trainvitals-pinned" / "checkpoint-400")
    states = [event.data["state"] for event in place.events("checkpoint") if event.data["path"] == kept]
    assert states in ([], ["verified", "deleted"])


def test_the_last_way_back_is_never_let_go_however_long_it_takes(place):
    place.run_on(1, 450)
    place.run_on(451, 800, loss=4.0)
    place.clock.advance(30 * 86_400)
    place.settle()
    assert place.pinned() == ["checkpoint-400"]


def test_a_restart_of_the_watchdog_goes_on_with_its_pins(place):
    place.run_on(1, 450)
    place.run_on(451, 700, loss=4.0)
    events = len(place.events("pin"))
    place.start()
    place.settle()
    assert place.pinned() == ["checkpoint-400"] and len(place.events("pin")) == events
    assert place.safe.rollback.checkpoint.path.endswith(".trainvitals-pinned/checkpoint-400")
    (kept,) = place.safe.to_state()["pins"].values()
    place.safe.restore(place.safe.to_state())  # what was proven of it is not forgotten
    assert list(place.safe.to_state()["pins"].values()) == [kept]


def test_a_run_that_was_given_up_long_ago_is_left_as_it_is(place):
    for step in range(1, 471):
        place.train(step, 1, 2.0 if step <= 450 else 4.0, seed=step)
        if step % 100 == 0:
            place.save(step)
    place.clock.advance(2 * 86_400)
    place.settle()
    assert place.safe.rollback.onset_step == 451 and place.pinned() == []


def test_a_state_that_is_lost_finds_the_pins_on_the_disk_again(place):
    place.run_on(1, 450)
    place.run_on(451, 700, loss=4.0)
    place.store.close()
    (place.dir.parent / "store.db").unlink()
    from trainvitals.store.sqlite import SqliteStore

    place.store = SqliteStore(place.dir.parent / "store.db")
    place.start()
    place.settle()
    assert place.safe.rollback.checkpoint.path.endswith(".trainvitals-pinned/checkpoint-400")


def test_where_it_cannot_be_pinned_the_steps_until_its_deletion_are_told(place):
    (place.checkpoints / ".trainvitals-pinned").write_text("not a directory")
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    (found,) = place.findings()
    assert found["is_open"] and found["severity"] == "warning"
    assert "step 400" in found["message"] and "2. save from now (in about 130 steps)" in found["message"]
    assert "no directory" in found["message"] and len(place.told("failed")) == 2
    place.run_on(471, 520, loss=4.0)
    (found,) = place.findings()
    assert found["severity"] == "critical" and "with the next save" in found["message"]
    place.run_on(521, 620, loss=4.0)  # now it is gone, and nothing can be recommended
    (found,) = place.findings()
    assert not found["is_open"] and place.safe.rollback.checkpoint is None


@pytest.mark.parametrize("state", [CheckpointState.VERIFYING, CheckpointState.WRITING, CheckpointState.COMPLETE])
def test_it_is_not_called_over_while_the_checkpoint_is_looked_at_again(place, state):
    (place.checkpoints / ".trainvitals-pinned").write_text("not a directory")
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    told = place.safe.rollback.checkpoint
    known = place.safe._known
    for _ in range(3):
        place.safe.scanned([replace(one, state=state, level=None) for one in known])
        assert place.safe.poll(place.clock.time_ns(), 1) == [] and place.safe.rollback.checkpoint is None
        place.safe.scanned(known)
        assert place.safe.poll(place.clock.time_ns(), 1) == [] and place.safe.rollback.checkpoint.path == told.path
    place.safe.scanned([replace(one, state=CheckpointState.DELETED, level=None) for one in known])
    (ended,) = place.safe.poll(place.clock.time_ns(), 1)
    assert not ended.is_open and ended.message.endswith("; that is over")


def test_the_finding_ends_when_it_can_be_pinned_after_all(place):
    obstacle = place.checkpoints / ".trainvitals-pinned"
    obstacle.write_text("not a directory")
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    obstacle.unlink()
    place.run_on(471, 480, loss=4.0)
    (found,) = place.findings()
    assert not found["is_open"] and "kept now" in found["message"] and place.pinned() == ["checkpoint-400"]


def test_it_can_be_switched_off_and_says_so(place):
    place.pins = False
    place.start()
    place.run_on(1, 450)
    place.run_on(451, 470, loss=4.0)
    assert place.pinned() == [] and "pin_safe_checkpoint is off" in place.findings()[0]["message"]


def test_a_pin_that_is_damaged_from_outside_is_told_and_is_no_way_back(place):
    place.run_on(1, 450)
    place.run_on(451, 700, loss=4.0)
    weights = place.checkpoints / ".trainvitals-pinned" / "checkpoint-400" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    place.clock.advance(61)
    place.settle()
    assert place.told("broken") and place.safe.rollback.checkpoint is None


@pytest.mark.parametrize(("keep", "pins", "saves"), [(1, True, None), (1, False, False), (2, False, False), (6, False, None)])
def test_a_pause_for_a_sick_loss_saves_only_when_that_cannot_push_out_the_safe_one(place, keep, pins, saves):
    place.keep, place.pins = keep, pins
    place.start()
    place.run_on(1, 850)
    assert place.safe.pause_save().save is None
    place.run_on(851, 870, loss=4.0)
    decided = place.safe.pause_save()
    assert decided.save is saves, decided


@pytest.mark.parametrize(("mode", "saves"), [("always", True), ("never", False)])
def test_the_setting_decides_where_it_is_set(place, mode, saves):
    place.save_on_pause = mode
    place.start()
    place.run_on(1, 350)
    assert place.safe.pause_save().save is saves


def test_the_breaker_pauses_without_a_save_where_nothing_is_pinned(tmp_path):
    place = Place(tmp_path, breaker="armed")
    place.keep, place.pins = 1, False
    place.status = ControlStatus(run="r", understands=("save",))
    place.header()
    place.start()
    place.run_on(1, 850)
    for step in range(851, 861):
        place.clock.advance(1)
        place.step(step, loss=float("nan"))
        place.watchdog.turn()
    request = read_request(place.dir)
    assert request.desired == "paused" and request.save is False and request.by == "breaker"
    (decision,) = [event for event in place.events("breaker") if event.data["decision"] == "paused"]
    assert "does not save" in decision.text
    place.store.close()


def test_nothing_is_done_for_a_run_whose_checkpoints_are_not_watched(tmp_path):
    bench = Bench(tmp_path)
    bench.header()
    bench.train(1, 400)
    bench.train(401, 60, loss=4.0)
    bench.watchdog.turn()
    assert bench.events("pin") == []
    bench.store.close()
