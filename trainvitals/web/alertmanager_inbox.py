"""``POST /api/alertmanager``: who may post, and how what was posted is kept before it is answered.

The only route that writes. It writes as a writer of its own, through a sink of its own, events and the memory of alerts in one commit.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trainvitals import settings as settings_module
from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import InputError, SettingsError, StoreError, TrainvitalsError
from trainvitals.settings import Settings
from trainvitals.store.encode import event_point
from trainvitals.store.sink import ClosableSink, open_sink
from trainvitals.web.alertmanager import MAX_BODY_BYTES, Episodes, event, read, run_of, truncated_event

PATH = "/api/alertmanager"
TOKEN_VARIABLE = "TRAINVITALS_ALERTMANAGER_TOKEN"  # noqa: S105 (the variable's name)
OWNER = "dashboard/alertmanager"
_STATE = "alertmanager"
MIN_TOKEN_CHARACTERS = 16
MAX_TOKEN_BYTES = 4_096


def token_of(settings: Settings, environ: Mapping[str, str] | None = None) -> str:
    """The bearer token, "" when this way in is not used. Raises ``SettingsError`` for one that cannot be read or is too short."""
    token = ((os.environ if environ is None else environ).get(TOKEN_VARIABLE) or "").strip()
    if not token and settings.alertmanager.token_file:
        path = settings.resolve(settings.alertmanager.token_file)
        try:
            with path.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise SettingsError(f"token_file of [alertmanager], {path}, cannot be read: {error.strerror or error}.") from error
        if not token:
            raise SettingsError(
                f"token_file of [alertmanager], {path}, is empty; write a token of {MIN_TOKEN_CHARACTERS} characters into it."
            )
    if token and len(token) < MIN_TOKEN_CHARACTERS:
        raise SettingsError(f"The token of [alertmanager] must have at least {MIN_TOKEN_CHARACTERS} characters.")
    return token


class Inbox:
    """Keeps posts, one at a time. ``open`` makes the sink at the first post that needs it."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, open: Callable[[Settings, str], ClosableSink] = open_sink
    ) -> None:
        self.settings, self._clock, self._open = settings, clock or SystemClock(), open
        self._lock = threading.Lock()
        self._sink: ClosableSink | None = None
        self._episodes: Episodes | None = None

    def keep(self, body: bytes) -> int:
        """Store what was posted; the number of alerts. Raises ``InputError`` for what is no post, ``StoreError`` when it cannot be
        kept: then nothing of it is, and the same post may be made again."""
        post = read(body)
        settings, now_ns = self.settings.alertmanager, self._clock.time_ns()
        runs = [run.name for run in self.settings.runs]
        with self._lock:
            if self._sink is None:
                self._sink = self._open(self.settings, OWNER)
            if self._episodes is None:
                self._episodes = Episodes.from_state(self._sink.load_state(_STATE).get(_STATE, b"{}"))
            episodes = self._episodes.copy()
            points = [
                event_point(run_of(alert, settings, runs), event(alert, episodes.take(alert, now_ns), settings))
                for alert in post.alerts
            ]
            if post.truncated:
                points.append(event_point("", truncated_event(post, now_ns)))
            self._sink.commit(points, {_STATE: episodes.to_state()})
            self._episodes = episodes
        return len(post.alerts)

    def close(self) -> None:
        """A later post opens the sink again."""
        with self._lock:
            sink, self._sink, self._episodes = self._sink, None, None
        if sink is not None:
            sink.close()


_inbox: Inbox | None = None
_inbox_lock = threading.Lock()


def inbox() -> Inbox:
    """The one of this process. Raises ``SettingsError``."""
    global _inbox
    with _inbox_lock:
        if _inbox is None:
            _inbox = Inbox(settings_module.load())
        return _inbox


def stop() -> None:
    """Close the one of this process, if there is one."""
    global _inbox
    with _inbox_lock:
        held, _inbox = _inbox, None
    if held is not None:
        held.close()


async def alertmanager(request: Request) -> Response:
    """200 when everything posted is on disk. 4xx for what would be wrong the next time too (Alertmanager does not repeat it), 503
    for what may pass (it does)."""
    if request.method != "POST":
        return _answer(405, "Only POST is taken here.", {"allow": "POST"})
    try:
        held = inbox()
        token = token_of(held.settings)
    except TrainvitalsError as error:
        return _answer(503, str(error))
    if not token:
        return _answer(404, "This dashboard takes no alerts: name a token_file under [alertmanager] in its settings.")
    # The token alone: never a cookie, which a page elsewhere could make a browser send.
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(
        given.strip().encode("utf-8", "replace"), token.encode("utf-8", "replace")
    ):
        return _answer(401, "The bearer token is missing or wrong.", {"www-authenticate": "Bearer"})
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _answer(415, "Only application/json is taken.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return _answer(413, f"The post is larger than {MAX_BODY_BYTES:,} bytes; let Alertmanager group less into one.")
    try:
        kept = await run_in_threadpool(held.keep, bytes(body))
    except InputError as error:
        return _answer(400, str(error))
    except (StoreError, SettingsError):
        return _answer(503, "It cannot be kept now.")  # the sentence of the store names paths
    return JSONResponse({"kept": kept}, headers={"cache-control": "no-store"})


def _answer(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    content: dict[str, Any] = {"error": sentence}
    return JSONResponse(content, status_code=status, headers={"cache-control": "no-store", **(headers or {})})
