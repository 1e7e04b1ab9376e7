"""Whether a request that came from elsewhere stands already: whoever carries it out may have been killed before it noted that."""

from __future__ import annotations

import os
from pathlib import Path

from trainvitals.control import files
from trainvitals.control.records import ControlRequest
from trainvitals.control.request import claimed, read_request
from trainvitals.errors import ControlError, InputError

#: Requests in the history that are looked through, newest first.
LOOKED_THROUGH = 50

RunDir = str | os.PathLike[str]


def standing(run_dir: RunDir, request_id: str) -> ControlRequest | None:
    """The control request that was made with this id, None when there is none. Of a writer that was killed between its two files
    the second one is written now: the number is its own. Raises ``ControlError``, ``InputError``, ``OSError``."""
    present = read_request(run_dir)
    if present.request_id == request_id:
        return present
    directory = files.control_dir(run_dir)
    try:
        # What a killed writer left under a name of its own was never asked.
        names = [path.name for path in (directory / files.HISTORY_DIR).iterdir() if claimed(path.name) is not None]
    except FileNotFoundError:
        return None
    names.sort(key=_number, reverse=True)
    newest = _number(names[0]) if names else 0
    for name in names[:LOOKED_THROUGH]:
        found = _request_in(directory, name)
        if found is None or found.request_id != request_id:
            continue
        if found.seq > present.seq and found.seq == newest:
            files.replace(directory / files.CONTROL_FILE, found.to_json().encode(), files.REQUEST_MODE)
        return found
    return None


def _request_in(directory: os.PathLike[str], name: str) -> ControlRequest | None:
    """One entry of the history; None for what cannot be read: ``control.json`` is the truth."""
    path = Path(directory) / files.HISTORY_DIR / name
    try:
        data = files.read_bytes(path)
        return None if data is None else ControlRequest.from_json(data, str(path))
    except (ControlError, InputError, OSError):
        return None


def _number(name: str) -> int:
    return claimed(name) or 0
