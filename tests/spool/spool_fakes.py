"""A store in memory that answers as it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from trainvitals.errors import StoreRejected, StoreUnavailable
from trainvitals.records import Point


def step(number: int, run: str = "r", loss: float = 2.5, time_ns: int | None = None) -> Point:
    stamp = number * 1_000_000_000 if time_ns is None else time_ns
    return Point("train", {"run": run, "attempt": "1"}, stamp, {"step": number, "loss": loss, "nonfinite": 0})


def steps(first: int, count: int) -> list[Point]:
    return [step(number) for number in range(first, first + count)]


def event(number: int, text: str) -> Point:
    fields = {"severity": 0, "id": str(number), "text": text, "json": "{}"}
    return Point("event", {"run": "r", "kind": "finding", "source": "watch"}, number, fields)


class FakeStore:
    """Keeps points as a time-series database does: the same (measurement, tags, time) merges, the last write wins.

    is_away: every write is unavailable. refuses: points that it will never take; with ``partial`` the good ones of such a
    batch are kept (1.x), else nothing is (2.x, 3).
    """

    def __init__(self, refuses: Callable[[Point], bool] = lambda _: False, partial: bool = True) -> None:
        self.rows: dict[tuple, dict] = {}
        self.requests: list[list[Point]] = []
        self.is_away = False
        self.is_closed = False
        self.partial = partial
        self.refuses = refuses
        self.on_write: Callable[[Sequence[Point]], None] = lambda _: None
        self.arrived = threading.Condition()

    def write(self, points: Sequence[Point]) -> None:
        self.on_write(points)
        if self.is_away:
            raise StoreUnavailable("The server cannot be reached.")
        self.requests.append(list(points))
        bad = [point for point in points if self.refuses(point)]
        if not bad or self.partial:
            with self.arrived:
                for point in points:
                    if not self.refuses(point):
                        key = (point.measurement, tuple(sorted(point.tags.items())), point.time_ns)
                        self.rows.setdefault(key, {}).update(point.fields)
                self.arrived.notify_all()
        if bad:
            raise StoreRejected(f"400: {len(bad)} lines are bad")

    def close(self) -> None:
        self.is_closed = True

    @property
    def steps(self) -> list[int]:
        return sorted(row["step"] for (measurement, *_), row in self.rows.items() if measurement == "train")

    def wait_for(self, count: int, seconds: float = 20.0) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: len(self.rows) >= count, seconds)
