"""Control for a dashboard on another host: what is asked there comes in through the store, what the control files say goes out.

Only of a run with ``control_road = "store"``; any other one costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.clock import Clock
from trainvitals.control.requests import Answer, Watcher
from trainvitals.records import Event, Point
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.watch.control_mirror import ControlMirror
from trainvitals.watch.request_feed import RequestFeed
from trainvitals.watch.signed_requests import SignedRequests

STORE = "store"


class FarControl:
    """Of one run. kinds: what the watchdog's inbox takes. breaker: the mode in force, and what holds it. told: gets each answer."""

    def __init__(
        self, settings: Settings, run: RunSettings, host: str, clock: Clock, *, kinds: Callable[[], tuple[str, ...]],
        breaker: Callable[[], tuple[str, str]], told: Callable[[Answer], None], feed: RequestFeed | None = None,
    ) -> None:  # fmt: skip
        self._requests: SignedRequests | None = None
        self._mirror: ControlMirror | None = None
        if run.control_road != STORE:
            return
        self._requests = requests = SignedRequests(settings, run, kinds, feed or _feed(settings, run, clock), clock, told)

        def me() -> Watcher:
            return Watcher(run.name, requests.kinds, host, os.getpid(), *breaker())

        self._mirror = ControlMirror(run.dir, run.name, me, lambda: requests.refused)

    @property
    def trouble(self) -> str:
        """Why no request is taken, "" when all is well."""
        return "" if self._requests is None else self._requests.trouble

    def poll(self, now_s: float, now_ns: int) -> list[Event]:
        """What was carried out or refused since the last call; never waits. now_s: monotonic."""
        return [] if self._requests is None else self._requests.poll(now_s, now_ns)

    def points(self, now_s: float, now_ns: int) -> list[Point]:
        """What is to be told to other hosts now."""
        return [] if self._mirror is None else self._mirror.poll(now_s, now_ns)

    def close(self) -> None:
        """Nothing more is read."""
        if self._requests is not None:
            self._requests.close()

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {} if self._requests is None else self._requests.to_state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``ValueError`` or ``TypeError`` for what is none."""
        if self._requests is not None:
            self._requests.restore(state)

    def add_known(self, state: Mapping[str, Any]) -> None:
        """What another state says was taken is taken, too. Raises as ``restore``."""
        if self._requests is not None:
            self._requests.add_known(state)


def _feed(settings: Settings, run: RunSettings, clock: Clock) -> RequestFeed:
    key_files = [settings.resolve(path) for path in settings.requests.key_files]
    return RequestFeed(
        run.name, lambda: open_store(settings.store, influxdb=settings.influxdb), key_files, clock, settings.requests.poll_s
    )  # fmt: skip
