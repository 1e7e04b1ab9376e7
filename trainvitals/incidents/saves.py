"""How long each save took, from what the trainer told of it: the hook's ``save`` events, else begin and end in its log. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainvitals.records import Event

#: A duration beyond this is a mistake of a clock.
MOST_S = 7 * 86_400.0


@dataclass(frozen=True)
class SaveTime:
    """One save. Seconds count from its begin: until the training went on, until all state was copied, until all of it was
    durable; None = not told. problem: why it failed, "" = it did not. deleted_ns: when the trainer said that it deletes it."""

    step: int
    path: str
    attempt: int
    time_ns: int | None = None
    blocked_s: float | None = None
    staged_s: float | None = None
    persisted_s: float | None = None
    is_async: bool | None = None
    problem: str = ""
    deleted_ns: int | None = None
    is_from_hook: bool = True

    @property
    def longest_s(self) -> float | None:
        """The longest of the three."""
        return max((one for one in (self.blocked_s, self.staged_s, self.persisted_s) if one is not None), default=None)


def saves_of(events: Iterable[Event]) -> tuple[SaveTime, ...]:
    """Saves by step and attempt. Where the hook tells of any, the log's begins and ends of the same attempt are not needed."""
    ordered = sorted(events, key=lambda event: event.time_ns or 0)
    told = _told_by_hook(event for event in ordered if event.kind == "save")
    attempts = {save.attempt for save in told}
    logged = [
        save for save in _told_by_log([event for event in ordered if event.kind == "phase"]) if save.attempt not in attempts
    ]
    return tuple(sorted([*told, *logged], key=lambda save: (save.step, save.attempt, save.path)))


def _told_by_hook(events: Iterable[Event]) -> list[SaveTime]:
    saves: dict[tuple[int, str, int], SaveTime] = {}
    newest: dict[str, tuple[int, str, int]] = {}
    for event in events:
        data, path = event.data, str(event.data.get("path") or "")
        state = data.get("state")
        if not path or data.get("copy_of"):
            continue
        if state == "deleted":
            key = newest.get(path)
            if key is not None:
                saves[key] = replace(saves[key], deleted_ns=event.time_ns)
            continue
        if state not in ("begun", "staged", "persisted", "failed") or event.step is None:
            continue
        if data.get("rank") and state != "failed":
            continue  # the first rank tells of the save; another one only that its part failed
        key = (event.step, path, event.attempt or 0)
        newest[path] = key
        save = saves.get(key) or SaveTime(event.step, path, event.attempt or 0)
        if state == "begun":  # the same step saved once more begins anew
            save = SaveTime(event.step, path, event.attempt or 0)
        if data.get("rank"):
            saves[key] = replace(save, problem=event.text or str(data.get("reason") or "the part of a rank failed"))
            continue
        is_async = data.get("is_async")
        saves[key] = replace(
            save,
            time_ns=save.time_ns if save.time_ns is not None else event.time_ns,
            blocked_s=_seconds(data.get("blocked_s"), save.blocked_s),
            staged_s=_seconds(data.get("staged_s"), save.staged_s),
            persisted_s=_seconds(data.get("persisted_s"), save.persisted_s) if state == "persisted" else save.persisted_s,
            is_async=is_async if isinstance(is_async, bool) else save.is_async,
            problem=(event.text or str(data.get("reason") or "it failed")) if state == "failed" else save.problem,
        )
    return list(saves.values())


def _told_by_log(events: Sequence[Event]) -> list[SaveTime]:
    """A begin and the next end of the same attempt. Where other steps of the log came in between, it is not known how much of
    that blocked; a log does not say it, so the time counts as blocked only when nothing else was told."""
    saves: list[SaveTime] = []
    begun: dict[int, Event] = {}
    for event in events:
        if event.data.get("phase") != "checkpoint" or event.step is None:
            continue
        attempt = event.attempt or 0
        if event.data.get("state") != "end":
            begun[attempt] = event
            continue
        start = begun.pop(attempt, None)
        took_s = None
        if start is not None and start.time_ns is not None and event.time_ns is not None and start.step == event.step:
            took_s = _seconds((event.time_ns - start.time_ns) / 1e9, None)
        saves.append(SaveTime(event.step, "", attempt, event.time_ns, blocked_s=took_s, is_from_hook=False))
    return saves


def _seconds(value: object, otherwise: float | None) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    return float(value) if math.isfinite(value) and 0 <= value <= MOST_S else otherwise
