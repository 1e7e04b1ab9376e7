"""Where the wall's links live: a file with the secret that signs them, and beside it a book of links made and revoked.

Whoever can read the secret can make links: mode 0600. Without the book no link is believed, because nobody could say which ones
were revoked. Both are read again when they change, so that revoking needs no restart.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainvitals.errors import InputError
from trainvitals.settings import Settings, default_directory
from trainvitals.web.wall_links import WallLink, is_id

MIN_BYTES, MAX_BYTES = 32, 4096
#: About 10,000 links.
MAX_BOOK_BYTES = 4 * 1024 * 1024
MAX_NOTE = 200


@dataclass(frozen=True)
class Entry:
    """A link in the book. made_s, revoked_s: UTC seconds, None = not. note: what whoever made it wrote, for example which page."""

    id: str
    run: str
    expires_s: int
    made_s: int
    note: str = ""
    revoked_s: int | None = None


def key_path(settings: Settings) -> Path:
    """``wall_key_file`` of [dashboard], else in this user's own directory."""
    told = settings.dashboard.wall_key_file
    return settings.resolve(told) if told else default_directory() / "wall.key"


def book_path(key_file: Path) -> Path:
    return key_file.with_name(key_file.name + ".links")


def make(key_file: Path) -> None:
    """Secret and book, where they are missing. Raises ``InputError``."""
    try:
        key_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create(key_file, secrets.token_hex(32).encode() + b"\n", 0o600)
        _create(book_path(key_file), b"", 0o640)
    except OSError as error:
        raise InputError(f"The key of the wall's links cannot be written to {key_file}: {error.strerror or error}.") from error


def _create(path: Path, content: bytes, mode: int) -> None:
    """All of it or nothing, never over what is there."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return  # somebody else made it in the same moment: theirs counts
    finally:
        draft.unlink(missing_ok=True)


def read_secret(key_file: Path) -> bytes:
    """Raises ``InputError`` when there is none, it is too short, or everyone may read it."""
    raw, mode = _read(key_file, MAX_BYTES, "python -m trainvitals wall link RUN makes it.")
    if mode & stat.S_IRWXO:
        raise InputError(f"Everyone may read or write {key_file}, which signs the wall's links; run: chmod o-rwx {key_file}")
    secret = raw.strip()
    if len(secret) < MIN_BYTES:
        raise InputError(f"The secret in {key_file} has {len(secret)} bytes; it needs at least {MIN_BYTES}: openssl rand -hex 32")
    return secret


def read_book(path: Path) -> dict[str, Entry]:
    """Links by id, in the order in which they were made. Raises ``InputError`` for a line that cannot be understood: it may revoke one."""
    raw, mode = _read(path, MAX_BOOK_BYTES, "Without it nobody knows which links were revoked; wall link RUN makes an empty one.")
    if mode & stat.S_IWOTH:
        raise InputError(f"Everyone may write {path}, which says which links were revoked; run: chmod o-w {path}")
    book: dict[str, Entry] = {}
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            _take(book, told)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"Line {number} of {path} is damaged, so that no link is believed: mend or remove it.") from error
    return book


def _take(book: dict[str, Entry], told: Mapping[str, Any]) -> None:
    if "revoked" in told:
        id, at_s = str(told["revoked"]), int(told["at"])
        book[id] = replace(book.get(id) or Entry(id, "", 0, 0), revoked_s=at_s)
        return
    entry = Entry(str(told["id"]), str(told["run"]), int(told["exp"]), int(told["made"]), str(told.get("note", "")))
    if not is_id(entry.id):
        raise ValueError(entry.id)
    book[entry.id] = entry


def add(key_file: Path, link: WallLink, made_s: int, note: str = "") -> None:
    """Into the book. Raises ``InputError``."""
    told = {"id": link.id, "run": link.run, "exp": link.expires_s, "made": made_s, "note": note[:MAX_NOTE]}
    _append(book_path(key_file), told)


def revoke(key_file: Path, id: str, at_s: int) -> None:
    """Into the book; the link is refused from the next look on. Raises ``InputError``."""
    _append(book_path(key_file), {"revoked": id, "at": at_s})


def _append(path: Path, told: Mapping[str, Any]) -> None:
    line = json.dumps(told, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.write(handle, line) != len(line):
                raise InputError(f"{path} could not be written in full: look at the space of its disk.")
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


def _read(path: Path, most: int, what_to_do: str) -> tuple[bytes, int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise InputError(f"There is no {path}. {what_to_do}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"{path} is not a regular file.")
        raw = file.read(most + 1)
    if len(raw) > most:
        raise InputError(f"{path} is larger than {most:,} bytes.")
    return raw, mode
