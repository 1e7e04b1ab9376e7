"""What exists once per dashboard process: the settings and the poller. Pages and routes share it."""

from __future__ import annotations

import atexit
import threading
from dataclasses import asdict

from trainvitals import settings as settings_module
from trainvitals.control.request import look
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.protocol import Store
from trainvitals.web.draw import draw
from trainvitals.web.poller import Poller
from trainvitals.web.view import ControlView

_lock = threading.Lock()
_poller: Poller | None = None


def poller() -> Poller:
    """The poller of this process, started at the first call. Raises ``SettingsError`` when the settings are wrong."""
    global _poller
    with _lock:
        if _poller is None:
            _poller = make_poller(settings_module.load())
            _poller.start()
            atexit.register(_poller.stop, 1.0)
        return _poller


def make_poller(settings: Settings) -> Poller:
    """A poller on the store and the run directories that the settings name, not started."""

    def open_store() -> Store:
        from trainvitals.store import open_store as open_by_url

        return open_by_url(settings.store, read_only=True)

    return Poller(settings, open_store, draw, read_control)


def read_control(run: RunSettings, now_ns: int) -> ControlView:
    """Control state of a run, from its control files."""
    return ControlView(**asdict(look(run.dir, now_ns)))
