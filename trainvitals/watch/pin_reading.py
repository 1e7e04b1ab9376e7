"""Reads the content of pinned checkpoints whose original is gone: the look at the checkpoint directories sees no pins.

What only its structure was verified of is read at once, and everything again after days, as other checkpoints are. One that stands
beside damaged numbers is loaded, once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainvitals.checkpoints import low_priority
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.pinning import original_path
from trainvitals.checkpoints.schedule import DAY_NS, RETRY_NS
from trainvitals.checkpoints.verification import verify
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, VerificationLevel

_DEEP = (VerificationLevel.CONTENT, VerificationLevel.LOAD)


@dataclass(frozen=True)
class PinRead:
    """What a look at a pin's content ended with. report: None = it could not be looked at, ``problem`` says why."""

    path: str
    report: CheckpointReport | None
    problem: str = ""


class PinReading:
    """One look at a time; ``poll`` never waits. hashes: directory of the hashes that the watchdog keeps."""

    def __init__(self, hashes: str, run: str, mb_per_s: float, recheck_days: float, *, in_thread: bool = True) -> None:
        self._hashes, self._run, self._mb_per_s, self._recheck_days = hashes, run, mb_per_s, recheck_days
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._done: list[PinRead] = []
        self._running = ""
        self._again_ns: dict[str, int] = {}
        self._loaded: set[str] = set()

    def poll(
        self, pins: Mapping[str, CheckpointReport], now_ns: int, *, is_urgent: bool, to_load: Collection[str] = ()
    ) -> list[PinRead]:
        """Looks that have ended. pins: path -> what is known of each whose original is gone. is_urgent: at full speed. to_load:
        paths of those whose bytes are not enough."""
        with self._lock:
            done, self._done = self._done, []
            is_running = bool(self._running)
        self._again_ns = {path: time_ns for path, time_ns in self._again_ns.items() if path in pins}
        for one in done:
            self._again_ns[one.path] = self._next_ns(one.report, now_ns)
        due = [path for path, report in pins.items() if now_ns >= self._again_ns.get(path, self._first_ns(report))]
        self._loaded &= set(pins)
        unproven = [path for path in to_load if path in pins and path not in self._loaded]
        if unproven and not is_running:
            self._loaded.add(unproven[0])
            self._start(unproven[0], 0.0, VerificationLevel.LOAD)
        elif due and not is_running:
            is_loaded = pins[due[0]].level is VerificationLevel.LOAD
            level = VerificationLevel.LOAD if is_loaded else VerificationLevel.CONTENT
            self._start(due[0], 0.0 if is_urgent else self._mb_per_s, level)
        return done

    def look_again(self, path: str) -> None:
        """Its files were written again: what was read of them counts no longer."""
        self._again_ns.pop(path, None)
        self._loaded.discard(path)

    def _first_ns(self, report: CheckpointReport) -> int:
        if report.level not in _DEEP or report.verified_at_ns is None:
            return 0
        return self._next_ns(report, report.verified_at_ns)

    def _next_ns(self, report: CheckpointReport | None, now_ns: int) -> int:
        if report is None:
            return now_ns + RETRY_NS
        return now_ns + round(self._recheck_days * DAY_NS) if self._recheck_days > 0 else 2**63

    def _start(self, path: str, mb_per_s: float, level: VerificationLevel) -> None:
        self._running = path
        if self._in_thread:
            threading.Thread(target=self._look, args=(path, mb_per_s, level), name="pin-content", daemon=True).start()
        else:
            self._look(path, mb_per_s, level)

    def _look(self, path: str, mb_per_s: float, level: VerificationLevel) -> None:
        try:
            if self._in_thread:
                low_priority.lower()
            result = PinRead(path, self._read(path, mb_per_s, level))
        except InputError as error:
            result = PinRead(path, None, str(error))
        except Exception as error:  # noqa: BLE001 (a fault must not end the thread: it is told, and tried again)
            result = PinRead(path, None, f"{type(error).__name__}: {error}")
        with self._lock:
            self._done.append(result)
            self._running = ""

    def _read(self, path: str, mb_per_s: float, level: VerificationLevel) -> CheckpointReport:
        clock, store = SystemClock(), HashStore(self._hashes)
        record = store.load(path)
        if not record.files:  # the same files under the name that the trainer gave them
            record = HashRecord(path, dict(store.load(original_path(path)).files))
        work = Work(
            clock, Pace(clock, mb_per_s), record, keeps_hashes=True, read_since_ns=clock.time_ns(), keep=store.save, run=self._run
        )
        return verify(path, level, work)[0].report
