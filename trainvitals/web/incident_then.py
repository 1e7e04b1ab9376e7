"""What was measured in an incident, out of the store: a later start over the same steps says nothing of what was seen then."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainvitals.records import Event, Finding, Incident
from trainvitals.store.protocol import Store
from trainvitals.web.metrics import USUAL_POINTS, Row, is_about_metrics, rows_of
from trainvitals.web.nodes_then import NodesThenReader
from trainvitals.web.view import MetricNow, Then

METRICS = ("lr", "grad_norm")
#: Events of which there are so many that those of an older incident are not among the newest of the run.
KINDS = ("data", "message")
#: Rows of one incident that are read, the newest; incidents that are looked at, the newest; of these so many new ones a look, so that a
#: first page does not wait for all of them.
MAX_ROWS = 4_000
MAX_EVENTS = 100
MAX_INCIDENTS = 40
MAX_NEW = 4
_FIELDS = ["step", *METRICS]


@dataclass
class ThenReader:
    """One for each poller: what is over is read once."""

    _known: dict[tuple[str, str], tuple[int, Then]] = field(default_factory=dict)
    _nodes: NodesThenReader = field(default_factory=NodesThenReader)

    def of(
        self,
        store: Store,
        run: str,
        incidents: Sequence[Incident],
        findings: Sequence[Finding],
        attempt: int | None,
        now_ns: int = 0,
    ) -> dict[str, Then]:
        """Incident id -> what was measured in it, of those that are over or of an earlier start, and the nodes when it opened. attempt:
        the one that runs. Raises what the store raises."""
        past = [one for one in incidents if is_about_metrics(one) and is_past(one, findings, attempt)]
        newest = sorted(past, key=lambda one: (one.is_open, one.opened_at_ns), reverse=True)[:MAX_INCIDENTS]
        found, left = {}, MAX_NEW
        for incident in newest:
            kept = self._known.get((run, incident.id))
            if (kept is None or kept[0] != incident.updated_at_ns) and left > 0:
                left -= 1
                kept = incident.updated_at_ns, read_then(store, run, incident, findings)
                self._known[run, incident.id] = kept
            if kept is not None:
                found[incident.id] = kept[1]
        for key in [key for key in self._known if key[0] == run and key[1] not in found]:
            del self._known[key]
        for id, (nodes, outside) in self._nodes.of(store, run, incidents, now_ns).items():
            known = found.get(id, Then())
            found[id] = replace(known, nodes=nodes, events=(*known.events, *outside))
        return found


def attempts_in(incident: Incident, findings: Sequence[Finding]) -> frozenset[int]:
    """The starts that its findings are of; empty when none of them is known any more."""
    members = set(incident.finding_ids)
    return frozenset(finding.attempt for finding in findings if finding.id in members)


def is_past(incident: Incident, findings: Sequence[Finding], attempt: int | None) -> bool:
    """Whether the newest values are not its own: it is over, or another start runs."""
    attempts = attempts_in(incident, findings)
    return not incident.is_open or (attempt is not None and bool(attempts) and attempt not in attempts)


def read_then(store: Store, run: str, incident: Incident, findings: Sequence[Finding]) -> Then:
    """The worst values in the incident, in its own starts, against the usual ones before, and what was told before it. Raises what the store raises."""
    attempts = attempts_in(incident, findings)
    if not attempts or incident.first_step is None:
        return Then()
    members = [finding for finding in findings if finding.id in set(incident.finding_ids)]
    first = min(members, key=lambda finding: finding.first_step)
    onset_ns = store.time_of_step(run, first.attempt, incident.first_step)
    if onset_ns is None:
        return Then()
    own = {"run": run, "attempt": [str(number) for number in sorted(attempts)]}
    end_ns = 2**62 if incident.closed_at_ns is None else max(incident.closed_at_ns, onset_ns) + 1
    rows = rows_of(store.raw("train", _FIELDS, own, onset_ns, end_ns, limit=MAX_ROWS, newest_first=True))
    inside = [row for row in rows if incident.last_step is None or row.step <= incident.last_step]
    before = rows_of(store.raw("train", _FIELDS, {"run": run}, 0, onset_ns, limit=USUAL_POINTS, newest_first=True))
    told = store.events(run, KINDS, 0, onset_ns + 1, limit=MAX_EVENTS, newest_first=True)
    return Then({name: found for name in METRICS if (found := _worst(name, inside, before)) is not None}, tuple(told))


def with_events(events: Sequence[Event], then: Then) -> list[Event]:
    """``events`` and those of then, each once."""
    known = {event.id for event in events if event.id}
    return [*events, *(event for event in then.events if not event.id or event.id not in known)]


def _worst(name: str, inside: Sequence[Row], before: Sequence[Row]) -> MetricNow | None:
    known = [row for row in inside if name in row.values]
    if not known:
        return None
    worst = max(known, key=lambda row: row.values[name])
    usual = [row.values[name] for row in before if name in row.values]
    return MetricNow(name, worst.values[name], None, statistics.median(usual) if usual else None, worst.step)
