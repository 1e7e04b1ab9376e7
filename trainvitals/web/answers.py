"""Waiting for the dashboard of this machine to answer, so that nobody is sent to an address where nothing listens yet."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable

#: A machine that is busy with everything else needs tens of seconds; after this it is told that nothing answers.
LONGEST_WAIT_S = 120.0
EVERY_S = 0.1


def answers(port: int, timeout_s: float = 2.0) -> bool:
    """Whether an HTTP server on 127.0.0.1:port answers ``/healthz``, whatever it says: the pages tell the rest."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


class Waiting:
    """Calls ``then`` once the port answers, or ``otherwise`` when it did not in time; neither after ``stop``. In a thread of its
    own: the supervisor must go on looking after its children meanwhile."""

    def __init__(
        self,
        port: int,
        then: Callable[[], None],
        otherwise: Callable[[], None],
        limit_s: float = LONGEST_WAIT_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._port, self._then, self._otherwise = port, then, otherwise
        self._tries, self._every_s = max(1, round(limit_s / every_s)), every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="waits-for-dashboard", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Wait no longer."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _wait(self) -> None:
        for _ in range(self._tries):
            if answers(self._port):
                if not self._stopping.is_set():
                    self._then()
                return
            if self._stopping.wait(self._every_s):
                return
        self._otherwise()
