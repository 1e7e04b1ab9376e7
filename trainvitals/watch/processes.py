"""Child processes of one machine: start them, start again those that die, stop them all in the end.

The children stand in sessions of their own and share nothing with the supervisor but the terminal, so that a kill -9 of the
supervisor takes nothing down with it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from trainvitals.clock import Clock, StopSignal, SystemClock

FIRST_BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 30.0
#: A child that lived this long before it died starts again at once.
SETTLED_S = 30.0
STOP_WAIT_S = 10.0


@dataclass(frozen=True)
class Child:
    """One process. ``restart``: start it again when it dies. ``log_path``: where stdout and stderr go, None = the terminal.
    ``cwd``: working directory, None = this process's own. ``ends_first``: it is gone before the others are told to end."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    restart: bool = True
    log_path: str | None = None
    cwd: str | None = None
    ends_first: bool = False


@dataclass
class _Running:
    child: Child
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    start_at_s: float = 0.0
    back_off_s: float = FIRST_BACK_OFF_S
    is_over: bool = False
    log: IO[bytes] | None = field(default=None, repr=False)


class Supervisor:
    """Keeps the children running until ``stop`` is called or every child that is not restarted has ended."""

    def __init__(self, children: Sequence[Child], clock: Clock | None = None, say: Callable[[str], None] | None = None) -> None:
        self._clock = clock or SystemClock()
        self._say = say or _say
        self._running = [_Running(child) for child in children]
        self._stopping = StopSignal()

    def stop(self) -> None:
        """Ask ``run`` to end the children and return."""
        self._stopping.set()

    def pids(self) -> dict[str, int]:
        """Name to process id of the children that run now."""
        return {r.child.name: r.process.pid for r in self._running if r.process is not None and r.process.poll() is None}

    def turn(self) -> None:
        """Look at every child once: note who died, start who is due."""
        now_s = self._clock.monotonic_s()
        for running in self._running:
            process = running.process
            if process is not None and process.poll() is not None:
                self._ended(running, process.returncode, now_s)
            if running.process is None and not running.is_over and now_s >= running.start_at_s:
                self._start(running, now_s)

    @property
    def is_over(self) -> bool:
        """True when no child runs and none will be started again."""
        return all(running.is_over for running in self._running)

    def run(self) -> int:
        """Until stopped. Returns 0."""
        try:
            while not self._stopping.is_set() and not self.is_over:
                self.turn()
                self._stopping.wait(0.2)
        finally:
            self.end_children()
        return 0

    def end_children(self) -> None:
        """SIGTERM to all, SIGKILL to those that do not end in time; those that end first before the others hear of it."""
        for ends_first in (True, False):
            _end([r.process for r in self._running if r.process is not None and r.child.ends_first is ends_first])
        for running in self._running:
            if running.log is not None:
                running.log.close()
                running.log = None

    def _start(self, running: _Running, now_s: float) -> None:
        child = running.child
        try:
            if child.log_path is not None and running.log is None:
                Path(child.log_path).parent.mkdir(parents=True, exist_ok=True)
                running.log = Path(child.log_path).open("ab")  # noqa: SIM115 (closed in end_children)
            running.process = subprocess.Popen(
                list(child.argv), env=dict(child.env), stdin=subprocess.DEVNULL, stdout=running.log, stderr=running.log,
                start_new_session=True, cwd=child.cwd,
            )  # fmt: skip
        except OSError as error:
            self._say(f"{child.name}: cannot be started ({error}); trying again in {running.back_off_s:g} s.")
            self._back_off(running, now_s)
            return
        running.started_s = now_s

    def _ended(self, running: _Running, code: int, now_s: float) -> None:
        running.process = None
        child = running.child
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        if not child.restart:
            running.is_over = True
            if code != 0:
                self._say(f"{child.name} {how}.")
            return
        if now_s - running.started_s >= SETTLED_S:
            running.back_off_s = FIRST_BACK_OFF_S
        self._say(f"{child.name} {how}; starting it again in {running.back_off_s:g} s.")
        self._back_off(running, now_s)

    @staticmethod
    def _back_off(running: _Running, now_s: float) -> None:
        running.start_at_s = now_s + running.back_off_s
        running.back_off_s = min(2 * running.back_off_s, LONGEST_BACK_OFF_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        process.terminate()
    for process in alive:
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_children(children: Sequence[Child], clock: Clock | None = None, on_ready: Callable[[], None] | None = None) -> int:
    """Run the children until SIGINT or SIGTERM, then end them. ``on_ready`` is called once all have been started."""
    supervisor = Supervisor(children, clock)

    def stop(_number: int, _frame: FrameType | None) -> None:
        supervisor.stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        supervisor.turn()
        if on_ready is not None:
            on_ready()
        return supervisor.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the supervisor
        print(f"trainvitals: {sentence}", file=sys.stderr, flush=True)  # noqa: T201
