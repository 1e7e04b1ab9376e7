"""``incidents/`` in the run directory: each incident as a page that stands alone and as JSON, written by the watchdog from what it has
read itself. It works while store and dashboard are away; a disk that takes nothing is told and tried again.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainvitals.alerts.compose import Known, incident_link
from trainvitals.control import files
from trainvitals.errors import ControlError, InputError
from trainvitals.incidents import kept_pages as kept
from trainvitals.incidents.current_attempt import RunningAttempt
from trainvitals.incidents.first_suspect import action_words, suspect_words
from trainvitals.incidents.silences import Silence
from trainvitals.incidents.static_page import SCHEMA, IncidentPage, file_name, index_html, to_html, to_json
from trainvitals.incidents.static_page_curve import Curve
from trainvitals.incidents.symptoms import leading_rule, symptom
from trainvitals.incidents.triage import Check
from trainvitals.records import Event, Finding, Incident, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.watch.alert_facts import AlertFacts, Seen
from trainvitals.watch.incident_points import IncidentPoints

DIRECTORY = "incidents"
INDEX = "index"
MODE = 0o640
#: An open incident's page shows a curve that goes on; after this it is written anew. So is what could not be written.
AGAIN_S = 30.0
#: In a storm an incident changes with every step: what matters is written at once, the rest after this.
SOON_S = 2.0
MAX_BYTES = 4 << 20
#: Events that are told around the onset.
NEAR_KINDS = frozenset(
    {"attempt_start", "attempt_end", "resume", "fault", "postmortem", "breaker", "annotation", "control", "supervisor"}
)
NEAR_NS = 30 * 60 * 10**9
MAX_NEAR = 200
#: Incidents whose evidence is kept as it was.
MAX_SEEN_THEN = 20


class IncidentFiles:
    """Of one run directory. ``take`` and ``found`` are fed, ``poll`` writes."""

    def __init__(self, settings: Settings, run: RunSettings, facts: AlertFacts | None = None) -> None:
        self._directory, self._run = Path(run.dir) / DIRECTORY, run
        self._keep = settings.incidents.pages_kept
        self._facts = facts or AlertFacts(settings, run)
        self._is_on = bool(run.dir)
        self._points = IncidentPoints()
        self._near: list[Event] = []
        self._running = RunningAttempt()
        self._seen_then: dict[str, tuple[int, tuple[Check, ...], tuple[Curve, ...]]] = {}
        self._written: dict[str, tuple[Incident, float]] = {}
        self._listed: dict[str, Incident] = {}
        self._silences: tuple[Silence, ...] = ()
        self._has_looked = False
        #: Why pages are not written, "" when all is well. fault: what went wrong with an explanation last; ``faults`` counts.
        self.trouble = self.fault = ""
        self.faults = 0

    def take(self, record: Step | Event) -> None:
        """What the watchdog read or stored."""
        self._facts.take(record)
        if isinstance(record, Step):
            self._points.take(record)
            self._running = self._running.with_step(record.attempt, record.time_ns)
        elif record.kind in NEAR_KINDS:
            self._near = [*self._near[-MAX_NEAR + 1 :], record]

    def found(self, finding: Finding) -> None:
        """A new or changed finding."""
        self._facts.found(finding)

    def poll(
        self, incidents: Sequence[Incident], seen: Seen, now_ns: int, now_s: float, silences: Sequence[Silence] = ()
    ) -> None:
        """Write what changed. incidents: those that are open or were lately. now_s: monotonic. Never raises for what the disk does."""
        due = [one for one in incidents if self._is_due(one, now_s)] if self._is_on else []
        if not due and tuple(silences) == self._silences:
            return
        self._silences = tuple(silences)
        try:
            self._look(incidents, now_s)
            for incident in due:
                if not self._is_due(incident, now_s):
                    continue  # it is there as it is
                for ending, text in self._texts(incident, seen, now_ns):
                    self._write(f"{file_name(incident.id)}.{ending}", text)
                self._written[incident.id] = (incident, now_s)
                self._listed[incident.id] = incident
            self._tidy(now_ns)
            self.trouble = ""
        except (ControlError, InputError, OSError) as error:
            self._has_looked = False  # somebody may have taken the directory away
            self.trouble = f"pages of incidents are not written: {error}"
            for incident in due:
                self._written[incident.id] = (incident, now_s)  # tried again when it changes, or after a while
        while len(self._written) > 4 * max(1, self._keep):
            del self._written[next(iter(self._written))]

    def _known(self, incident: Incident, seen: Seen, now_ns: int) -> Known:
        """A fault in what explains an incident costs the explanation, not the watchdog."""
        try:
            return self._facts.known(incident, seen, now_ns)
        except Exception as error:  # noqa: BLE001 (counted and told)
            self.faults += 1
            self.fault = (
                f"an incident could not be explained ({type(error).__name__}: {error}); its page says what is known without"
            )
            return Known()

    def _texts(self, incident: Incident, seen: Seen, now_ns: int) -> tuple[tuple[str, str], ...]:
        """A fault in a page costs that page, not the watchdog, which has people to tell."""
        try:
            page = self._page(incident, self._known(incident, seen, now_ns), now_ns)
            return ("html", to_html(page)), ("json", to_json(page))
        except Exception as error:  # noqa: BLE001 (counted and told)
            self.faults += 1
            self.fault = f"the page of an incident could not be written ({type(error).__name__}: {error})"
            return ()

    def _is_due(self, incident: Incident, now_s: float) -> bool:
        before = self._written.get(incident.id)
        if before is None or _essence(before[0]) != _essence(incident):
            return True
        if before[0] != incident and now_s - before[1] >= SOON_S:
            return True
        return (incident.is_open or bool(self.trouble)) and now_s - before[1] >= AGAIN_S

    def _look(self, incidents: Sequence[Incident], now_s: float) -> None:
        """After a start: what was told before, and which pages are as they should be."""
        if self._has_looked:
            return
        files.make_directory(self._directory)
        self._has_looked = True
        for incident in incidents:
            before = kept.page_of(self._read(f"{file_name(incident.id)}.json"))
            self._points.fill(before.curves)
            for finding in before.findings:
                self._facts.found(finding)
            self._near = [*before.near, *self._near][-MAX_NEAR:]
            if before.incident == incident:
                self._written[incident.id] = (incident, now_s)
        for known in kept.incidents_of(self._read(f"{INDEX}.json")):
            self._listed.setdefault(known.id, known)

    def _page(self, incident: Incident, known: Known, now_ns: int) -> IncidentPage:
        row = symptom(leading_rule(known.findings, incident.rules, incident.family))
        safe = known.rollback.checkpoint if known.rollback is not None else None
        level = f", verified: {safe.level.value}" if safe is not None and safe.level is not None else ""
        where = f"step {safe.step:,}{level}: {safe.path}" if safe is not None and safe.step is not None else ""
        why = known.rollback.why if known.rollback is not None else ""
        last = f"step {known.last_step:,}" if known.last_step is not None else "none was read yet"
        facts = (
            ("Safe checkpoint", where or why), ("Newest step", last), ("Trainer", known.control), ("Breaker", known.breaker),
        )  # fmt: skip
        onset_ns = min((f.time_ns for f in known.findings if f.time_ns is not None), default=incident.opened_at_ns)
        link = incident_link(known.public_url, incident, known.last_step)
        checks, curves = self._as_seen_then(incident, known)
        near = [event for event in self._near if event.time_ns is not None and abs(event.time_ns - onset_ns) <= NEAR_NS]
        return IncidentPage(
            incident, now_ns, row.name, suspect_words(row.suspect, row.suspect_layer, checks),
            action_words(row.action, row.suspect_layer, checks), facts,
            checks, tuple(sorted(known.findings, key=lambda finding: finding.first_step)),
            tuple(sorted(near, key=lambda event: event.time_ns or 0)), curves, link,
        )  # fmt: skip

    def _as_seen_then(self, incident: Incident, known: Known) -> tuple[tuple[Check, ...], tuple[Curve, ...]]:
        """Checks and curves of trouble with the training, as of the last page before another start went over the same steps: what that
        one logs says nothing of what the night saw."""
        running = self._running.number
        attempt, checks, curves = self._seen_then.get(incident.id, (running, (), ()))
        if running != attempt and incident.family == "loss":
            return checks, curves
        checks, curves = tuple(known.checks), tuple(self._points.around(incident))
        self._seen_then[incident.id] = running, checks, curves
        while len(self._seen_then) > MAX_SEEN_THEN:
            del self._seen_then[next(iter(self._seen_then))]
        return checks, curves

    def _write(self, name: str, text: str) -> None:
        files.replace(self._directory / name, text.encode("utf-8", "replace"), MODE, durable=False)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            told = json.loads(_bytes(self._directory / name))
        except (ValueError, RecursionError, OSError):
            return {}  # it is written anew
        return told if isinstance(told, dict) else {}

    def _tidy(self, now_ns: int) -> None:
        """No more closed pages than are kept, and the index."""
        closed = sorted(
            (one for one in self._listed.values() if not one.is_open), key=lambda one: one.closed_at_ns or 0, reverse=True
        )
        for incident in closed[max(0, self._keep) :]:
            del self._listed[incident.id]
            for ending in (".html", ".json"):
                with contextlib.suppress(FileNotFoundError):
                    (self._directory / f"{file_name(incident.id)}{ending}").unlink()
        listed = list(self._listed.values())
        self._write(f"{INDEX}.html", index_html(listed, self._run.name, now_ns))
        told = {"incidents": [asdict(one) for one in listed], "silences": [one.to_mapping() for one in self._silences]}
        self._write(f"{INDEX}.json", json.dumps({"schema": SCHEMA, **told}) + "\n")


def read_index(run_dir: str | os.PathLike[str]) -> tuple[list[Incident], list[Silence]]:
    """What the run's watchdog wrote last: its incidents and silences; nothing where there is no index. Raises ``OSError``."""
    try:
        told = json.loads(_bytes(Path(run_dir) / DIRECTORY / f"{INDEX}.json"))
    except (FileNotFoundError, ValueError, RecursionError):
        return [], []
    told = told if isinstance(told, dict) else {}
    return list(kept.incidents_of(told)), list(kept.silences_of(told))


def _essence(incident: Incident) -> tuple[object, ...]:
    return incident.is_open, incident.severity, incident.acknowledged_by, incident.silenced_until_ns, incident.title


def _bytes(path: Path) -> bytes:
    """Never blocks on a pipe, never follows a link, never more than a page has. Raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        data = file.read(MAX_BYTES + 1)
    return data if len(data) <= MAX_BYTES else b""
