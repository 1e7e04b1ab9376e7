"""The directory of requests: whoever asks puts a file there, the run's watchdog reads, answers and takes it away.

Files are written whole and never replaced; links, pipes and what is too large are never read. A request is carried out once: the
watchdog remembers it in the same transaction as what it did, and takes the file away afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainvitals.clock import Clock, SystemClock
from trainvitals.control import files
from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_NAME
from trainvitals.control.requests import MAX_KIND, SOURCES, Answer, Watcher, WatchRequest, name_parts, new_id
from trainvitals.errors import ControlError, InputError

REQUESTS_DIR = "requests"
ANSWERED_DIR = "answered"
WATCHER_FILE = "watcher.json"
#: A watchdog tells every few seconds that it reads; after this it does not.
SILENT_AFTER_S = 30.0
#: More requests than this wait for nobody.
MAX_WAITING = 1_000
#: Answers kept, newest.
MAX_ANSWERED = 1_000
#: Names looked at in one listing.
MAX_NAMES = 10_000

RunDir = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Listing:
    """names: of requests, oldest first. foreign: how many other files lie there. is_cut: there are more than were looked at."""

    names: tuple[str, ...] = ()
    foreign: int = 0
    is_cut: bool = False


def requests_dir(run_dir: RunDir) -> Path:
    """Where the requests of a run lie."""
    return files.control_dir(run_dir) / REQUESTS_DIR


def make_directories(run_dir: RunDir) -> None:
    """Make what is missing. Raises ``InputError`` without a run directory, ``ControlError`` when a place is unsafe or refuses."""
    files.make_directories(run_dir)
    files.make_directory(requests_dir(run_dir))
    files.make_directory(requests_dir(run_dir) / ANSWERED_DIR)


# -- those who ask ----------------------------------------------------------------------------------------------------


def submit(
    run_dir: RunDir, run: str, *, kind: str, by: str, source: str, data: dict[str, Any], clock: Clock | None = None,
    audit: Callable[[WatchRequest], None] | None = None,
) -> WatchRequest:  # fmt: skip
    """Ask the watchdog of ``run_dir`` for something; returns the request as it was written.

    Raises ``ControlError`` when nobody reads it, the watchdog there does not know the kind, the place is unsafe or full, or ``by``
    is missing; ``InputError`` when there is no run directory. audit: called before the file is written; what it raises ends this.
    """
    by = checked_text("by", by, MAX_NAME)
    checked_text("kind", kind, MAX_KIND)
    checked_text("run", run, MAX_NAME, may_be_empty=True)
    if source not in SOURCES:
        raise ControlError(f"source must be one of {', '.join(SOURCES)}, not {source!r}.")
    now_ns = (clock or SystemClock()).time_ns()
    request = WatchRequest(kind=kind, by=by, source=source, data=data, run=run, id=new_id(), issued_at_ns=now_ns)
    text = request.to_json()
    make_directories(run_dir)
    if objection := why_not(run_dir, run, kind):
        raise ControlError(objection)
    directory = requests_dir(run_dir)
    try:
        if len(listing(run_dir).names) >= MAX_WAITING:
            raise ControlError(f"{MAX_WAITING:,} requests wait in {directory} already; look after the watchdog of this run.")
        if audit is not None:
            audit(request)
        if not files.create(directory / request.name, text.encode(), files.REQUEST_MODE):
            raise ControlError(f"{directory / request.name} is there already; ask again.")
    except OSError as error:
        raise ControlError(f"Cannot write the request into {directory}: {error.strerror or error}.") from error
    return request


def why_not(run_dir: RunDir, run: str, kind: str) -> str:
    """Why nobody would carry out a request of this kind here, as a sentence; "" when somebody would."""
    directory = requests_dir(run_dir)
    start = f"Nobody watches this run, so nothing was asked. Start it: python -m trainvitals watch --run {run or 'RUN'}"
    try:
        data = files.read_bytes(directory / WATCHER_FILE)
        if data is None:
            return start
        age_s = files.file_system_time_s(directory) - (directory / WATCHER_FILE).lstat().st_mtime
        watcher = Watcher.from_json(data, str(directory / WATCHER_FILE))
    except FileNotFoundError:
        return start
    except (ControlError, InputError) as error:
        return str(error)
    except OSError as error:
        return f"Cannot read {directory / WATCHER_FILE}: {error.strerror or error}."
    if age_s > SILENT_AFTER_S:
        return f"{start} (the last watchdog here, process {watcher.pid} on {watcher.host}, was heard of {age_s:.0f} s ago)."
    if run and watcher.run and run != watcher.run:
        return f"The watchdog here watches the run {watcher.run!r}, not {run!r}."
    if kind not in watcher.kinds:
        return f"The watchdog here does not know requests of the kind {kind!r}; it is older than this program: start it anew."
    return ""


def watcher_of(run_dir: RunDir) -> Watcher | None:
    """What the watchdog here said of itself last; None when it said nothing. Raises ``InputError``, ``ControlError``, ``OSError``."""
    path = requests_dir(run_dir) / WATCHER_FILE
    data = files.read_bytes(path)
    return None if data is None else Watcher.from_json(data, str(path))


def answer_to(run_dir: RunDir, request: WatchRequest) -> Answer | None:
    """The answer to a request, None when there is none yet. Raises ``InputError``, ``ControlError``, ``OSError``."""
    path = requests_dir(run_dir) / ANSWERED_DIR / request.name
    data = files.read_bytes(path)
    return None if data is None else Answer.from_json(data, str(path))


def was_put(run_dir: RunDir, identifier: str) -> bool:
    """Whether the request of this id waits here or was answered. Raises ``ControlError``, ``OSError``."""
    places = (requests_dir(run_dir), requests_dir(run_dir) / ANSWERED_DIR)
    return any((name_parts(name) or (0, ""))[1] == identifier for place in places for name in _listing(place).names)


def put(run_dir: RunDir, request: WatchRequest) -> None:
    """Put a request that came by another road among those that wait, once. Raises ``ControlError`` when too many wait or the place is
    unsafe, ``InputError`` without a run directory, ``OSError``."""
    make_directories(run_dir)
    directory = requests_dir(run_dir)
    if len(listing(run_dir).names) >= MAX_WAITING:
        raise ControlError(f"{MAX_WAITING:,} requests wait in {directory} already; look after the watchdog of this run.")
    files.create(directory / request.name, request.to_json().encode(), files.REQUEST_MODE)


# -- the watchdog -----------------------------------------------------------------------------------------------------


def announce(run_dir: RunDir, watcher: Watcher) -> None:
    """Tell that the requests here are read. Raises as ``make_directories``, and ``OSError``."""
    make_directories(run_dir)
    files.replace(requests_dir(run_dir) / WATCHER_FILE, watcher.to_json().encode(), files.STATUS_MODE, durable=False)


def withdraw(run_dir: RunDir) -> None:
    """Tell that nobody reads them any more; what cannot be told is known by its age."""
    with contextlib.suppress(OSError):
        (requests_dir(run_dir) / WATCHER_FILE).unlink(missing_ok=True)


def listing(run_dir: RunDir) -> Listing:
    """What lies there, without opening any of it. Raises ``ControlError`` for an unsafe place, ``OSError``."""
    return _listing(requests_dir(run_dir))


def read(run_dir: RunDir, name: str) -> WatchRequest | None:
    """One request; None when it went away. Raises ``InputError`` for what is none, ``ControlError``, ``OSError``."""
    path = requests_dir(run_dir) / name
    data = files.read_bytes(path)
    if data is None:
        return None
    request = WatchRequest.from_json(data, name)
    if request.name != name:
        raise InputError(f"{name}: the name is not that of the request in it ({request.name}).")
    return request


def age_s(run_dir: RunDir, name: str) -> float:
    """Seconds since a request was put here, by the file system's own clock. Raises ``ControlError``, ``OSError``."""
    directory = requests_dir(run_dir)
    return files.file_system_time_s(directory) - (directory / name).lstat().st_mtime


def settle(run_dir: RunDir, answer: Answer) -> None:
    """Write the answer, then take the request away; done again it does no more. Raises ``ControlError``, ``OSError``."""
    directory = requests_dir(run_dir)
    files.make_directory(directory / ANSWERED_DIR)
    place = directory / ANSWERED_DIR / answer.name
    if place.is_symlink() or place.is_dir():
        _clear(place)
    files.replace(place, answer.to_json().encode(), files.STATUS_MODE)
    take_away(run_dir, answer.name)


def take_away(run_dir: RunDir, name: str) -> None:
    """Remove what lies under a request's name. Raises ``OSError``."""
    _clear(requests_dir(run_dir) / name)


def prune(run_dir: RunDir) -> None:
    """Keep the newest answers. Raises ``ControlError``, ``OSError``."""
    directory = requests_dir(run_dir) / ANSWERED_DIR
    for name in _listing(directory).names[:-MAX_ANSWERED]:
        _clear(directory / name)


def answered(run_dir: RunDir) -> list[Answer]:
    """All answers that are kept, oldest first; unreadable ones are left out. Never raises for what the files hold."""
    directory = requests_dir(run_dir) / ANSWERED_DIR
    found = []
    try:
        names = _listing(directory).names
    except (ControlError, OSError):
        return []
    for name in names:
        try:
            data = files.read_bytes(directory / name)
            if data is not None:
                found.append(Answer.from_json(data, name))
        except (ControlError, InputError, OSError):
            continue
    return found


def _clear(path: Path) -> None:
    """Free a name. A directory with something in it is no request: it gets a hidden name and keeps what is in it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if not path.is_dir():
            raise
        try:
            path.rmdir()
        except OSError as why:
            if why.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise why from error
            path.rename(path.with_name(f".no-request.{os.urandom(8).hex()}"))


def _listing(directory: Path) -> Listing:
    try:
        files.check_directory(directory)
        names, foreign, is_cut = [], 0, False
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_NAMES:
                    is_cut = True
                    break
                if name_parts(entry.name) is not None:
                    names.append(entry.name)
                elif not entry.name.startswith(".") and entry.name not in (ANSWERED_DIR, WATCHER_FILE):
                    foreign += 1
    except FileNotFoundError:
        return Listing()
    return Listing(tuple(sorted(names, key=lambda name: name_parts(name) or (0, ""))), foreign, is_cut)
