"""Tells hosts that do not share the run directory what its control files say: a row in the store, at once when it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from trainvitals.control import supervised
from trainvitals.control.mirror import MAX_HISTORY, Mirror
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import history, read_request, read_status
from trainvitals.control.requests import Watcher
from trainvitals.errors import ControlError, InputError
from trainvitals.records import Point
from trainvitals.store.request_rows import control_point

LOOK_EVERY_S = 1.0
TELL_EVERY_S = 5.0


class ControlMirror:
    """Of one run. watcher: what this watchdog says of itself. refused: reason -> signed requests refused so far."""

    def __init__(
        self, run_dir: str, run: str, watcher: Callable[[], Watcher], refused: Callable[[], Mapping[str, int]]
    ) -> None:  # fmt: skip
        self._dir, self._run, self._watcher, self._refused = run_dir, run, watcher, refused
        self._due_s = self._tell_due_s = float("-inf")
        self._told: Mirror | None = None
        self._beat: tuple[int, float] | None = None
        self._supervisor: tuple[float, Watcher | None] = (float("-inf"), None)
        self._history: tuple[int, tuple[ControlRequest, ...]] = (-1, ())

    def poll(self, now_s: float, now_ns: int) -> list[Point]:
        """The row that is due, if one is; looks at most once a second. now_s: monotonic. Never raises for what the files hold."""
        if now_s < self._due_s:
            return []
        self._due_s = now_s + LOOK_EVERY_S
        seen = self._look(now_s, now_ns)
        if self._told is not None and now_s < self._tell_due_s and _without_age(seen) == _without_age(self._told):
            return []
        self._tell_due_s, self._told = now_s + TELL_EVERY_S, seen
        return [control_point(self._run, now_ns, seen.request.seq, seen.to_text())]

    def _look(self, now_s: float, now_ns: int) -> Mirror:
        empty = Mirror(watcher=self._watcher(), refused=dict(self._refused()))
        try:
            request, status = read_request(self._dir), read_status(self._dir)
            if self._history[0] != request.seq:
                self._history = (request.seq, tuple(history(self._dir)[-MAX_HISTORY:]))
            return replace(
                empty, request=request, status=status, heartbeat_age_s=self._age_s(status, now_s, now_ns),
                supervisor=self._supervisor_at(now_s), history=self._history[1],
            )  # fmt: skip
        except (ControlError, InputError) as error:
            return replace(empty, trouble=str(error))
        except OSError as error:
            return replace(empty, trouble=f"the control files cannot be read: {error.strerror or error}")

    def _age_s(self, status: ControlStatus | None, now_s: float, now_ns: int) -> float | None:
        """By our own monotonic clock once a heartbeat was seen to change; the two wall clocks may differ."""
        if status is None:
            return None
        if self._beat is None:
            self._beat = (status.heartbeat_seq, now_s - max(0.0, (now_ns - status.heartbeat_ns) / 1e9))
        elif self._beat[0] != status.heartbeat_seq:
            self._beat = (status.heartbeat_seq, now_s)
        return max(0.0, now_s - self._beat[1])

    def _supervisor_at(self, now_s: float) -> Watcher | None:
        """Looking costs a file on the run's file system, so it is not done every second."""
        if now_s >= self._supervisor[0]:
            self._supervisor = (now_s + TELL_EVERY_S, supervised.supervisor_of(self._dir))
        return self._supervisor[1]


def _without_age(mirror: Mirror) -> Mirror:
    """What changes with every heartbeat is no change: it is told every few seconds."""
    status = mirror.status
    if status is not None:
        status = replace(status, heartbeat_ns=0, heartbeat_seq=0, step=None, step_age_s=None)
    return replace(mirror, status=status, heartbeat_age_s=None)
