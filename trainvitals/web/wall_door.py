"""Who may look at the wall: whoever brings a valid link, and, outside of a frame, whoever may look at the run anyway.

Asked at every refresh, so that a link that ends or is revoked closes a wall that hangs open. In a frame only a link counts: a login's
cookie does not get there, and a page that is framed must not depend on who happens to be logged in.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import InputError
from trainvitals.web.wall_files import Entry, book_path, read_book, read_secret
from trainvitals.web.wall_links import SHOWS, WallLink, read

log = logging.getLogger(__name__)
#: (identity of the file: time, size, inode), None when there is none
Seen = tuple[int, int, int] | None


@dataclass(frozen=True)
class Asked:
    """What the address says. run, key: "" = not said. shows: as written, "" = everything."""

    run: str = ""
    key: str = ""
    shows: str = ""
    is_embedded: bool = False


@dataclass(frozen=True)
class Admission:
    """run: that may be looked at, "" for a refusal. shows: in the wall's own order. refusal: word of ``wall_words.REFUSALS``."""

    run: str = ""
    shows: tuple[str, ...] = ()
    refusal: str = ""


class LinkBook:
    """Secret and book of one key file, read again when they change. Safe to ask from many threads."""

    def __init__(self, key_file: Path) -> None:
        self._key_file, self._lock = key_file, threading.Lock()
        self._seen: tuple[Seen, Seen] = (None, None)
        self._held: tuple[bytes, dict[str, Entry]] | None = None
        self._told = ""

    def read(self, key: str, now_s: float) -> tuple[WallLink | None, str]:
        """(the link, "") or (None, why not). A file that cannot be read refuses every link; the log says once what is wrong."""
        held = self._current()
        if held is None:
            return None, "closed"
        secret, book = held
        link = read(key, secret)
        if link is None:
            return None, "altered"
        if link.expires_s <= now_s:
            return None, "expired"
        entry = book.get(link.id)
        return (None, "revoked") if entry is None or entry.revoked_s is not None else (link, "")

    def _current(self) -> tuple[bytes, dict[str, Entry]] | None:
        with self._lock:
            now = _seen(self._key_file), _seen(book_path(self._key_file))
            if self._held is not None and None not in now and now == self._seen:
                return self._held
            try:
                self._held = read_secret(self._key_file), read_book(book_path(self._key_file))
                self._told = ""
            except InputError as error:
                self._held = None
                if str(error) != self._told:
                    log.warning("no link to the wall is believed: %s", error)
                    self._told = str(error)
            self._seen = now
            return self._held


def _seen(path: Path) -> Seen:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def admit(asked: Asked, links: LinkBook, now_s: float, runs: Sequence[str], may_look: Callable[[str], bool]) -> Admission:
    """runs: of the settings. may_look: whether this visitor, as a person, may see the run of that name."""
    if asked.key:
        link, why_not = links.read(asked.key, now_s)
        if link is None:
            return Admission(refusal=why_not)
        if asked.run and asked.run != link.run:
            return Admission(refusal="other_run")
        if link.run not in runs:
            return Admission(refusal="no_run")
        return Admission(link.run, _shown(asked.shows, link.shows or SHOWS))
    if asked.is_embedded:
        return Admission(refusal="needs_link")
    seen = [run for run in runs if may_look(run)]
    run = asked.run or next(iter(seen), "")
    if run not in seen:
        return Admission(refusal="needs_link")
    return Admission(run, _shown(asked.shows, SHOWS))


def _shown(told: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """What is asked for and allowed, in the wall's own order; everything that is allowed where nothing of that is left."""
    asked = {word.strip() for word in told[:200].split(",")} & set(allowed)
    return tuple(one for one in SHOWS if one in (asked or allowed))
