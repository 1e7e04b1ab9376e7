"""What exists of the wall once per dashboard process: who may frame it, and the book of its links."""

from __future__ import annotations

import logging
import threading

from trainvitals import settings as settings_module
from trainvitals.errors import TrainvitalsError
from trainvitals.settings import Settings
from trainvitals.web import wall_framing
from trainvitals.web.wall_door import LinkBook
from trainvitals.web.wall_files import key_path
from trainvitals.web.wall_framing import NOWHERE, Framing

log = logging.getLogger(__name__)
_lock = threading.Lock()
_book: tuple[str, LinkBook] | None = None


def framing(base_path: str) -> Framing:
    """Who may frame the wall. With settings that are wrong nobody may, and the log says why."""
    try:
        return wall_framing.framing(settings_module.load(), base_path)
    except TrainvitalsError as error:
        log.error("%s Nobody may frame the wall.", error)
        return NOWHERE


def link_book(settings: Settings) -> LinkBook:
    """The book of the key file that the settings name."""
    global _book
    path = key_path(settings)
    with _lock:
        if _book is None or _book[0] != str(path):
            _book = (str(path), LinkBook(path))
        return _book[1]
