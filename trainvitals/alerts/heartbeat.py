"""The dead man's switch: an address elsewhere that is called while ``watch`` works, and that tells when the calls stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainvitals.alerts import http
from trainvitals.alerts.secret import Credentials, Secret, read_secret
from trainvitals.errors import SettingsError
from trainvitals.settings import Settings

_TIMEOUT_S = 10.0


class DeadManHeartbeat:
    """``beat`` is called at every turn of what must not die; a thread calls the address when a period has passed and a beat came.

    A loop that hangs beats no more, so the calls stop although the process lives. fault: why the last call failed, "" = it did not.
    """

    def __init__(self, settings: Settings, *, post: Callable[..., http.Answer] = http.post) -> None:
        self._settings, self._post = settings, post
        self._route = http.Route(
            allow_private=settings.alerts.heartbeat_allow_private, proxy=settings.alerts.heartbeat_proxy, timeout_s=_TIMEOUT_S
        )
        self._beaten = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.calls = 0
        self.failures = 0
        self.fault = ""

    @property
    def is_wanted(self) -> bool:
        """Whether the settings name an address."""
        return bool(self._settings.alerts.heartbeat_url_file)

    def start(self) -> None:
        """Begin to call; nothing without an address in the settings."""
        if self.is_wanted and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """What must not die is alive. Cheap."""
        self._beaten.set()

    def call(self) -> bool:
        """Call the address now; whether it answered 2xx. Never raises."""
        held = Credentials(Secret(""))
        try:
            path = self._settings.resolve(self._settings.alerts.heartbeat_url_file)
            held = Credentials(Secret(read_secret(path, "heartbeat_url_file")), proxy=Secret(self._route.proxy))
            answer = self._post(held.url.reveal(), b"", {}, self._route)
            fault = answer.error or ("" if 200 <= answer.status < 300 else f"it answered {answer.status}")
        except SettingsError as error:
            fault = str(error)
        self.calls += 1
        self.fault = held.mask(fault)
        if fault:
            self.failures += 1
        return not fault

    def stop(self, wait_s: float = 2.0) -> None:
        """Call no more."""
        self._stopping.set()
        self._beaten.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._beaten.wait()
            if self._stopping.is_set():
                return
            self._beaten.clear()
            self.call()
            self._stopping.wait(self._settings.alerts.heartbeat_s)
