"""ASGI middleware around everything the dashboard serves: who may ask, and the headers that fence the answer.

``frame-ancestors 'none'``: Streamlit sends no framing protection of its own, and a page that can pause training must not be
clicked through somebody else's frame. The one exception is the wall, which does nothing (``wall_framing``). ``img-src``: second fence
against pictures loaded from elsewhere by foreign text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.middleware import Middleware

from trainvitals.web.access import LOCAL, Entry, may_answer
from trainvitals.web.wall_framing import NOWHERE, Framing

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = b"img-src 'self' data: blob:; object-src 'none'; base-uri 'self'"
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", b"frame-ancestors 'none'; " + _POLICY),
    (b"x-frame-options", b"DENY"),
    *_ALWAYS,
    (b"cross-origin-opener-policy", b"same-origin"),
)


def framed_headers(framing: Framing) -> tuple[tuple[bytes, bytes], ...]:
    """Of the wall in a frame: no ``x-frame-options``, which knows no list, and no opener policy, which is about windows."""
    return ((b"content-security-policy", b"frame-ancestors " + framing.ancestors.encode("ascii") + b"; " + _POLICY), *_ALWAYS)


class Fence:
    """Refuses what does not come in by the way that the settings name, and adds ``HEADERS`` to every answer."""

    def __init__(self, app: App, entry: Entry = LOCAL, framing: Framing = NOWHERE) -> None:
        self._app, self._entry, self._framing = app, entry, framing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = [(bytes(name).lower(), bytes(value)) for name, value in scope.get("headers", [])]
        host = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
        path, query = str(scope.get("path", "")), bytes(scope.get("query_string", b""))
        why_not = may_answer(_address(scope.get("server")), _address(scope.get("client")), host, self._entry, headers, path)
        if why_not and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": why_not})
        elif why_not:
            body = (why_not + "\n").encode()
            about = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
            await send({"type": "http.response.start", "status": 403, "headers": about})
            await send({"type": "http.response.body", "body": body})
        else:
            ours = framed_headers(self._framing) if self._framing.allows(path, query) else HEADERS
            themed = self._framing.themed(path, query) if scope.get("method") == "GET" else None
            if scope["type"] == "websocket":
                await self._app(scope, receive, send)
            elif themed is not None:
                about = [
                    (b"location", b"?" + themed.encode("ascii")),
                    (b"cache-control", b"no-store"),
                    (b"content-length", b"0"),
                    *ours,
                ]
                await send({"type": "http.response.start", "status": 307, "headers": about})
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._app(scope, receive, _fencing(send, ours))


def _address(pair: Any) -> str | None:
    return str(pair[0]) if pair and pair[0] and pair[1] is not None else None


def _fencing(send: Send, ours: tuple[tuple[bytes, bytes], ...]) -> Send:
    names = {name for name, _ in HEADERS}

    async def fenced(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", []) if bytes(name).lower() not in names]
            message = {**message, "headers": [*kept, *ours]}
        await send(message)

    return fenced


def middleware(entry: Entry = LOCAL, framing: Framing = NOWHERE) -> list[Middleware]:
    """What ``st.App(middleware=…)`` takes."""
    return [Middleware(Fence, entry=entry, framing=framing)]
