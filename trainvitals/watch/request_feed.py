"""Reads the rows of `requests` in a thread of its own: a store that hangs or is away costs the watchdog nothing, and nothing is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.control.request_keys import read_keys
from trainvitals.control.signed import MAX_AHEAD_S, MAX_VALID_S
from trainvitals.errors import InputError, StoreError
from trainvitals.store.protocol import Store
from trainvitals.store.request_rows import DAY_NS, RequestRow, read_request_rows

#: Rows of one look; people do not ask for so much within an hour.
MAX_ROWS = 1_000
#: A look that takes longer is told; no other one is begun before it ends.
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Batch:
    """What one look found: the rows that may still count, and the keys as they are now."""

    rows: tuple[RequestRow, ...] = ()
    keys: tuple[bytes, ...] = ()


class RequestFeed:
    """Of one run. ``take`` is called at every turn and never waits. open_store: a connection of its own, made at the first look and
    again after a fault."""

    def __init__(
        self, run: str, open_store: Callable[[], Store], key_files: Sequence[Path], clock: Clock, poll_s: float, *,
        in_thread: bool = True,
    ) -> None:  # fmt: skip
        self._run, self._open, self._key_files, self._clock = run, open_store, key_files, clock
        self._poll_s, self._in_thread = max(0.05, poll_s), in_thread
        self._due_s = float("-inf")
        self._began_s = 0.0
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._found: Batch | None = None
        self._said = ""

    @property
    def trouble(self) -> str:
        """Why nothing is read, "" when all is well."""
        if self._is_looking() and self._clock.monotonic_s() - self._began_s > DEADLINE_S:
            return f"signed requests are not read: the store has not answered for {DEADLINE_S:.0f} s and more"
        return self._said

    def take(self, now_s: float) -> Batch | None:
        """What the last look found, once; None while there is nothing new. Begins the next look when it is due."""
        found, self._found = self._found, None
        if now_s >= self._due_s and not self._is_looking():
            self._due_s, self._began_s = now_s + self._poll_s, now_s
            if self._in_thread:
                self._thread = threading.Thread(target=self._look, name="signed-requests", daemon=True)
                self._thread.start()
            else:
                self._look()
        return found

    def close(self, wait_s: float = 2.0) -> None:
        """Wait a little for the look that is going on; one that hangs ends with the process."""
        if self._thread is not None:
            self._thread.join(wait_s)
        if not self._is_looking():
            self._drop()

    def _is_looking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _look(self) -> None:
        try:
            keys = read_keys(self._key_files)
            if self._store is None:
                self._store = self._open()
            now_ns = self._clock.time_ns()
            start_ns = now_ns - round((MAX_VALID_S + MAX_AHEAD_S) * 1e9)
            rows = read_request_rows(self._store, self._run, start_ns, now_ns + DAY_NS, MAX_ROWS)
        except (StoreError, InputError) as error:
            self._said = f"signed requests are not read: {error}"
            self._drop()
            return
        except Exception as error:  # noqa: BLE001 (said; a fault here must not end the watchdog)
            self._said = f"signed requests are not read ({type(error).__name__}: {error}); they are looked for again"
            self._drop()
            return
        self._said = (
            f"{MAX_ROWS:,} signed requests and more within an hour: the newest may not be seen. Look who can write to `requests`."
            if len(rows) >= MAX_ROWS
            else ""
        )
        self._found = Batch(tuple(rows), keys)

    def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except Exception as error:  # noqa: BLE001 (said; it is opened anew)
                self._said = self._said or f"the store of signed requests could not be closed ({type(error).__name__}: {error})"
