"""One save as the trainer tells it: begun, staged (training goes on), persisted (all of it durable), or failed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trainvitals.hook.manifest_job import ManifestJob

if TYPE_CHECKING:
    from trainvitals.hook.saves import Saves


class Save:
    """One save. As a context manager: leaving the block means that it is persisted, or, with ``is_async``, that training goes on.

        with recorder.saving(path, step, has_optimizer=True):
            torch.save(state, path)

        with recorder.saving(path, step, is_async=True) as save:
            save.follow(dcp.async_save(state, checkpoint_id=path))

    An exception in the block passes, and the save has failed. Methods may be called from any thread, more than once.
    """

    def __init__(
        self, saves: Saves, path: str, step: int | None, ranks: int, is_async: bool, on_unblocked: Callable[[], None]
    ) -> None:
        self.path, self.step, self.ranks, self.is_async = path, step, ranks, is_async
        self.members: Mapping[str, Any] = {}
        self.facts: Mapping[str, Any] = {}
        self.given: tuple[str, ...] | None = None
        self._saves, self._on_unblocked = saves, on_unblocked
        self._pid = os.getpid()
        self._begun_s = saves.now_s()
        self._blocked_s: float | None = None
        self._staged_s: float | None = None
        self._persisted_s: float | None = None
        self._has_ended = not path
        self._ending = threading.Lock()
        self._settled = threading.Event()
        if not path:
            self._settled.set()
        self._future: Any = None
        self._job: ManifestJob | None = None

    def unblocked(self) -> None:
        """The training loop goes on; state may still be copied."""
        if self._blocked_s is None:
            self._blocked_s = self._saves.now_s() - self._begun_s
            self._on_unblocked()

    def staged(self) -> None:
        """All state is copied: what training changes from now on is not in the checkpoint. Training goes on, too."""
        with self._saves.guard("staged"):
            self.unblocked()
            if self._staged_s is None and not self._has_ended:
                self._staged_s = self._saves.now_s() - self._begun_s
                self._saves.tell(self, "staged", "", {"staged_s": self._staged_s, "blocked_s": self._blocked_s})

    def persisted(self) -> None:
        """All that this rank wrote is on the disk. The manifest follows in a thread."""
        if not self._ends():
            return
        with self._saves.guard("persisted"):
            self._persisted_s = self._saves.now_s() - self._begun_s
            self.unblocked()
            if self._staged_s is None:
                self._staged_s = self._persisted_s if not self.is_async else self._blocked_s
            self._saves.tell(self, "persisted", "", {**self.timing()})
            self._job = self._saves.hash(self)
        self._settled.set()

    def _ends(self) -> bool:
        """True once, and never in a forked child."""
        if self._pid != os.getpid():
            return False
        with self._ending:
            ends, self._has_ended = not self._has_ended, True
        return ends

    def failed(self, reason: object = "") -> None:
        """It did not work; whatever is on the disk is no checkpoint."""
        if not self._ends():
            return
        self._settled.set()
        with self._saves.guard("failed"):
            self.unblocked()
            text = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason)
            self._saves.tell(
                self, "failed", f"the save failed: {text}"[:500], {**self.timing(), "reason": text[:500]}, any_rank=True
            )

    def follow(self, future: Any) -> None:
        """Persisted, or failed, when this future is done: one of ``concurrent.futures``, or what ``dcp.async_save`` returns."""
        with self._saves.guard("follow"):
            self.is_async = True
            staging = getattr(future, "staging_completion", None)
            if staging is not None:
                staging.add_done_callback(lambda done: self.staged() if done.exception() is None else None)
                future = future.upload_completion
            else:
                self.staged()
            self._future = future
            future.add_done_callback(self._future_done)

    def _future_done(self, future: Any) -> None:
        with self._saves.guard("follow"):
            if future.cancelled():
                self.failed("it was cancelled")
            elif (error := future.exception()) is not None:
                self.failed(error)
            else:
                self.persisted()

    def settle(self) -> None:
        """A future that is done may not have told so yet: whoever waited for it is woken before that."""
        with self._saves.guard("follow"):
            if self._future is not None and self._future.done():
                self._future_done(self._future)

    def wait(self, timeout_s: float) -> bool:
        """Wait, at most so long, until the manifest is written or given up; whether that came. Never needed in a loop."""
        until_s = time.monotonic() + timeout_s
        self.settle()
        if not self._settled.wait(timeout_s):
            return False
        return self._job is None or self._job.done.wait(max(0.0, until_s - time.monotonic()))

    def timing(self) -> dict[str, float | bool | None]:
        """Seconds since the begin."""
        return {
            "blocked_s": self._blocked_s, "staged_s": self._staged_s, "persisted_s": self._persisted_s, "is_async": self.is_async,
        }  # fmt: skip

    @property
    def has_ended(self) -> bool:
        """Persisted or failed."""
        return self._has_ended

    def __enter__(self) -> Save:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            self.failed(error)
        elif self.is_async:
            with self._saves.guard("saving"):
                self.unblocked()
        else:
            self.persisted()
