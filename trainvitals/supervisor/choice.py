"""Which checkpoint the next start goes on from: the recommended one of those that verify now, looked at once more before it is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainvitals.checkpoints import find, load
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import Unreadable, Vanished, listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace, Stopped
from trainvitals.checkpoints.quick_check import quick_check
from trainvitals.checkpoints.verification import inspect, verify
from trainvitals.clock import Clock
from trainvitals.errors import InputError
from trainvitals.incidents.rollback import Rollback, RollbackInputs, recommend
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

#: Looked at from the newest on, so many more at a time, until one is safe; what lies beyond is older than anybody goes back by itself.
BATCH = 8
MAX_LOOKED_AT = 400
MAX_SAID = 5


@dataclass(frozen=True)
class Choice:
    """report: None = none may be used, for the reason in ``why``. skipped: path -> reason, of newer ones. seen: how many there are.
    trouble: directories that could not be read."""

    report: CheckpointReport | None
    why: str
    skipped: tuple[tuple[str, str], ...] = ()
    seen: int = 0
    trouble: str = ""

    @property
    def step(self) -> int | None:
        return None if self.report is None else self.report.step

    @property
    def sentence(self) -> str:
        """For people: which one and why; the reason names the first that was passed over."""
        if self.report is None:
            return self.why
        level = self.report.level.value if self.report.level is not None else "nothing"
        return f"checkpoint {printable(self.report.path, 300)} (step {self.report.step:,}, {level} verified): {self.why}"


def choose(
    directories: Sequence[str], known: RollbackInputs, store: HashStore, clock: Clock, limit_s: float,
    tell: Callable[[], None] = lambda: None,
) -> Choice:  # fmt: skip
    """``known``: what is known of incidents and starts; its checkpoints are filled in here. ``tell`` is called between two looks."""
    until_s = clock.monotonic_s() + limit_s
    paths, trouble = _paths(directories)
    reports: list[CheckpointReport] = []
    looked = 0
    while True:
        batch = paths[looked : looked + BATCH]
        looked += len(batch)
        reports += [_look(path) for path in batch]
        tell()
        best = recommend(replace(known, checkpoints=reports))
        while best.checkpoint is not None:
            proven = _numbers(_prove(best.checkpoint, store, clock, until_s), clock, until_s)
            if proven.state is CheckpointState.VERIFIED:
                why = _why(best, proven)
                return Choice(proven, why, _skipped(best), len(paths), trouble)
            reports = [proven if one.path == proven.path else one for one in reports]
            best = recommend(replace(known, checkpoints=reports))
        if not batch or looked >= MAX_LOOKED_AT:
            return Choice(None, best.why, tuple(best.rejected.items())[:MAX_SAID], len(paths), trouble)


def named(path: str, store: HashStore, clock: Clock, limit_s: float) -> Choice:
    """The one that a person chose: it must verify, nothing else is asked of it."""
    report = _look(path)
    if report.state is CheckpointState.VERIFIED:
        report = _prove(report, store, clock, clock.monotonic_s() + limit_s)
    if report.state is CheckpointState.VERIFIED:
        return Choice(report, "chosen by a person.", (), 1)
    reason = f" ({report.reasons[0]})" if report.reasons else ""
    return Choice(None, f"{printable(path, 300)} is {report.state.value.replace('_', ' ')}{reason}.", (), 1)


def _paths(directories: Sequence[str]) -> tuple[list[str], str]:
    found: list[str] = []
    troubles: list[str] = []
    for directory in directories:
        if not os.path.isdir(directory):  # noqa: PTH112 - names of any bytes, as in ``checkpoints``
            continue  # no save yet
        try:
            found += reversed(find(directory))
        except InputError as error:
            troubles.append(str(error))
    return found, " ".join(troubles)


def _look(path: str) -> CheckpointReport:
    try:
        return inspect(path, VerificationLevel.STRUCTURE)
    except InputError as error:
        return CheckpointReport(path, None, "unknown", CheckpointState.INCOMPLETE, None, None, 0, 0, (str(error),))


def _prove(report: CheckpointReport, store: HashStore, clock: Clock, until_s: float) -> CheckpointReport:
    """Is it as it was when it was verified? Where nothing ever read it, its content is read now, as far as the time goes."""
    path = os.path.abspath(report.path)  # noqa: PTH100
    left_s = max(1.0, until_s - clock.monotonic_s())
    try:
        quick = quick_check(path, store.load(path), clock, left_s)
    except InputError as error:
        return replace(report, state=CheckpointState.INCOMPLETE, level=None, reasons=(str(error),))
    if quick.state is not CheckpointState.VERIFIED or quick.level is not VerificationLevel.STRUCTURE:
        return quick
    work = Work(clock, Pace(clock, stop=lambda: clock.monotonic_s() >= until_s), store.load(path), keep=lambda record: None)
    work.read_since_ns = clock.time_ns()
    try:
        deep = verify(path, VerificationLevel.CONTENT, work)[0]
    except Stopped:
        return replace(quick, reasons=(*quick.reasons, "its content was not read to the end for lack of time"))
    except InputError as error:
        return replace(report, state=CheckpointState.INCOMPLETE, level=None, reasons=(str(error),))
    if deep.report.state in (CheckpointState.CORRUPT, CheckpointState.INCOMPLETE):
        return deep.report
    return deep.report if deep.report.state is CheckpointState.VERIFIED else quick


def _numbers(proven: CheckpointReport, clock: Clock, until_s: float) -> CheckpointReport:
    """Are its weights numbers? NaN is written and read without a fault, and a start from it dies again: a child samples the values."""
    if proven.state is not CheckpointState.VERIFIED:
        return proven
    findings = Findings()
    limits = load.Limits(seconds=max(1, int(until_s - clock.monotonic_s())), tries_torch=False)
    try:
        load.check(listing(proven.path), findings, limits, stop=lambda: clock.monotonic_s() >= until_s)
    except (Vanished, Unreadable) as error:
        return replace(proven, state=CheckpointState.INCOMPLETE, level=None, reasons=(str(error),))
    return replace(proven, state=CheckpointState.CORRUPT, reasons=findings.reasons) if findings.damaged else proven


def _why(best: Rollback, proven: CheckpointReport) -> str:
    said = best.why
    if proven.level is VerificationLevel.STRUCTURE:
        said += " Its content could not be compared with anything."
    return said


def _skipped(best: Rollback) -> tuple[tuple[str, str], ...]:
    """Newer ones only: older ones need no reason."""
    step = best.checkpoint.step if best.checkpoint is not None and best.checkpoint.step is not None else -1
    newer = [(path, why) for path, why in best.rejected.items() if not why.startswith(("it is older", "it is a copy"))]
    return tuple(newer[:MAX_SAID]) if step >= 0 else ()
