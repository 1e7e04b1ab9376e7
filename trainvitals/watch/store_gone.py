"""The file behind the watchdog's store is deleted or replaced while it runs: a new one takes over, and this is said, loudly.

Nothing that was in the file comes back by itself, but the run's own files give the same rows with the same ids, so they are read again.
What people asked for stands in the run directory. What other programs wrote there (nodes, GPUs, alerts of other systems) is gone.
"""

from __future__ import annotations

from trainvitals.clock import Clock
from trainvitals.identity import event_id
from trainvitals.records import Event, Severity
from trainvitals.store.protocol import Sink
from trainvitals.store.sink import replacements

#: Name of the count in the event's data; pages look for it.
STORE_REPLACED = "store_replaced"
_READ_AGAIN = "the run's files are read again from the start"


class StoreGone:
    """Of one run."""

    def __init__(self, run: str, store: Sink, clock: Clock) -> None:
        self._run, self._store, self._clock = run, store, clock
        self._known = replacements(store)[0]

    def look(self) -> Event | None:
        """What is to be told, once for each time that the file was found to be another one."""
        count, path = replacements(self._store)
        if count == self._known:
            return None
        self._known = count
        text = (
            f"{path} was deleted or replaced while the run was watched. A new file took its place; {_READ_AGAIN}, but what other "
            "programs had written there (nodes, GPUs, alerts of other systems) is gone unless a backup is put back"
        )
        return self._event(text, Severity.WARNING)

    def met(self) -> Event:
        """A store that could not be opened at the start turned out to be a new one."""
        return self._event(f"the store is a new one: {_READ_AGAIN}", Severity.INFO)

    def _event(self, text: str, severity: Severity) -> Event:
        now_ns = self._clock.time_ns()
        data = {STORE_REPLACED: self._known} if severity is Severity.WARNING else {}
        identifier = event_id(self._run, "store gone", now_ns)
        return Event("watch", now_ns, id=identifier, severity=severity, source="watch", text=text, data=data)
