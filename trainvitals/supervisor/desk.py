"""How the supervisor speaks with people: its events, the control file, the audit, and that it is there. Nothing of it may end a trainer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping

from trainvitals.clock import Clock
from trainvitals.control import ControlRequest, read_request, supervised
from trainvitals.control.audit import append
from trainvitals.control.audited import ask
from trainvitals.control.requests import Watcher
from trainvitals.errors import ControlError, InputError, TrainvitalsError
from trainvitals.settings import RunSettings
from trainvitals.supervisor.events import EventFile

ANNOUNCE_EVERY_S = 5.0
#: The longest turn waits for Slurm's commands, logs, store and checkpoints, each with a limit; one that takes longer hangs.
TURN_LIMIT_S = 300.0
ME = "supervisor"


class Desk:
    """Troubles are told once each, as events."""

    def __init__(self, run: RunSettings, clock: Clock) -> None:
        self._run, self._clock = run, clock
        self._events = EventFile(run.dir, clock)
        self._said = ""
        self._announce_due_s = self._turn_s = 0.0
        self._announcer: threading.Thread | None = None
        self._is_announcing, self._closing = threading.Lock(), threading.Event()
        self._trouble: Exception | None = None
        #: The last ``request`` could be read, or there is none.
        self.is_readable = True

    def tell(self, state: str, text: str, *, severity: str = "info", step: int | None = None, **data: object) -> None:
        """One event."""
        self._events.tell(state, text, severity=severity, step=step, **data)

    def tell_once(self, key: str, state: str, text: str, seconds: float | None = None) -> None:
        """One event, unless the last one told like this had the same key. seconds: until something happens, None = not known."""
        if key != self._said:
            self._said = key
            self.tell(state, text, severity="warning" if state == "trouble" else "info", seconds=seconds)

    def trouble(self, what: str, error: Exception) -> None:
        """Something that is tried again."""
        self.tell_once(f"{what}{error}", "trouble", f"{what}: {error}")

    def request(self) -> ControlRequest | None:
        """What is asked of the run; None while it cannot be read: then nothing is concluded from it."""
        try:
            request = read_request(self._run.dir)
            self.is_readable = True
            return request
        except (InputError, ControlError, OSError) as error:
            self.is_readable = False
            self.trouble("the control file cannot be read", error)
            return None

    def ask(self, action: str, by: str, reason: str) -> ControlRequest | None:
        """Ask for something in the control file; None when it could not be written."""
        try:
            return ask(
                self._run.dir, self._run.name, action=action, by=by, source=ME, reason=reason[:1_900], clock=self._clock
            ).request
        except (TrainvitalsError, OSError) as error:  # a full disk, or somebody wrote at the same moment
            self.trouble(f"cannot ask the run to {action}", error)
            return None

    def let_run(self, by: str, reason: str) -> bool:
        """A pause or a stop that stands ends with a way back: else the new start would hold at its first step. Whether none stands."""
        request = self.request()
        return request is None or request.desired == "running" or self.ask("resume", by, reason) is not None

    def audit(self, kind: str, data: Mapping[str, object], by: str = ME) -> None:
        """One record."""
        try:
            append(self._run.dir, kind, by=by, source=ME, data=data, clock=self._clock, run=self._run.name)
        except (TrainvitalsError, OSError) as error:
            self.trouble(f"{kind} is not in the audit", error)

    def announce(self) -> None:
        """Tell that this run is supervised, now and then; from the first time on also while a turn takes long (until ``TURN_LIMIT_S``): whoever
        believed that nobody is here would start a second trainer by hand."""
        self._turn_s = self._clock.monotonic_s()
        if self._turn_s >= self._announce_due_s:
            self._announce()
        if self._announcer is None:
            self._announcer = threading.Thread(target=self._keep_announcing, name="tell that the run is supervised", daemon=True)
            self._announcer.start()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            self.trouble("cannot tell that this run is supervised", trouble)

    def close(self) -> None:
        """Tell that nobody supervises it any more."""
        self._closing.set()
        if self._announcer is not None:
            self._announcer.join(ANNOUNCE_EVERY_S)
        supervised.withdraw(self._run.dir)

    def _keep_announcing(self) -> None:
        while not self._closing.wait(ANNOUNCE_EVERY_S):
            if self._clock.monotonic_s() - self._turn_s < TURN_LIMIT_S:
                self._announce()

    def _announce(self) -> None:
        if not self._is_announcing.acquire(blocking=False):
            return  # a file system that hangs holds one thread, not both
        try:
            self._announce_due_s = self._clock.monotonic_s() + ANNOUNCE_EVERY_S
            watcher = Watcher(self._run.name, (supervised.ROLLBACK,), socket.gethostname(), os.getpid())
            supervised.announce(self._run.dir, watcher)
        except (ControlError, InputError, OSError) as error:
            self._trouble = error
        finally:
            self._is_announcing.release()
