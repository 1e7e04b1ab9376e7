"""A trainer that keeps one checkpoint, a loss that diverges, and the breaker's pause: the recommended checkpoint still verifies.

The demo's real trainer with its own saves, its own deletion and its own control client; a whole watchdog beside it.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trainvitals.checkpoints import CheckpointWatcher, inspect, pin_tree
from trainvitals.checkpoints.life import Patience
from trainvitals.clock import SystemClock
from trainvitals.control import read_request, read_status, submit
from trainvitals.demo import checkpoint
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.hook import ControlClient, Recorder
from trainvitals.records import CheckpointState
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.pin_work import PinWork
from trainvitals.watch.safe_checkpoint import SafeCheckpoint
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog

EVERY = 100
TIMEOUT_S = 60.0


class Run:
    """A training in a thread, which the test can damage, and its watchdog, which the test turns."""

    def __init__(self, place: Path) -> None:
        self.run_dir, self.checkpoints = place / "run", place / "checkpoints"
        self.run_dir.mkdir()
        self.checkpoints.mkdir()
        self.options = TrainingOptions(
            self.run_dir, self.checkpoints, steps=5_000, batch=64, hidden=16, text_bytes=60_000, step_time_s=0.004,
            checkpoint_every=EVERY,
        )  # fmt: skip
        self.training = Training(self.options)
        #: Set: a step waits for a turn of the watchdog, as real ones are slower than its look; a busy machine must not decide here.
        self.is_paced, self.turned = threading.Event(), threading.Semaphore(0)
        advance = self.training.advance
        self.training.advance = lambda: (self.is_paced.is_set() and self.turned.acquire(timeout=1.0), advance())[1]
        self.recorder = Recorder(str(self.run_dir), run="r")
        self.control = ControlClient(str(self.run_dir), run="r", on_checkpoint=self.training.save, poll_s=0.02)
        self.thread = threading.Thread(target=self.training.run, args=(self.recorder, self.control, lambda line: None))
        settings = parse(
            {
                "store": f"sqlite://{place}/store.db",
                "runs": [{"name": "r", "dir": str(self.run_dir), "breaker": "armed", "checkpoints": [str(self.checkpoints)]}],
                "breaker": {"points": 15, "quiet_start_points": 20},
                "watch": {"pin_copy_max_bytes": 0},
            }
        )
        run, clock = settings.runs[0], SystemClock()
        self.store = SqliteStore(place / "store.db")
        watcher = CheckpointWatcher(run.checkpoints, clock, Patience(0.1, 0.2, 0.2))
        self.safe = SafeCheckpoint(run, settings.watch, PinWork(in_thread=False))
        self.watchdog = Watchdog(
            settings, run, self.store, clock, sources=RunSources(run, clock, LocalProcessTable("h", lambda pid: (True, None))),
            scanner=CheckpointScanner(watcher, clock, 0.1, in_thread=False), breaker=BreakerAction(run), node="h",
            say=lambda text: None, safe=self.safe,
        )  # fmt: skip

    def until(self, condition, *, poison: bool = False) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        if poison:
            self.is_paced.set()
        noise = np.random.default_rng(1)
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < end_s, "it never came to that"
            if poison and (status := read_status(self.run_dir)) is not None and status.state == "running":
                for weights in self.training.parameters.values():
                    weights[...] = noise.normal(0, 2.0, weights.shape)
            self.watchdog.turn()
            self.turned.release()
            pause.wait(0.01)

    def state(self) -> str:
        status = read_status(self.run_dir)
        return status.state if status is not None else ""

    def close(self) -> None:
        submit(self.run_dir, "r", action="stop", by="test", source="cli", reason="the test is over")
        self.thread.join(TIMEOUT_S)
        self.control.close()
        self.recorder.close()
        self.store.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(checkpoint, "KEPT", 1)
    made = Run(tmp_path)
    made.thread.start()
    yield made
    made.close()


def diverge_and_pause(run: Run) -> int:
    """Step of the safe checkpoint, whose trainer has been paused by the breaker since."""
    run.until(lambda: run.training.step >= 3 * EVERY + 20 and run.safe.rollback.checkpoint is not None)
    run.until(lambda: run.training.step % EVERY in range(20, 40))  # well away from the saves before and after
    newest = lambda: getattr(run.safe.rollback.checkpoint, "step", None)  # noqa: E731 (none while the next one is looked at)
    run.until(lambda: newest() == run.training.step // EVERY * EVERY)
    safe = run.safe.rollback.checkpoint
    assert safe is not None and safe.step is not None
    run.until(lambda: run.state() == "paused", poison=True)
    request = read_request(run.run_dir)
    assert request.by == "breaker" and request.desired == "paused"
    for _ in range(30):  # what the pause did to the disk is seen
        run.watchdog.turn()
        threading.Event().wait(0.05)
    return safe.step


def loss_after_going_back(run: Run, path: str) -> float:
    again = Training(run.options)
    again.resume(Path(path))
    return float(np.mean([again.advance().loss for _ in range(5)]))


def test_a_pause_saves_beside_the_pinned_one(run: Run) -> None:
    step = diverge_and_pause(run)
    assert read_request(run.run_dir).save is None
    safe = run.safe.rollback.checkpoint
    assert safe is not None and safe.step == step and ".trainvitals-pinned" in safe.path
    assert inspect(safe.path).state is CheckpointState.VERIFIED
    (left,) = run.checkpoints.glob("checkpoint-*")
    assert left.name == f"checkpoint-{read_status(run.run_dir).checkpoint_step}" != f"checkpoint-{step}"
    assert loss_after_going_back(run, safe.path) < loss_after_going_back(run, str(left))


def test_a_pause_does_not_save_where_hard_links_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(pin_tree.os, "link", refused)
    step = diverge_and_pause(run)
    assert read_request(run.run_dir).save is False and read_status(run.run_dir).checkpoint_step is None
    safe = run.safe.rollback.checkpoint
    assert safe is not None and safe.step == step
    assert [path.name for path in run.checkpoints.glob("checkpoint-*")] == [f"checkpoint-{step}"]
    assert inspect(safe.path).state is CheckpointState.VERIFIED
    newest = {event.id: event.data for event in run.store.events("r", ("finding",), 0, 2**62)}
    (told,) = [data for data in newest.values() if data["rule"] == "checkpoint_safe_expiring"]
    assert told["is_open"]
    assert told["severity"] == "critical" and "fs.protected_hardlinks" in told["message"]
