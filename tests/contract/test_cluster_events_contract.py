"""Events of the cluster, which belong to no run, are stored and read on every store, and are of no run's own."""

from __future__ import annotations

from trainvitals.records import Event, Severity
from trainvitals.store.encode import event_point
from trainvitals.store.protocol import Store

EVER = (0, 2**62)
T0 = 1_767_323_045 * 10**9


def outside(id: str, **data: object) -> Event:
    return Event("external", T0, id=id, severity=Severity.WARNING, source="alertmanager", text="LinkFlaps on n1", data=data)


def test_an_event_of_no_run_is_read_back_as_that_and_as_no_runs(store: Store) -> None:
    store.write([event_point("", outside("a", state="firing")), event_point("r", outside("b", state="firing"))])
    assert [event.id for event in store.events("", ("external",), *EVER)] == ["a"]
    assert [event.id for event in store.events("r", ("external",), *EVER)] == ["b"]
    store.write([event_point("", outside("a", state="resolved"))])
    assert [event.data["state"] for event in store.events("", ("external",), *EVER)] == ["resolved"]
