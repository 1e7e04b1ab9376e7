"""Watches the checkpoint directories of a run by scanning them; polling, because inotify sees no writes of other NFS clients."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from trainvitals.checkpoints import discovery, files, life
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished, printable
from trainvitals.checkpoints.inspection import Inspection, look_at, stored_path
from trainvitals.checkpoints.life import Known, Patience
from trainvitals.checkpoints.names import final_name
from trainvitals.checkpoints.save_pauses import SavePauses
from trainvitals.checkpoints.schedule import Candidate
from trainvitals.checkpoints.verifier import Progress, Verifier
from trainvitals.clock import Clock
from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, VerificationLevel

STATE_VERSION = 1
#: Deleted checkpoints that stay known, so that a page can still show where they were.
MAX_DELETED = 100
MAX_KEPT_NAMES = 2_000
#: Clocks of the machines that write checkpoints differ by less.
CLOCK_TOLERANCE_NS = 60 * 10**9


class CheckpointWatcher:
    """Knows every checkpoint in ``directories``; call ``scan`` every ten seconds or so.

    ``errors`` counts directories and checkpoints that could not be read, ``text`` is the newest such sentence ("" when all
    is well again). A directory that is missing for a while loses no report.
    """

    def __init__(
        self, directories: Sequence[str], clock: Clock, patience: Patience | None = None, budget_s: float = 2.0,
        verifier: Verifier | None = None, run: str = "",
    ) -> None:  # fmt: skip
        """``budget_s``: structure looks of one scan stop after this long and go on in the next, newest checkpoint first.

        ``verifier``: looks at the content; without one the level is structure at most. ``run``: whose checkpoints these are.
        """
        self._verifier = verifier
        self._run = run
        self._directories = tuple(os.path.abspath(directory) for directory in directories)  # noqa: PTH100
        self._clock = clock
        self._patience = patience or Patience()
        self._budget_s = budget_s
        self._known: dict[str, Known] = {}
        self._devices: dict[str, int] = {}
        self._wanted: frozenset[str] = frozenset()
        self._pauses = SavePauses()
        self._store_errors = 0
        self._progress_told = (0.0, 0)
        self.errors = 0
        self.text = ""
        #: What is being asked of the file system now, or was last: who waits for a scan that hangs can say where.
        self.where = ""

    @property
    def reports(self) -> list[CheckpointReport]:
        """All known checkpoints, newest first."""
        return [known.report for known in self._ordered(self._known.values())]

    @property
    def progress(self) -> Progress | None:
        """Of the look at a content that is running."""
        return self._verifier.progress if self._verifier is not None else None

    def advise(self, wanted: Collection[str], step_s: float | None) -> None:
        """What whoever watches the run knows. wanted: paths (as reported) whose content is looked at first; step_s: usual seconds
        of a step, None = not known. May be called while a scan runs."""
        self._wanted = frozenset(wanted)
        self._pauses.step_s = step_s

    def scan(self) -> list[CheckpointReport]:
        """Look at everything once; returns the reports that changed since the last scan, newest first. Never raises."""
        self.text = ""
        before = {path: known.report for path, known in self._known.items()}
        listings = self._listings()
        newest_ns = self._newest_ns(listings.values())
        for path, seen in listings.items():
            try:
                self._take(path, seen, is_newest=_is_newest(seen, newest_ns))
            except Exception as error:  # noqa: BLE001 (one checkpoint that was made to break a look must not hide the others)
                self._trouble(f"{printable(path)}: {files.fault(error)}.")
        self._judge(listings, newest_ns)
        if self._verifier is not None:
            self._deepen(self._verifier, newest_ns)
        self._forget()
        return [known.report for known in self._ordered(self._known.values()) if before.get(known.path) != known.report]

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "version": STATE_VERSION,
            "errors": self.errors,
            "pauses": self._pauses.to_state(),
            "devices": self._devices,
            "known": [_known_to_state(known) for known in self._known.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where ``to_state`` was taken. Standing still is counted anew: nobody watched in between."""
        if state.get("version") != STATE_VERSION:
            return
        self.errors = int(state.get("errors", 0))
        self._pauses.restore(state.get("pauses", ()))
        self._devices = {str(path): int(device) for path, device in state.get("devices", {}).items()}
        now_s = self._clock.monotonic_s()
        for stored in state["known"]:
            known = _known_from_state(stored, now_s)
            if any(known.path == directory or known.path.startswith(directory + os.sep) for directory in self._directories):
                self._known[known.path] = known

    def _newest_ns(self, listings: Iterable[Listing]) -> int:
        """When the one changed last was changed. A time in the future is of a clock that was wrong, unless all are."""
        times_ns = [seen.modified_at_ns or 0 for seen in listings]
        possible_ns = [time_ns for time_ns in times_ns if time_ns <= self._clock.time_ns() + CLOCK_TOLERANCE_NS]
        return max(possible_ns or times_ns, default=0)

    def _listings(self) -> dict[str, Listing]:
        """Listings of all checkpoints that are there; what is not there any more is told so on the way."""
        listings: dict[str, Listing] = {}
        gone: set[str] = set()
        for directory in self._directories:
            self.where = printable(directory)
            try:
                paths = discovery.find_now(directory)
            except Vanished:
                self._trouble(f"There is no directory {printable(directory)}.")
                continue
            except Unreadable as error:
                self._trouble(f"Cannot read {error}.")
                continue
            except Exception as error:  # noqa: BLE001 (one directory must not hide the others)
                self._trouble(f"{printable(directory)}: {files.fault(error)}.")
                continue
            if self._is_unmounted(directory, is_empty=not paths):
                self._trouble(f"{printable(directory)} is empty and on another file system than before: is it mounted?")
                continue
            known_here = [path for path in self._known if path.startswith(directory + os.sep) and path not in paths]
            for path in (*paths, *self._without_unmounted(known_here, paths)):
                self.where = printable(path)
                try:
                    listings[path] = files.listing(path)
                except Vanished:
                    # Watched directories may lie in each other: it is gone once.
                    if path in self._known and path not in gone:
                        gone.add(path)
                        life.absent(self._known[path])
                except Unreadable as error:
                    self._trouble(f"Cannot read {error}.")
                    self._known.setdefault(path, Known(path, _unreadable_report(path, str(error))))
                except Exception as error:  # noqa: BLE001
                    self._trouble(f"{printable(path)}: {files.fault(error)}.")
        return listings

    def _without_unmounted(self, known: list[str], found: list[str]) -> list[str]:
        """Without those in a directory between that is empty now and was on another file system."""
        parents = {os.path.dirname(path) for path in found}  # noqa: PTH120
        for parent in parents:
            self._is_unmounted(parent, is_empty=False)
        lost = {parent for path in known if (parent := os.path.dirname(path)) not in parents}  # noqa: PTH120
        unmounted = {parent for parent in lost if os.path.isdir(parent) and self._is_unmounted(parent, is_empty=True)}  # noqa: PTH112
        for parent in sorted(unmounted):
            self._trouble(f"{printable(parent)} is empty and on another file system than before: is it mounted?")
        return [path for path in known if os.path.dirname(path) not in unmounted]  # noqa: PTH120

    def _is_unmounted(self, directory: str, is_empty: bool) -> bool:
        """An empty directory where a file system was mounted before: nothing was deleted there."""
        try:
            device = os.stat(directory).st_dev  # noqa: PTH116
        except OSError:
            return True
        if not is_empty:
            self._devices[directory] = device
        return self._devices.get(directory, device) != device

    def _take(self, path: str, seen: Listing, is_newest: bool) -> None:
        known = self._known.get(path)
        now_s = self._clock.monotonic_s()
        if known is not None and known.signature == seen.signature and not seen.vanished:
            known.scans += 1
            return
        presence = look_at(seen, VerificationLevel.PRESENCE)
        if known is None or known.report.state is CheckpointState.DELETED:
            anew = self._known[path] = life.first_sight(path, presence, is_newest, now_s)
            if known is not None:  # deleted and written again
                anew.rest_until_s, anew.slow_looks = known.rest_until_s, known.slow_looks
        else:
            known.absent_scans = 0
            stood_still_s, was_writing = now_s - known.since_s, known.report.state is CheckpointState.WRITING
            life.changed(known, presence, is_newest, now_s)
            if was_writing and known.report.state in (CheckpointState.WRITING, CheckpointState.COMPLETE):
                self._pauses.seen(stood_still_s)

    def _judge(self, listings: Mapping[str, Listing], newest_ns: int) -> None:
        started_s = self._clock.monotonic_s()
        here = self._ordered(known for path, known in self._known.items() if path in listings)
        # What could not be read is tried again last: it may take all the time each time.
        for known in sorted(here, key=lambda known: known.judged == known.signature):
            if self._clock.monotonic_s() - started_s > self._budget_s:
                return
            try:
                self._judge_one(known, listings[known.path], newest_ns)
            except Exception as error:  # noqa: BLE001
                self._trouble(f"{printable(known.path)}: {files.fault(error)}.")

    def _judge_one(self, known: Known, seen: Listing, newest_ns: int) -> None:
        self.where = printable(known.path)
        now_s = self._clock.monotonic_s()
        if not life.wants_judgement(known, now_s, self._patience):
            return
        inspection = known.pending or self._look(known, seen)
        if inspection.has_vanished or self._has_changed(known):
            # The verdict is about files that are no more as they were: look again when they stand still.
            known.scans, known.since_s, known.pending = 1, now_s, None
            return
        if inspection.is_unreadable:
            self._trouble(f"{printable(known.path)}: {next(iter(inspection.report.reasons), 'cannot be read')}.")
        life.judged(known, inspection, _is_newest(seen, newest_ns), now_s, self._pauses.patience(self._patience))

    def _look(self, known: Known, seen: Listing) -> Inspection:
        started_s = self._clock.monotonic_s()
        try:
            return look_at(seen, VerificationLevel.STRUCTURE, self._run)
        finally:
            now_s = self._clock.monotonic_s()
            life.took(known, now_s - started_s, now_s)

    def _deepen(self, verifier: Verifier, newest_ns: int) -> None:
        """Take what looks at the content found, and offer what there is for the next."""
        self._take_outcomes(verifier, newest_ns)
        candidates = [
            Candidate(
                one.path, one.signature, one.report, one.looked, one.looked_at_ns, one.could_not_read, one.round_ns,
                one.loaded,
            )
            for one in self._ordered(self._known.values())
            if one.signature and one.judged == one.signature
        ]  # fmt: skip
        job = verifier.offer(candidates, self._wanted)
        if job is None:
            self._tell_progress(verifier.progress)
        else:
            self._progress_told = (self._clock.monotonic_s(), 0)
            life.looking(self._known[job.path], job)
            self._take_outcomes(verifier, newest_ns)
        if verifier.store.errors != self._store_errors:
            self._store_errors = verifier.store.errors
            self._trouble(verifier.store.text)

    def _tell_progress(self, progress: Progress | None) -> None:
        """In steps of ten percent, at most once a minute: each is a change of the report."""
        if progress is None or progress.path not in self._known or not progress.total_bytes:
            return
        percent = min(99, progress.done_bytes * 100 // progress.total_bytes) // 10 * 10
        now_s = self._clock.monotonic_s()
        told_s, told = self._progress_told
        if percent > told and now_s - told_s >= 60.0:
            self._progress_told = (now_s, percent)
            life.progressed(self._known[progress.path], percent)

    def _take_outcomes(self, verifier: Verifier, newest_ns: int) -> None:
        for outcome in verifier.take():
            if outcome.error:
                self._trouble(f"The content could not be looked at: {outcome.error}.")
            known = self._known.get(outcome.job.path)
            if known is not None:
                is_newest = (known.report.modified_at_ns or 0) >= newest_ns
                life.looked(known, outcome, is_newest, self._clock.monotonic_s(), self._pauses.patience(self._patience))

    def _has_changed(self, known: Known) -> bool:
        try:
            return files.listing(known.path).signature != known.signature
        except (Vanished, Unreadable):
            return True

    def _forget(self) -> None:
        deleted = [known for known in self._known.values() if known.report.state is CheckpointState.DELETED]
        # The name of a save in progress: that it is gone is told once; the checkpoint goes on under its own name.
        for known in [known for known in deleted if known.absent_scans > 2 and _is_unfinished_name(known.path)]:
            del self._known[known.path]
            deleted.remove(known)
        for known in self._ordered(deleted)[MAX_DELETED:]:
            del self._known[known.path]
            if self._verifier is not None:
                self._verifier.store.forget(known.path)

    def _trouble(self, text: str) -> None:
        self.errors += 1
        self.text = text

    @staticmethod
    def _ordered(known: Any) -> list[Known]:
        def key(one: Known) -> tuple[int, int, str]:
            return (one.report.modified_at_ns or 0, one.report.step or 0, one.path)

        return sorted(known, key=key, reverse=True)


def _is_newest(seen: Listing, newest_ns: int) -> bool:
    """By modification of the files, not by step: after a restart from an older checkpoint the higher steps are the old ones."""
    return seen.modified_at_ns is None or seen.modified_at_ns >= newest_ns


def _is_unfinished_name(path: str) -> bool:
    name = os.path.basename(path)  # noqa: PTH119
    return final_name(name) != name


def _unreadable_report(path: str, text: str) -> CheckpointReport:
    return CheckpointReport(
        stored_path(path), None, "unknown", CheckpointState.UNKNOWN_FORMAT, None, None, 0, 0, (f"cannot be read: {text}",)
    )


def _known_to_state(known: Known) -> dict[str, Any]:
    return {
        "path": known.path,
        "report": report_to_mapping(known.report),
        "signature": known.signature,
        "names": sorted(known.names)[:MAX_KEPT_NAMES],
        "judged": known.judged,
        "was_complete": known.was_complete,
        "was_verified": known.was_verified,
        "is_unreadable": known.is_unreadable,
        "absent_scans": known.absent_scans,
        "looked": known.looked,
        "looked_at_ns": known.looked_at_ns,
        "could_not_read": known.could_not_read,
        "round_ns": known.round_ns,
        "loaded": known.loaded,
        "state_signature": known.state_signature,
    }


def _known_from_state(stored: Mapping[str, Any], now_s: float) -> Known:
    return Known(
        path=stored["path"],
        report=report_from_mapping(stored["report"]),
        signature=stored["signature"],
        names=frozenset(stored["names"]),
        since_s=now_s,
        judged=stored["judged"],
        was_complete=stored["was_complete"],
        was_verified=stored["was_verified"],
        is_unreadable=stored["is_unreadable"],
        absent_scans=stored["absent_scans"],
        looked=stored.get("looked", ""),
        looked_at_ns=stored.get("looked_at_ns", 0),
        could_not_read=stored.get("could_not_read", False),
        round_ns=stored.get("round_ns", 0),
        loaded=stored.get("loaded", ""),
        state_signature=stored.get("state_signature", ""),
    )


def report_to_mapping(report: CheckpointReport) -> dict[str, Any]:
    """JSON values only, named as the fields of the report."""
    values = {declared.name: getattr(report, declared.name) for declared in fields(report)}
    return values | {
        "state": report.state.value,
        "level": report.level.value if report.level is not None else None,
        "reasons": list(report.reasons),
        "parallel": dict(report.parallel),
        "proof": report.proof.value,
    }


def report_from_mapping(values: Mapping[str, Any]) -> CheckpointReport:
    """The inverse of ``report_to_mapping``."""
    return CheckpointReport(
        **{
            **values,
            "state": CheckpointState(values["state"]),
            "level": VerificationLevel(values["level"]) if values["level"] is not None else None,
            "reasons": tuple(values["reasons"]),
            "proof": ContentProof(values.get("proof", "")),
        }
    )
