"""What a person asks of a run's supervisor: the way back to a checkpoint. One small file a request in ``control/supervisor/``.

Files are written whole and never replaced, as in ``inbox``. The supervisor remembers a request before it takes the file away, so a kill
at any moment carries it out once. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from trainvitals.clock import Clock, SystemClock
from trainvitals.control import files
from trainvitals.control.audit import append, newest
from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_NAME, MAX_REASON
from trainvitals.control.requests import SOURCES, Answer, Watcher, WatchRequest, name_parts, new_id
from trainvitals.errors import ControlError, InputError

SUPERVISOR_DIR = "supervisor"
ANSWERED_DIR = "answered"
ALIVE_FILE = "supervisor.json"
ROLLBACK = "rollback"
SILENT_AFTER_S = 30.0
MAX_WAITING = 100
MAX_PATH = 4096
#: Records in which a request from elsewhere is looked for: what was written just before a kill is among the newest.
LOOKED_THROUGH = 200
_SKIP = re.compile(r"\d{1,18}:\d{1,18}", re.ASCII)

RunDir = str | os.PathLike[str]


def directory_of(run_dir: RunDir) -> Path:
    """Where the requests lie."""
    return files.control_dir(run_dir) / SUPERVISOR_DIR


def make_directories(run_dir: RunDir) -> None:
    """Make what is missing. Raises ``InputError`` without a run directory, ``ControlError`` when a place is unsafe or refuses."""
    files.make_directories(run_dir)
    files.make_directory(directory_of(run_dir))
    files.make_directory(directory_of(run_dir) / ANSWERED_DIR)


def supervisor_of(run_dir: RunDir) -> Watcher | None:
    """Who supervises this run now; None when nobody does. Raises ``InputError``, ``ControlError``, ``OSError``."""
    path = directory_of(run_dir) / ALIVE_FILE
    if not directory_of(run_dir).is_dir():
        return None
    data = files.read_bytes(path)
    if data is None:
        return None
    age_s = files.file_system_time_s(directory_of(run_dir)) - path.lstat().st_mtime
    return Watcher.from_json(data, str(path)) if age_s <= SILENT_AFTER_S else None


def supervisor_host(run_dir: RunDir) -> str:
    """Host of the supervisor that runs the trainer now; "" when there is none, or when that cannot be seen. Never raises."""
    try:
        known = supervisor_of(run_dir)
    except (InputError, ControlError, OSError):
        return ""
    return "" if known is None else known.host or "an unnamed host"


def ask_rollback(
    run_dir: RunDir, run: str, *, to: str, by: str, reason: str, source: str, skip_samples: str = "", clock: Clock | None = None,
    identity: tuple[str, int] | None = None,
) -> WatchRequest:  # fmt: skip
    """Ask the supervisor to stop the trainer and start it from the checkpoint ``to``; returns the request as it was written.

    skip_samples: ``A:B``, "" = none. What cannot be audited is not asked. identity: (id, issued_at_ns) of a request from elsewhere: asked
    again it is not written again. Raises ``ControlError`` when nobody supervises the run, or by or reason is missing; ``InputError`` when
    there is no run directory.
    """
    by = checked_text("by", by, MAX_NAME)
    reason = checked_text("reason", reason, MAX_REASON)
    to = checked_text("to", to, MAX_PATH)
    checked_text("run", run, MAX_NAME, may_be_empty=True)
    if source not in SOURCES:
        raise ControlError(f"source must be one of {', '.join(SOURCES)}, not {source!r}.")
    if skip_samples and not is_skip(skip_samples):
        raise ControlError(f"The samples to skip are written A:B, two whole numbers, not {skip_samples!r}.")
    make_directories(run_dir)
    identifier, issued_at_ns = identity or (new_id(), (clock or SystemClock()).time_ns())
    request = WatchRequest(
        kind=ROLLBACK, by=by, source=source, data={"to": to, "reason": reason, "skip_samples": skip_samples}, run=run,
        id=identifier, issued_at_ns=issued_at_ns,
    )  # fmt: skip
    if identity is not None and _was_asked(run_dir, request):
        return request
    known = supervisor_of(run_dir)
    if known is None:
        raise ControlError("Nobody supervises this run (python -m trainvitals run -- COMMAND), so nothing was asked.")
    if run and known.run and run != known.run:
        raise ControlError(f"The supervisor here runs {known.run!r}, not {run!r}.")
    directory = directory_of(run_dir)
    asked = {"action": ROLLBACK, "to": to, "reason": reason, "skip_samples": skip_samples, "id": request.id}
    if identity is None or not _was_audited(run_dir, request):
        append(run_dir, "request", by=by, source=source, data=asked, clock=clock, run=run or known.run)
    try:
        if len(waiting(run_dir)) >= MAX_WAITING:
            raise ControlError(f"{MAX_WAITING} requests wait in {directory} already; look after the supervisor of this run.")
        if not files.create(directory / request.name, request.to_json().encode(), files.REQUEST_MODE):
            raise ControlError(f"{directory / request.name} is there already; ask again.")
    except OSError as error:
        raise ControlError(f"Cannot write the request into {directory}: {error.strerror or error}.") from error
    return request


def is_skip(text: str) -> bool:
    """Whether it is ``A:B``, samples to leave out."""
    return _SKIP.fullmatch(text) is not None


def _was_asked(run_dir: RunDir, request: WatchRequest) -> bool:
    """Whether its file waits or was answered: the supervisor writes the answer before it takes the file away."""
    directory = directory_of(run_dir)
    return any(os.path.lexists(place / request.name) for place in (directory, directory / ANSWERED_DIR))


def _was_audited(run_dir: RunDir, request: WatchRequest) -> bool:
    return any(record.kind == "request" and record.data.get("id") == request.id for record in newest(run_dir, LOOKED_THROUGH))


def answer_to(run_dir: RunDir, request: WatchRequest) -> Answer | None:
    """The answer to a request, None when there is none yet. Raises ``InputError``, ``ControlError``, ``OSError``."""
    path = directory_of(run_dir) / ANSWERED_DIR / request.name
    data = files.read_bytes(path)
    return None if data is None else Answer.from_json(data, str(path))


# -- the supervisor ---------------------------------------------------------------------------------------------------


def announce(run_dir: RunDir, watcher: Watcher) -> None:
    """Tell that requests are read here; a file older than ``SILENT_AFTER_S`` tells nothing. Raises ``ControlError``, ``OSError``."""
    files.replace(directory_of(run_dir) / ALIVE_FILE, watcher.to_json().encode(), files.STATUS_MODE, durable=False)


def withdraw(run_dir: RunDir) -> None:
    """Tell that nobody reads them any more; what cannot be told is known by its age."""
    with contextlib.suppress(OSError):
        (directory_of(run_dir) / ALIVE_FILE).unlink(missing_ok=True)


def waiting(run_dir: RunDir) -> list[str]:
    """Names of the requests that wait, oldest first. Raises ``OSError``."""
    with os.scandir(directory_of(run_dir)) as entries:
        names = [entry.name for _, entry in zip(range(10 * MAX_WAITING), entries, strict=False)]
    return sorted(name for name in names if name_parts(name) is not None)


def read(run_dir: RunDir, name: str) -> WatchRequest | None:
    """One request; None when it went away. Raises ``InputError`` for what is none, ``ControlError``, ``OSError``."""
    data = files.read_bytes(directory_of(run_dir) / name)
    if data is None:
        return None
    request = WatchRequest.from_json(data, name)
    if request.name != name:
        raise InputError(f"{name}: the name is not that of the request in it ({request.name}).")
    return request


def settle(run_dir: RunDir, answer: Answer) -> None:
    """Write the answer, then take the request away; done again it does no more. Raises ``ControlError``, ``OSError``."""
    directory = directory_of(run_dir)
    files.replace(directory / ANSWERED_DIR / answer.name, answer.to_json().encode(), files.STATUS_MODE)
    (directory / answer.name).unlink(missing_ok=True)
