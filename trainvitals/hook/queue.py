"""The queued writer: ``put`` never waits for the disk, a thread writes, the oldest records go when it cannot keep up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from trainvitals.hook.appender import Appender

#: What waits in the queue: a function of nothing that gives the record's line, evaluated in the writer's thread.
Job = Callable[[], str]
MAX_RECORDS = 20_000
PERIOD_S = 0.2
MAX_BLOCK_CHARACTERS = 65_536
JOIN_S = 5.0


class QueuedWriter:
    """Bounded memory. The consumer restarts by itself; the producer takes no lock that is held during I/O.

    A kill -9 loses what was logged in the last ``PERIOD_S``.
    """

    def __init__(
        self,
        appender: Appender,
        now_ns: Callable[[], int],
        max_records: int = MAX_RECORDS,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._appender = appender
        self._now_ns = now_ns
        self._max_records = max_records
        self._on_loss = on_loss
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: the parent writes what was waiting; the thread starts with the first record."""
        self._waiting: deque[Job] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._busy = False
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Queue one record; drops the oldest one when the queue is full."""
        if len(self._waiting) >= self._max_records:
            try:
                self._waiting.popleft()
                self._appender.count(lost=1)
            except IndexError:
                pass  # the writer emptied the queue meanwhile: nothing was dropped
        self._waiting.append(job)
        thread = self._thread
        if thread is None or not thread.is_alive():
            self.start()

    def start(self) -> None:
        """Start the thread; it opens the file, so that even a run without steps leaves its header."""
        try:
            self._busy = True  # until the file is open and the queue empty
            self._thread = threading.Thread(target=self._consume, name="trainvitals-hook", daemon=True)
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._thread = None
            self._busy = False
            self._appender.count(errors=1, reason=str(error))

    def _consume(self) -> None:
        mine = threading.current_thread()
        if not self._appender.is_open:
            self._appender.open(self._now_ns())
        while self._thread is mine:
            closing = self._closing
            self.drain()
            if closing:
                return
            self._wake.wait(PERIOD_S)
            self._wake.clear()

    def drain(self) -> None:
        """Write everything that waits, several records in one ``write``."""
        self._busy = True
        try:
            while self._waiting:
                self._write_block()
        finally:
            self._busy = False

    def _write_block(self) -> None:
        lines: list[str] = []
        size = 0
        while self._waiting and size < MAX_BLOCK_CHARACTERS:
            try:
                job = self._waiting.popleft()
            except IndexError:
                break  # the producer dropped it
            try:
                line = job()
            except Exception as error:  # noqa: BLE001 - a metric's callable may raise anything; the record is counted
                self._appender.count(lost=1, errors=1, reason=f"{type(error).__name__}: {error}")
                continue
            lines.append(line)
            size += len(line)
        if lines and self._appender.write("".join(lines), self._now_ns(), len(lines)) < len(lines):
            self._on_loss()

    def flush(self, timeout_s: float) -> None:
        """Wait, at most so long, until what was queued before is written."""
        deadline_s = time.monotonic() + timeout_s
        while (self._waiting or self._busy) and time.monotonic() < deadline_s:
            if self._thread is None or not self._thread.is_alive():
                self.start()
            self._wake.set()
            time.sleep(0.002)

    def close(self, timeout_s: float = JOIN_S) -> None:
        """Write what waits, at most so long; a hung disk does not keep the trainer from ending."""
        self._closing = True
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self.start()
        thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():
                self._appender.count(lost=len(self._waiting), errors=1, reason="the disk did not answer at the end")
                return
        self._appender.close()
