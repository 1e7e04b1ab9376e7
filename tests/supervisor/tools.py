"""A supervisor of the small training in a directory of the test's own."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.supervisor import small_trainer
from trainvitals.clock import StopSignal, SystemClock
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import history
from trainvitals.supervisor.history import History
from trainvitals.supervisor.loop import Supervisor

DEADLINE_S = 40.0
QUICK = SupervisorSettings(back_off_s=0.01, back_off_max_s=0.05, grace_s=1.0, verify_s=10.0, hang_s=2.0, recovered_steps=10)


@dataclass
class Place:
    """Where a run lives, and what became of it."""

    path: Path
    settings: SupervisorSettings = QUICK
    more: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_dir.mkdir(exist_ok=True)

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def run(self) -> RunSettings:
        return RunSettings(name="small", dir=str(self.run_dir), checkpoints=(str(self.checkpoints),))

    def command(self) -> list[str]:
        return [
            sys.executable, "-I", "-S", small_trainer.__file__, "--run-dir", str(self.run_dir), "--checkpoints", str(self.checkpoints),
            "--resume", "{resume_from}", "--skip={skip_samples}", *self.more,
        ]  # fmt: skip

    def with_(self, **changes: Any) -> Place:
        self.settings = replace(self.settings, **changes)
        return self

    def supervisor(self, stop: StopSignal | None = None) -> Supervisor:
        return Supervisor(self.run, self.settings, self.command(), SystemClock(), stop or StopSignal(), poll_s=0.02)

    @property
    def history(self) -> History:
        return history.load(str(self.run_dir))

    @property
    def kinds(self) -> list[str]:
        return [start.kind for start in self.history.starts]

    def events(self) -> list[dict[str, Any]]:
        path = self.run_dir / "supervisor.events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def states(self) -> list[str]:
        return [event["data"]["state"] for event in self.events()]

    def records(self) -> list[dict[str, Any]]:
        path = self.run_dir / "metrics.rank00000.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def last_step(self) -> int:
        return max((record["step"] for record in self.records() if record["type"] == "step"), default=0)

    @contextmanager
    def running(self) -> Iterator[StopSignal]:
        """A supervisor in a thread; ended in the end."""
        stop = StopSignal()

        def work() -> None:
            try:
                self.codes.append(self.supervisor(stop).run())
            except Exception as error:  # noqa: BLE001 (looked at by the test)
                self.errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def wait_until(holds: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    until = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < until, f"waited {deadline_s} s for {what}"
        time.sleep(0.02)
