"""Looks at the checkpoints, each in a thread of its own: storage that hangs gives no error, it gives nothing, for minutes or for ever.

The supervisor is neither mute nor deaf meanwhile: it says that the look does not come back, it still says that it is there, it ends when
it is told to, and it goes on when the storage does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.clock import Clock, StopSignal
from trainvitals.errors import InputError
from trainvitals.incidents.amounts import span
from trainvitals.incidents.rollback import RollbackInputs
from trainvitals.settings import RunSettings
from trainvitals.supervisor import choice
from trainvitals.supervisor.choice import Choice
from trainvitals.supervisor.desk import Desk

#: A look that made nothing new for so long hangs. One that reads much goes on as long as ``verify_s`` lets it, and shows that it does.
HUNG_S = 120.0
#: A supervisor that is told to end waits for a look for so long at most.
END_WITHIN_S = 5.0
#: How often it is looked at whether a look came back.
POLL_S = 0.5


class ToldToEnd(Exception):
    """The supervisor was told to end while it waited for a look."""


class Looks:
    """Of one run. facts: what the event of a hang says beside its sentence."""

    def __init__(
        self, run: RunSettings, verify_s: float, clock: Clock, stop: StopSignal, desk: Desk, facts: Callable[[], dict[str, Any]]
    ) -> None:
        self._run, self._verify_s, self._clock, self._stop, self._desk, self._facts = run, verify_s, clock, stop, desk, facts
        self._hashes = HashStore(str(Path(run.dir) / "checkpoint_hashes"))
        self._left_behind: _Look | None = None

    def choose(self, known: RollbackInputs) -> Choice:
        """As ``choice.choose``; waits while the storage hangs. Raises ``ToldToEnd``."""
        return self._wait(
            self._run.checkpoints, lambda clock: choice.choose(self._run.checkpoints, known, self._hashes, clock, self._verify_s, tell=clock.beat)
        )  # fmt: skip

    def named(self, path: str) -> Choice:
        """As ``choice.named``; waits while the storage hangs. Raises ``ToldToEnd``."""
        return self._wait([path], lambda clock: choice.named(path, self._hashes, clock, self._verify_s))

    def named_soon(self, path: str) -> Choice:
        """The same while a trainer runs, which needs its supervisor. Raises ``InputError`` when the look does not come back."""
        where = printable(path, 300)
        if self._left_behind is not None and not self._left_behind.done.is_set():
            raise InputError(
                f"An earlier look at {where} or another checkpoint has not come back yet: the storage hangs. Ask again later."
            )
        look = self._left_behind = _Look(self._clock, lambda clock: choice.named(path, self._hashes, clock, self._verify_s))
        stop_s = None
        while not look.done.wait(POLL_S):
            self._desk.announce()
            now_s = self._clock.monotonic_s()
            stop_s = now_s if stop_s is None and self._stop.is_set() else stop_s
            if look.silent_s() >= HUNG_S or (stop_s is not None and now_s - stop_s >= END_WITHIN_S):
                raise InputError(
                    f"The look at {where} has not come back for {span(look.silent_s())}: the storage hangs, or the supervisor is ending. "
                    "Nothing was changed; ask again when the storage answers."
                )
        return look.result()

    def _wait(self, paths: Sequence[str], of: Callable[[_ShowsLife], Choice]) -> Choice:
        look = _Look(self._clock, of)
        where, told_s, stop_s = ", ".join(printable(path, 300) for path in paths), None, None
        while not look.done.wait(POLL_S):
            self._desk.announce()
            now_s = self._clock.monotonic_s()
            if told_s is None and look.silent_s() >= HUNG_S:
                told_s = now_s - look.silent_s()
                reason = (
                    f"the look at the checkpoints in {where} has not come back for {span(HUNG_S)}: the storage hangs. It goes on by "
                    "itself when the storage answers"
                )
                self._desk.tell(
                    "storage_hangs", f"the trainer is down, and {reason}", severity="critical", reason=reason, **self._facts()
                )
            stop_s = now_s if stop_s is None and self._stop.is_set() else stop_s
            if stop_s is not None and now_s - stop_s >= END_WITHIN_S:
                raise ToldToEnd(
                    f"told to end while the look at the checkpoints in {where} did not come back; nobody starts the trainer again"
                )
        if told_s is not None:
            self._desk.tell(
                "storage_answers",
                f"the look at the checkpoints in {where} came back after {span(self._clock.monotonic_s() - told_s)}",
            )
        return look.result()


class _ShowsLife:
    """The clock that a look is given: whoever asks it for the time is alive."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seen_s = clock.monotonic_s()

    def beat(self) -> None:
        self.seen_s = self._clock.monotonic_s()

    def time_ns(self) -> int:
        self.beat()
        return self._clock.time_ns()

    def monotonic_s(self) -> float:
        self.beat()
        return self._clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self.beat()


class _Look:
    """One, begun."""

    def __init__(self, clock: Clock, of: Callable[[_ShowsLife], Choice]) -> None:
        self._clock, self._life, self._of = clock, _ShowsLife(clock), of
        self._choice: Choice | None = None
        self._error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._work, name="look at checkpoints", daemon=True).start()

    def silent_s(self) -> float:
        """Since it last showed that it goes on."""
        return self._clock.monotonic_s() - self._life.seen_s

    def result(self) -> Choice:
        """What it found; raises what it raised."""
        if self._choice is None:
            raise self._error or RuntimeError("a look gave nothing")
        return self._choice

    def _work(self) -> None:
        try:
            self._choice = self._of(self._life)
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._error = error
        finally:
            self.done.set()
