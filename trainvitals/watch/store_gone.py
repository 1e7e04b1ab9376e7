"""The file behind the watchdog's store is deleted or replaced while it runs: a new one takes over, and this is said, loudly.

Nothing that was in the file comes back by itself, but the run's own files give the same rows with the same ids, so they are read again.
What people asked for stands in the run directory. What other programs wrote there (nodes, GPUs, alerts of other systems) is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainvitals.clock import Clock
from trainvitals.errors import StoreUnavailable
from trainvitals.identity import event_id
from trainvitals.records import Event, Severity
from trainvitals.store.protocol import Sink
from trainvitals.store.sink import replacements

#: Name of the count in the event's data; pages look for it.
STORE_REPLACED = "store_replaced"
_READ_AGAIN = "the run's files are read again from the start"


class StoreReplaced(StoreUnavailable):
    """The file that a state was to be committed to is another one than the state was made for; nothing was written."""


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

    def for_known_file(self, state: Mapping[str, bytes | None]) -> Mapping[str, bytes | None]:
        """The same state, which no other file takes than the one that was last looked at: with it a new file would say that it has
        everything up to now, and whoever was killed before the next look would go on from there."""
        return _OfOneFile(state, self._store, self._known)

    def met(self) -> Event:
        """A store that could not be opened at the start turned out to be a new one."""
        return self._event(f"the store is a new one: {_READ_AGAIN}", Severity.INFO)

    def _event(self, text: str, severity: Severity) -> Event:
        now_ns = self._clock.time_ns()
        data = {STORE_REPLACED: self._known} if severity is Severity.WARNING else {}
        identifier = event_id(self._run, "store gone", now_ns)
        return Event("watch", now_ns, id=identifier, severity=severity, source="watch", text=text, data=data)


class _OfOneFile(Mapping[str, bytes | None]):
    """It is read inside of the transaction, when it is known which file that writes to; what is raised there undoes all of it."""

    def __init__(self, state: Mapping[str, bytes | None], store: Sink, known: int) -> None:
        self._state, self._store, self._expected = state, store, known

    def __getitem__(self, key: str) -> bytes | None:
        return self._state[key]

    def __len__(self) -> int:
        return len(self._state)

    def __iter__(self) -> Iterator[str]:
        count, path = replacements(self._store)
        if count != self._expected:
            raise StoreReplaced(f"{path} is another file than before; {_READ_AGAIN}.")
        return iter(self._state)
