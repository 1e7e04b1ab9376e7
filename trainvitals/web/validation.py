"""Losses on held-out data, out of the ``message`` events that carry one: a series of its own beside the training loss.

A first look reads the newest messages, later looks only what came since: a run tells thousands of them in its life.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainvitals.records import Event
from trainvitals.store.protocol import Store
from trainvitals.web.view import Validation

DAY_NS = 86_400 * 10**9
#: Newest messages that are read at once; a year of one validation in two hours.
MAX_READ = 5_000
#: Since the last look; a log that is read late tells of an older time.
OVERLAP_NS = 10 * 60 * 10**9
#: After this long everything is read again: history may have been imported meanwhile.
READ_AGAIN_NS = 120 * 10**9


def validation_of(event: Event) -> Validation | None:
    """The validation that a message tells; None when it tells none. A value that is no number is NaN."""
    told = event.data.get("validation_loss")
    if event.kind != "message" or event.time_ns is None or told is None or isinstance(told, bool):
        return None
    try:
        value = float(told)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    return Validation(event.time_ns, event.step, event.attempt or 0, value, str(event.data.get("validation_set") or "")[:64])


@dataclass
class _Held:
    read_ns: int
    newest_ns: int
    known: dict[tuple[int, str], Validation]
    result: tuple[Validation, ...] = ()


@dataclass
class ValidationReader:
    """One for each poller."""

    _held: dict[str, _Held] = field(default_factory=dict)

    def of(self, store: Store, run: str, now_ns: int) -> tuple[Validation, ...]:
        """Validations by time, the newest ``MAX_READ`` at most. Raises what the store raises."""
        held = self._held.get(run)
        is_fresh = held is not None and 0 <= now_ns - held.read_ns < READ_AGAIN_NS
        if held is None or not is_fresh:
            held = self._held[run] = _Held(now_ns, 0, {})
        start_ns = max(0, held.newest_ns - OVERLAP_NS)
        events = store.events(run, ("message",), start_ns, now_ns + DAY_NS, limit=MAX_READ, newest_first=True)
        if self._add(held, events):
            newest = sorted(held.known.items())[-MAX_READ:]
            held.known, held.result = dict(newest), tuple(one for _, one in newest)
        return held.result

    @staticmethod
    def _add(held: _Held, events: Iterable[Event]) -> bool:
        is_changed = False
        for event in events:
            held.newest_ns = max(held.newest_ns, event.time_ns or 0)
            found = validation_of(event)
            if found is not None and (found.time_ns, event.id) not in held.known:
                held.known[found.time_ns, event.id] = found
                is_changed = True
        return is_changed
