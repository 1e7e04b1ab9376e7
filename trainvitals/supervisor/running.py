"""One running start of the trainer: what it tells, whether it hangs, whether it went on from where it was told. Ends it when asked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.control import ControlStatus, read_request, read_status
from trainvitals.control.group import PARKED_END
from trainvitals.errors import ControlError, InputError
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import process
from trainvitals.supervisor.exits import LEFT_OVER
from trainvitals.supervisor.history import LOGS_DIR, Start
from trainvitals.supervisor.process import Process
from trainvitals.supervisor.progress import Progress
from trainvitals.supervisor.recovery import QUEUED
from trainvitals.supervisor.road import Road

EXITS_DIR = "logs/exits"
STATUS_EVERY_S = 2.0
#: A trainer that was killed must be gone by then, or its keeper is.
GONE_S = 5.0
#: A heartbeat that has not changed for so long says nothing of now.
HEARTBEAT_S = 60.0
NOBODY = Process(0, 1)
#: Ends after which nothing of the trainer has anything to do; after "finished" it may still evaluate or upload.
GOOD_BYES = ("stopped", PARKED_END)
_WAITING = frozenset({"paused", "pausing", "resuming", "checkpointing", "stopping"})


def log_of(run_dir: str, number: int) -> Path:
    """``logs/attempt-00003.log``: stdout and stderr of one start."""
    return Path(run_dir) / LOGS_DIR / f"attempt-{number:05d}.log"


def exit_file_of(run_dir: str, number: int) -> Path:
    """Where the keeper writes how the trainer ended."""
    return Path(run_dir) / EXITS_DIR / f"attempt-{number:05d}.json"


def find_again(start: Start, mark: str) -> tuple[Process, str]:
    """(what a supervisor before this one started, its mark). mark: of the run. A process that is gone stands for what is not found."""
    own = Process(start.pid, start.began) if start.pid else NOBODY
    whole = f"{mark}/{start.number}."
    is_alive = process.is_alive(own)
    told = process.mark_in(own.pid) if is_alive else ""
    if is_alive and (not told or told.endswith(f"/{start.number}.")):
        return own, told or whole  # the run directory may have had another path then
    found = process.session_leader([pid for pid, of in process.members(whole).items() if of == whole])
    return found or (NOBODY if is_alive else own), whole


class Running:
    """``look`` once a turn, then ask. ``start`` is kept up to date."""

    def __init__(
        self, run: RunSettings, settings: SupervisorSettings, start: Start, own: Process, mark: str, clock: Clock, road: Road
    ) -> None:
        self._road = road
        self._run, self._settings, self._clock = run, settings, clock
        self.start, self.process, self.mark = start, own, mark
        self.progress = Progress(
            run.dir, log_of(run.dir, start.number), clock, hook_offset=start.hook_offset,
            log_format=run.log_format, timezone=run.log_timezone,
        )  # fmt: skip
        self._since_s = clock.monotonic_s()
        self._status: ControlStatus | None = None
        self._status_due_s = 0.0
        self._beat = (0, 0)
        self._beat_s = -HEARTBEAT_S
        self._is_own_beat = False
        self._bye_s: float | None = None
        self._kill_at_s: float | None = None
        self._was_killed = False

    def look(self) -> bool:
        """Read what is new; whether a mark of its life is (first step, resumed, …)."""
        progress, before = self.progress, self.start
        progress.look()
        self._heard()  # all the time: whether a heartbeat changes is known only by whoever saw the one before
        self.start = replace(
            before,
            first_step=progress.first_step if progress.first_step is not None else before.first_step,
            last_step=max((one for one in (progress.last_step, before.last_step) if one is not None), default=None),
            opened_ns=before.opened_ns or progress.opened_ns,
            loaded_ns=before.loaded_ns or progress.loaded_ns,
            first_step_ns=before.first_step_ns or progress.first_step_ns,
            nonfinite_step=progress.nonfinite_step,
        )
        self.start = self._road.look(self.start)
        if self.start.road in QUEUED and self.start.running_ns is None:
            self._since_s = self._clock.monotonic_s()  # a queue is no hang
        return replace(self.start, last_step=None) != replace(before, last_step=None)

    @property
    def is_alive(self) -> bool:
        return process.is_alive(self.process)

    @property
    def is_ending(self) -> bool:
        return self._kill_at_s is not None

    @property
    def status(self) -> ControlStatus | None:
        """What the trainer's control client said last, however old; None when nothing."""
        with contextlib.suppress(InputError, ControlError, OSError):
            self._status = read_status(self._run.dir)
        return self._status

    def must_end(self) -> tuple[str, str, str] | None:
        """(why, sentence, severity) when it must be ended now: it hangs, or it said good-bye and some of it stays."""
        if why := self.hangs():
            return "hang", f"the trainer hangs: {why}; ending it", "critical"
        end, now_s = self.progress.end_reason, self._clock.monotonic_s()
        if end not in GOOD_BYES:
            self._bye_s = None
            return None
        self._bye_s = now_s if self._bye_s is None else self._bye_s
        if now_s - self._bye_s <= self._settings.grace_s:
            return None
        return (
            LEFT_OVER,
            f"the trainer said that it {'parked' if end == PARKED_END else 'stopped'}, and some of it is still there: ending it",
            "warning",
        )

    def hangs(self) -> str:
        """Why it is taken to hang, "" = it is not. A pause is no hang; a start that was adopted has its time anew."""
        now_s = self._clock.monotonic_s()
        if self.start.first_step is None:
            silent_s, limit_s = now_s - self._since_s, self._settings.first_step_s
            what = "no first step"
        else:
            silent_s, limit_s = now_s - max(self.progress.news_s, self._since_s), self._settings.hang_s
            what = f"no step after step {self.start.last_step:,}"
        if silent_s <= limit_s:
            return ""
        if self._is_waiting():
            self.progress.news_s = self._since_s = now_s
            return ""
        return f"{what} for {silent_s:.0f} s"

    def _is_waiting(self) -> bool:
        status = self._heard()
        if status is not None:
            return status.state in _WAITING
        # Its status may not reach the disk, which is no reason to end it: what a pause stopped gets nowhere, alive or not.
        last = self._status
        return last is not None and self._is_own_beat and last.state == "paused" and not last.ended and self._is_to_pause()

    def _is_to_pause(self) -> bool:
        try:
            request = read_request(self._run.dir)
        except (InputError, ControlError, OSError):
            return False
        return request is not None and request.desired == "paused"

    def obeys(self) -> bool:
        """Whether the trainer trains and hears what the control file asks."""
        status = self._heard()
        return status is not None and status.state == "running"

    def _heard(self) -> ControlStatus | None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._status_due_s:
            self._status_due_s = now_s + STATUS_EVERY_S
            with contextlib.suppress(InputError, ControlError, OSError):  # what was heard last grows old by itself
                self._hear(read_status(self._run.dir), now_s)
        is_fresh = now_s - self._beat_s < HEARTBEAT_S
        return self._status if is_fresh and self._status is not None and not self._status.ended else None

    def _hear(self, status: ControlStatus | None, now_s: float) -> None:
        """A heartbeat lives while it changes: the trainer's clock may be another host's, or have been set. Only the first one is told
        by its time, as an earlier start may have left it."""
        self._status = status
        if status is None or (beat := (status.heartbeat_seq, status.heartbeat_ns)) == self._beat:
            return
        is_first, self._beat = self._beat == (0, 0), beat
        is_recent = abs(self._clock.time_ns() - status.heartbeat_ns) < HEARTBEAT_S * 1e9
        if not is_first or is_recent:
            self._beat_s = now_s
        self._is_own_beat = self._is_own_beat or not is_first

    def went_elsewhere(self) -> tuple[str, bool]:
        """(sentence, whether it lies behind what it was told); "" while that is not known, or all is well."""
        told, start = self.start.resume_step, self.start
        resumed = self.progress.resumed_from
        if told is None or (resumed is None and start.first_step is None):
            return "", False
        if resumed is not None and resumed != told:
            return f"the trainer was told checkpoint {told:,} and resumed from step {resumed:,}", resumed < told
        if resumed is None and start.first_step is not None and start.first_step < told:
            return f"the trainer was told checkpoint {told:,} and began at step {start.first_step:,}", True
        return "", False

    def end(self, why: str) -> None:
        """SIGTERM now, SIGKILL after the grace; ``push`` carries on. Asked again it changes nothing."""
        if self._kill_at_s is None:
            self.start = replace(self.start, ended_by_us=why)
            self._kill_at_s = self._clock.monotonic_s() + self._settings.grace_s
            self._road.ask_to_end(self.process)

    def push(self) -> None:
        """The next means, when its time has come."""
        if self._kill_at_s is None or self._clock.monotonic_s() < self._kill_at_s:
            return
        if self._road.is_outside:
            self._road.ask_to_end(self.process)  # its job is Slurm's to end; a follower that is killed would end nothing
        elif not self._was_killed:
            self._was_killed = True
            process.kill_all(self.process, self.mark)
        else:
            process.kill_all(None, self.mark)
            process.kill_keeper(self.process)
        self._kill_at_s = self._clock.monotonic_s() + GONE_S

    def finish(self, say: Callable[[str], None]) -> int | None:
        """After its end: read the rest, end what it left behind, and return its exit code (None = not known)."""
        for _ in range(1_000):
            if not self.progress.look():
                break
        self.look()
        self.progress.close()
        left = process.kill_all(None, self.mark)
        if left:
            say(f"{left} processes of the trainer were left behind and were killed")
        return process.exit_code(self.process, exit_file_of(self._run.dir, self.start.number))
