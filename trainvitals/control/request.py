"""Asking: read and write the desired state of a run, with compare-and-set between operators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from trainvitals.clock import Clock, SystemClock
from trainvitals.control import files
from trainvitals.control.audit_head import Head
from trainvitals.control.document import checked_text
from trainvitals.control.records import HOW, MAX_NAME, MAX_REASON, ControlRequest, ControlStatus
from trainvitals.control.supervised import supervisor_host
from trainvitals.control.view import ControlState, describe, unreadable
from trainvitals.errors import ControlConflict, ControlError, InputError

ACTIONS = {"pause": "paused", "resume": "running", "stop": "stopped", "checkpoint": None}
BREAKER = "breaker"
BREAKER_ACTIONS = ("pause", "checkpoint")
#: A claimed sequence number whose request never reached control.json belongs to a writer that died.
STALE_CLAIM_S = 10.0
#: A name in the history above this claims nothing: counting on from it would soon leave what the files can hold.
MAX_CLAIM = 2**62

RunDir = str | os.PathLike[str]


def init(run_dir: RunDir, run: str, *, clock: Clock | None = None) -> ControlRequest:
    """Make the control directory and a first ``control.json`` (running, sequence number 0); keep one that is there.

    The file should always exist: network file systems remember for up to a minute that a file was not there.
    Raises ``ControlError`` when the file there belongs to another run.
    """
    checked_text("run", run, MAX_NAME, may_be_empty=True)
    files.make_directories(run_dir)
    path = files.control_dir(run_dir) / files.CONTROL_FILE
    now_ns = (clock or SystemClock()).time_ns()
    first = ControlRequest(run=run, action="init", source="init", request_id=_request_id(), issued_at_ns=now_ns)
    if files.create(path, first.to_json().encode(), files.REQUEST_MODE):
        return first
    present = read_request(run_dir)
    if run and present.run and present.run != run:
        raise ControlError(f"{path} belongs to the run {present.run!r}, not {run!r}; use a directory of its own for each run.")
    return present


def read_request(run_dir: RunDir) -> ControlRequest:
    """The desired state. No file means running, sequence number 0.

    Raises ``InputError`` when it is not a control request, ``ControlError`` when the place is unsafe, ``OSError``.
    """
    path = files.control_dir(run_dir) / files.CONTROL_FILE
    data = files.read_bytes(path)
    return ControlRequest() if data is None else ControlRequest.from_json(data, str(path))


def read_status(run_dir: RunDir) -> ControlStatus | None:
    """What the trainer said last; None when no control client ever ran here. Raises as ``read_request``."""
    path = files.control_dir(run_dir) / files.STATUS_FILE
    data = files.read_bytes(path)
    return None if data is None else ControlStatus.from_json(data, str(path))


def look(run_dir: RunDir, now_ns: int, poll_s: float = 1.0) -> ControlState:
    """``describe`` of both files as they are now; never raises for what the files or the file system do."""
    try:
        return describe(read_request(run_dir), read_status(run_dir), now_ns, poll_s, supervisor=supervisor_host(run_dir))
    except (ControlError, InputError) as error:
        return unreadable(str(error))
    except OSError as error:
        return unreadable(f"The control files in {run_dir} cannot be read: {error.strerror or error}.")


def history(run_dir: RunDir) -> list[ControlRequest]:
    """All requests ever made here, oldest first; unreadable entries are left out (``control.json`` is the truth)."""
    found = []
    for _, path in sorted(_entries(run_dir)):
        try:
            data = files.read_bytes(path)
            if data is not None:
                found.append(ControlRequest.from_json(data, str(path)))
        except (ControlError, InputError, OSError):
            continue
    return found


def submit(
    run_dir: RunDir,
    run: str,
    *,
    action: str,
    by: str,
    source: str,
    reason: str,
    expected_seq: int | None = None,
    clock: Clock | None = None,
    expires_s: float | None = None,
    save: bool | None = None,
    how: str | None = None,
    audit: Callable[[ControlRequest], Head] | None = None,
    request_id: str = "",
) -> ControlRequest:
    """Ask for ``pause``, ``resume``, ``checkpoint`` or ``stop``; returns the request that now stands in ``control.json``.

    expected_seq: the sequence number the person was looking at; ``ControlConflict`` when another stands there by now, or
    when somebody else takes the next number at the same moment. Asking for what is desired already changes nothing and
    returns the present request, unless the trainer refused it, it has expired, or the action is ``checkpoint``.
    save: of a pause, whether the trainer saves first; None leaves it to the trainer, which saves. how: of a pause, "hold" or "park";
    None leaves it to the trainer, and to how the run is paused already.
    audit: called with the request before it is written; its record's head goes into the request, and what it raises ends this.
    request_id: of a request that came from elsewhere, "" = a new one (``control.once`` tells whether it stands already).
    ``by`` and ``reason`` are required (``ControlError``): a pause without a name cannot be asked about.
    """
    clock = clock or SystemClock()
    if action not in ACTIONS:
        raise ControlError(f"The action must be one of {', '.join(ACTIONS)}, not {action!r}.")
    if source == BREAKER and action not in BREAKER_ACTIONS:
        raise ControlError(f"The circuit breaker may only {' or '.join(BREAKER_ACTIONS)}; to {action} is for a person.")
    if expires_s is not None and not 0 < expires_s < 1e9:
        raise ControlError(f"expires_s must be a number of seconds above 0, not {expires_s!r}.")
    if how is not None and (how not in HOW or action != "pause"):
        raise ControlError(f"how must be one of {', '.join(HOW)}, and only of a pause, not {how!r} of a {action}.")
    by = checked_text("by", by, MAX_NAME)
    reason = checked_text("reason", reason, MAX_REASON)
    source = checked_text("source", source, MAX_NAME)
    checked_text("run", run, MAX_NAME, may_be_empty=True)
    files.make_directories(run_dir)
    present = _present(run_dir)
    status = _status_or_none(run_dir)
    is_foreign = bool(run and present.run and run != present.run)
    if is_foreign and (status is None or status.run != run):  # else the file, not the caller, is in the wrong place
        raise ControlError(f"The control files in {run_dir} belong to the run {present.run!r}, not {run!r}.")
    if expected_seq is not None and expected_seq != present.seq:
        raise ControlConflict(
            f"The request was changed meanwhile: sequence number {present.seq} ({present.desired}) by "
            f"{present.by or 'nobody'}, expected {expected_seq}. Reload and look before you overwrite it."
        )
    now_ns = clock.time_ns()
    desired = ACTIONS[action] or (status.desired if is_foreign and status is not None else present.desired)
    was_refused = status is not None and status.refused_seq == present.seq
    is_over = present.expires_at_ns is not None and present.expires_at_ns < now_ns
    # What a person wants to end is not kept alive by the breaker.
    is_as_wanted = desired == present.desired or (source == BREAKER and action == "pause" and present.desired == "stopped")
    is_as_wanted = is_as_wanted and (how is None or how == present.how)
    stands = is_as_wanted and not is_foreign and not was_refused and not is_over
    if stands and action != "checkpoint":
        return present
    request = ControlRequest(
        run=run or present.run or (status.run if status is not None else ""),
        seq=max(present.seq, _newest_dead_claim(run_dir, present.seq), status.ack_seq if status is not None else 0) + 1,
        desired=desired,
        checkpoint_request=max(present.checkpoint_request, status.checkpoint_done if status is not None else 0)
        + (action == "checkpoint"),
        by=by,
        source=source,
        reason=reason,
        action=action,
        request_id=request_id or _request_id(),
        issued_at_ns=now_ns,
        expires_at_ns=None if expires_s is None else now_ns + round(expires_s * 1e9),
        save=save if action == "pause" else None,
        how=present.how if action == "checkpoint" and desired == present.desired and not is_foreign else how,
    )
    _check(request)
    if audit is not None:
        head = audit(request)
        request = replace(request, audit_n=head.n, audit_hash=head.hash)
    _claim_and_write(run_dir, request)
    return request


def _check(request: ControlRequest) -> None:
    """What nobody could read back must not replace what everybody can."""
    try:
        ControlRequest.from_json(request.to_json())
    except InputError as error:
        raise ControlError(
            f"Nothing was asked: the numbers in the control directory are no longer usable ({error}) Take the files with such numbers away."
        ) from error


def _claim_and_write(run_dir: RunDir, request: ControlRequest) -> None:
    directory = files.control_dir(run_dir)
    data = request.to_json().encode()
    conflict = ControlConflict(
        f"Somebody else wrote sequence number {request.seq} at the same moment. Reload and look before you ask again."
    )
    try:
        if not files.create(directory / files.HISTORY_DIR / f"{request.seq}.json", data, files.STATUS_MODE):
            raise conflict
        if max((seq for seq, _ in _entries(run_dir)), default=request.seq) > request.seq:
            raise conflict  # we were so slow that another writer took us for dead
        try:
            files.replace(directory / files.CONTROL_FILE, data, files.REQUEST_MODE)
        except OSError:
            _give_back(run_dir, request)
            raise
    except OSError as error:
        raise ControlError(f"Cannot write the request into {directory}: {error.strerror or error}.") from error


def _give_back(run_dir: RunDir, request: ControlRequest) -> None:
    """A claim whose request was not written would keep the next one waiting until it counts as dead."""
    with contextlib.suppress(ControlError, InputError, OSError):  # then it is dead in STALE_CLAIM_S
        if read_request(run_dir).seq < request.seq:
            (files.control_dir(run_dir) / files.HISTORY_DIR / f"{request.seq}.json").unlink()


def _present(run_dir: RunDir) -> ControlRequest:
    """The request that stands. When ``control.json`` is unusable the newest one in the history: people must be able to act."""
    try:
        return read_request(run_dir)
    except InputError:
        past = history(run_dir)
        newest = max((seq for seq, _ in _entries(run_dir)), default=0)
        return replace(past[-1], seq=max(past[-1].seq, newest)) if past else ControlRequest(seq=newest)
    except OSError as error:
        raise ControlError(f"Cannot read the present request in {run_dir}: {error.strerror or error}.") from error


def _status_or_none(run_dir: RunDir) -> ControlStatus | None:
    try:
        return read_status(run_dir)
    except (InputError, OSError):
        return None  # the request does not depend on it: the trainer reports a number that is too low


def _newest_dead_claim(run_dir: RunDir, present_seq: int) -> int:
    """Highest claimed number above the present one whose writer died before it replaced ``control.json``; 0 if none."""
    now_s = files.file_system_time_s(files.control_dir(run_dir) / files.HISTORY_DIR)
    dead = 0
    for seq, path in _entries(run_dir):
        if seq <= present_seq:
            continue
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()  # of the name itself, which may be a link to nowhere
            # The first can be set to any day, the second cannot.
            if now_s - min(found.st_mtime, found.st_ctime) > STALE_CLAIM_S:
                dead = max(dead, seq)
    return dead


def _entries(run_dir: RunDir) -> Iterator[tuple[int, Path]]:
    try:
        paths = list((files.control_dir(run_dir) / files.HISTORY_DIR).iterdir())
    except OSError:
        return
    for path in paths:
        seq = claimed(path.name)
        if seq is not None:
            yield seq, path


def claimed(name: str) -> int | None:
    """The sequence number that a name in the history claims; None when it can claim none."""
    stem = name.removesuffix(".json")
    if stem == name or not stem.isascii() or not stem.isdigit() or len(stem) > len(str(MAX_CLAIM)):
        return None
    return int(stem) if int(stem) <= MAX_CLAIM else None


def _request_id() -> str:
    return os.urandom(16).hex()
