"""What a watchdog does for the store beside its own work: roll-ups and retention, one piece at a time in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.settings import RetentionSettings
from trainvitals.store.protocol import Store
from trainvitals.store.retention import Retention
from trainvitals.store.rollup_driver import DirtyNotes, NodeRollupDriver, RollupDriver

PERIOD_S = 20.0
#: While an old history is rolled up: a pause, so that the watchdog's own commits are never far back in the queue.
BEHIND_PAUSE_S = 0.2
RETENTION_PERIOD_S = 3_600.0
#: The same fault is told once in this time.
TELL_AGAIN_S = 600.0


class Maintenance:
    """``poll`` is called at every turn and never waits: it starts the next piece when that is due and none is running.

    store: where rows are read and deleted. sink: where windows are written; the watchdog must write through the same
    ``DirtyNotes``, or late rows would not be seen. waiting_s: age of the oldest row that has not reached the store yet.
    """

    def __init__(
        self, run: str, store: Store, sink: DirtyNotes, retention: RetentionSettings, clock: Clock,
        say: Callable[[str], None], waiting_s: Callable[[], float] = lambda: 0.0, *, in_thread: bool = True,
    ) -> None:  # fmt: skip
        self._clock, self._say, self._in_thread = clock, say, in_thread
        self._steps = RollupDriver(run, store, sink, clock, waiting_s)
        self._nodes = NodeRollupDriver(store, sink, clock, waiting_s)
        self._retention = Retention(
            store, retention, clock, lambda: {"node": self._nodes.done_ns(), "train": self._steps.settled_ns()}
        )
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due_s = clock.monotonic_s()
        self._delete_due_s = clock.monotonic_s() + RETENTION_PERIOD_S / 60
        self._told: dict[str, float] = {}
        self.failures = 0

    def poll(self) -> None:
        """Start the next piece if it is due."""
        with self._lock:
            if self._clock.monotonic_s() < self._due_s or (self._thread is not None and self._thread.is_alive()):
                return
            if self._in_thread:
                self._thread = threading.Thread(target=self._piece, name="store-maintenance", daemon=True)
                self._thread.start()
                return
        self._piece()

    def close(self, wait_s: float = 10.0) -> None:
        """Wait for the piece that is running; call before the store is closed."""
        thread = self._thread
        if thread is not None:
            thread.join(wait_s)

    def _piece(self) -> None:
        is_behind = False
        try:
            is_behind = self._steps.step().is_behind
            is_behind = self._nodes.step().is_behind or is_behind
            if self._clock.monotonic_s() >= self._delete_due_s:
                for fault in self._retention.step().faults:
                    self._tell(fault)
                self._delete_due_s = self._clock.monotonic_s() + RETENTION_PERIOD_S
        except StoreError as error:
            self._fail(f"roll-ups and retention wait for the store: {error}")
        except Exception as error:  # noqa: BLE001 (counted and said; a fault in a summary must not end the watchdog)
            self._fail(f"roll-ups and retention failed ({type(error).__name__}: {error}); they are tried again")
        self._due_s = self._clock.monotonic_s() + (BEHIND_PAUSE_S if is_behind else PERIOD_S)

    def _fail(self, sentence: str) -> None:
        self.failures += 1
        self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        now_s = self._clock.monotonic_s()
        told_s = self._told.get(sentence)
        if told_s is None or now_s - told_s >= TELL_AGAIN_S:
            self._told = {sentence: now_s, **{text: at for text, at in self._told.items() if now_s - at < TELL_AGAIN_S}}
            self._say(sentence)
