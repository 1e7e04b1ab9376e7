"""What exists once per dashboard process: the settings and the poller. Pages and routes share it."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

from trainvitals import settings as settings_module
from trainvitals.control.inbox import watcher_of
from trainvitals.control.request import history, look
from trainvitals.control.requests import BREAKER_MODES
from trainvitals.errors import TrainvitalsError
from trainvitals.errors import TrainvitalsError as StartError
from trainvitals.records import Event
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.web import alertmanager_inbox, server_loop
from trainvitals.web.access import LOCAL, Entry, entry_of
from trainvitals.web.alert_peer import AlertPeer
from trainvitals.web.audit import AuditReader
from trainvitals.web.draw import draw
from trainvitals.web.poller import Poller
from trainvitals.web.view import ControlView

#: What ``poller`` raises when this dashboard cannot start; pages show its sentence.
__all__ = ["StartError", "alert_peer", "entry", "lifespan", "make_poller", "poller", "read_control", "read_requests", "stop"]
log = logging.getLogger(__name__)
_lock = threading.Lock()
_poller: Poller | None = None
_peer: AlertPeer | None = None


def entry(base_path: str = "") -> Entry:
    """How people come in, to a server below ``base_path``. With settings that are wrong from this machine only: the pages then say what is wrong with them."""
    try:
        return replace(entry_of(settings_module.load()), base_path=base_path)
    except TrainvitalsError as error:
        log.error("%s The dashboard answers this machine only.", error)
        return LOCAL


def poller() -> Poller:
    """The poller of this process, started at the first call. Raises ``SettingsError`` when the settings are wrong."""
    global _poller
    with _lock:
        if _poller is None:
            _poller = make_poller(settings_module.load())
            _poller.start()
        return _poller


def alert_peer() -> AlertPeer:
    """Who looks after the watchdogs and knows the outbox, started at the first call. Raises as ``poller``."""
    global _peer
    held = poller()
    with _lock:
        if _peer is None:
            _peer = AlertPeer(held.settings, held.snapshot)
            _peer.start()
        return _peer


def make_poller(settings: Settings) -> Poller:
    """A poller on the store and the run directories that the settings name, not started."""

    return Poller(
        settings, lambda: open_store(settings.store, read_only=True, influxdb=settings.influxdb), draw, read_control,
        read_requests=read_requests, read_breaker=read_breaker, read_audit=AuditReader().read,
    )  # fmt: skip


def read_control(run: RunSettings, now_ns: int) -> ControlView:
    """Control state of a run, from its control files."""
    return ControlView(**asdict(look(run.dir, now_ns)))


def read_breaker(run: RunSettings) -> tuple[str, str]:
    """The mode that the run's watchdog says is in force, and what holds it now; that of the settings when it says nothing readable."""
    try:
        watcher = watcher_of(run.dir)
    except (TrainvitalsError, OSError):
        return run.breaker, ""
    if watcher is None or watcher.breaker not in BREAKER_MODES:
        return run.breaker, ""
    return watcher.breaker, watcher.breaker_hold


def read_requests(run: RunSettings) -> list[Event]:
    """What was ever asked of a run, from its control directory: the audit does not depend on the store."""
    return [
        Event(
            "control", request.issued_at_ns, id=f"{run.name}/request/{request.seq}", source=request.source,
            text=f"asked for: {request.action or request.desired}",
            data={
                "seq": request.seq, "action": request.action, "desired": request.desired, "by": request.by,
                "source": request.source, "reason": request.reason,
            },
        )
        for request in history(run.dir)
    ]  # fmt: skip


def stop() -> None:
    """End the poller of this process and what goes with it, if there is one; a later ``poller()`` makes a new one."""
    global _poller, _peer
    with _lock:
        held, _poller = _poller, None
        peer, _peer = _peer, None
    alertmanager_inbox.stop()
    if peer is not None:
        peer.stop(1.0)
    if held is not None:
        held.stop(1.0)


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    """What ``st.App(lifespan=…)`` takes: read the store before the first visitor comes, close it when the server ends."""
    server_loop.keep()
    try:
        alert_peer()
    except TrainvitalsError as error:
        log.error("%s", error)  # the pages and /healthz say it too, and try again at each visit
    try:
        yield {}
    finally:
        stop()
