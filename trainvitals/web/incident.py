"""One incident as it is told: its symptom, the checks with what is known, its findings, and what happened around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.incidents.first_suspect import action_words, suspect_words
from trainvitals.incidents.symptoms import Symptom, leading_rule, onset_step, symptom
from trainvitals.incidents.triage import Check, data_changes
from trainvitals.incidents.verdict import STOPPED_RULES
from trainvitals.records import Event, Finding, Incident, NodeSample
from trainvitals.web.assemble import checks_of, measured_in
from trainvitals.web.changes import Changes, changes_at, nothing_changed
from trainvitals.web.death import Death, death_near, nothing_read, reading_words
from trainvitals.web.incident_then import is_past, with_events
from trainvitals.web.nodes_then import then_words
from trainvitals.web.view import RunView, Then

NEAR_NS = 30 * 60 * 10**9
NEAR_KINDS = frozenset(
    {
        "attempt_start",
        "attempt_end",
        "resume",
        "fault",
        "postmortem",
        "breaker",
        "annotation",
        "message",
        "control",
        "supervisor",
        "acknowledgement",
        "silence",
    }
)
#: What is told in place of the rule's own row once the logs have named a cause.
DEAD = Symptom(
    "the run died", "the cause that the logs name", "cluster",
    "Start with the line and the host above; what only followed comes later.",
)  # fmt: skip


@dataclass(frozen=True)
class IncidentStory:
    """Everything the incidents page tells of one incident. findings by step, ``near`` by time.

    death: what the ends of the logs say; without it ``death_note`` says why a dead run has none. changes: of the start before
    the onset; without them ``changes_note`` says what is known, "" for a first start. nodes_then: how the nodes were when it opened, in
    a sentence, "" when that is not known.
    """

    symptom: Symptom
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    near: tuple[Event, ...]
    death: Death | None = None
    death_note: str = ""
    changes: Changes | None = None
    changes_note: str = ""
    nodes_then: str = ""

    @property
    def suspect(self) -> str:
        """Where it most often comes from, and where the evidence is when that is elsewhere."""
        return suspect_words(self.symptom.suspect, self.symptom.suspect_layer, self.checks)

    @property
    def action(self) -> str:
        """What to do first."""
        return (
            self.symptom.action
            if self.symptom is DEAD
            else action_words(self.symptom.action, self.symptom.suspect_layer, self.checks)
        )


def incident_story(run: RunView, nodes: Sequence[NodeSample], incident: Incident) -> IncidentStory:
    """The story of ``incident``, from the snapshot alone. Nodes of now count for an open one; one that is over is told by those of then."""
    findings = sorted((finding for finding in run.findings if finding.id in incident.finding_ids), key=lambda f: f.first_step)
    onset_ns = min((f.time_ns for f in findings if f.time_ns is not None), default=incident.opened_at_ns)
    begun = [a for a in run.attempts if a.started_ns <= onset_ns] or list(run.attempts)
    own = min((f.attempt for f in findings), default=None)
    attempt = next((a for a in run.attempts if a.number == own), begun[-1] if begun else None)
    newest = run.attempt.number if run.attempt else None
    measured = measured_in(incident, run.findings, run.thens, run.metrics, newest)
    is_now = not is_past(incident, run.findings, newest)
    then = run.thens.get(incident.id, Then())
    nonfinite = [(m.name, m.nonfinite) for m in run.metrics.values() if m.nonfinite is not None] if is_now else []
    checks = checks_of(
        run.findings, with_events(run.events, then), run.checkpoints, incident, onset_ns, attempt,
        nodes if incident.is_open else then.nodes, nonfinite,
        "grad_norm" in run.metrics, measured.get("lr"),
        any(attempt and one.attempt == attempt.number for one in run.configurations), measured.get("grad_norm"),
        is_past=not is_now,
    )  # fmt: skip
    known = [
        event for event in [*run.events, *run.control_history] if event.kind in NEAR_KINDS and "validation_loss" not in event.data
    ]
    known += data_changes([event for event in run.events if event.kind == "data"])
    near = [event for event in known if _is_near(event, onset_ns, began_at(run, incident), run.steps_per_s)]
    death = death_near(run.events, incident, findings)
    is_dead = death is None and bool(STOPPED_RULES & set(incident.rules))
    is_reading = is_dead and bool(
        reading_words(run.settings, findings, run.incidents, attempt.number if attempt else None, run.taken_at_ns)
    )
    changes = changes_at(run.findings, attempt.number) if attempt else None
    is_first = attempt is None or attempt.number <= 1
    told = [one.attempt for one in run.configurations]
    return IncidentStory(
        DEAD
        if death is not None and death.cause_name and STOPPED_RULES & set(incident.rules)
        else symptom(leading_rule(findings, incident.rules, incident.family)),
        checks,
        tuple(findings),
        tuple(sorted(near, key=lambda event: event.time_ns or 0)),
        death,
        nothing_read(run.settings, is_reading) if is_dead else "",
        changes,
        "" if changes is not None or attempt is None or is_first else nothing_changed(attempt.number, told),
        then_words(then.nodes),
    )


def began_at(run: RunView, incident: Incident) -> int | None:
    """The step of the time at which it opened; a rule that joined later may look further back."""
    return onset_step(incident, run.findings)


def _is_near(event: Event, onset_ns: int, onset_step: int | None, steps_per_s: float | None) -> bool:
    if event.kind == "annotation" and event.step is not None and onset_step is not None and steps_per_s:
        # A note is about the step that it names, whenever it was written.
        return abs(event.step - onset_step) <= steps_per_s * NEAR_NS / 1e9
    return event.time_ns is not None and abs(event.time_ns - onset_ns) <= NEAR_NS
