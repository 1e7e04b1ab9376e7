"""Puts together what the pages show of one run: a few bounded reads of the store, then pure functions.

Only the poller calls this. A store error leaves it as an exception: the poller keeps the last good view and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from trainvitals.incidents.current_attempt import current_attempt
from trainvitals.incidents.deciding import apart
from trainvitals.incidents.symptoms import leading_rule, onset_step
from trainvitals.incidents.triage import DATA_WINDOW_STEPS, Evidence, triage
from trainvitals.incidents.verdict import (
    STOPPED_RULES,
    WATCH_SILENT_S,
    ControlFacts,
    Verdict,
    VerdictInputs,
    VerdictWord,
    main_incident,
    verdict,
)  # fmt: skip
from trainvitals.records import (
    CheckpointReport,
    Event,
    Finding,
    Incident,
    NodeSample,
    NonFinite,
    Severity,
)
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.protocol import Store
from trainvitals.web.attempts import attempts_of, phase_of
from trainvitals.web.checkpoint_advice import card_of, newest_verified, pause_of, suspects_of, way_back_of
from trainvitals.web.checkpoints import CheckpointFacts, CheckpointReader
from trainvitals.web.configuration import ConfigurationReader
from trainvitals.web.death import newest_death, reading_words, told_in
from trainvitals.web.facts import Facts, sort_out
from trainvitals.web.incident_then import ThenReader, attempts_in, is_past
from trainvitals.web.lost import reading_health
from trainvitals.web.metrics import Row, is_about_metrics, last_rows, metrics_now, pace
from trainvitals.web.not_watched import not_watched
from trainvitals.web.spool import SpoolNumbers
from trainvitals.web.starts import StartReader
from trainvitals.web.supervisor_view import supervisor_view
from trainvitals.web.supervisor_words import with_restart
from trainvitals.web.told_troubles import told_troubles, with_unread_log
from trainvitals.web.validation import ValidationReader
from trainvitals.web.view import AttemptView, Check, ControlView, MetricNow, RunView, Then

DAY_NS = 86_400 * 10**9
#: Later than this the rules for dead runs and for stalls have spoken; a log in another time zone must not worry for hours.
FAULT_NEWS_NS = 600 * 10**9
#: Kinds read together, and how many of the newest: bounded, so that a run of months costs what a run of an hour costs.
EVENT_READS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("incident",), 1000),
    (("finding",), 1000),
    (("attempt_start", "attempt_end", "resume", "postmortem"), 1000),
    (("control", "breaker"), 500),
    (("annotation",), 200),
    (("acknowledgement", "silence"), 200),
    (("fault",), 300),
    (("data", "message", "phase"), 500),
    (("watch",), 100),
    (("supervisor",), 500),
)
MAX_OUTSIDE = 200


def run_view(
    settings: Settings,
    store: Store,
    run: RunSettings,
    control: ControlView,
    now_ns: int,
    nodes: Sequence[NodeSample] = (),
    requests: Sequence[Event] = (),
    configurations: ConfigurationReader | None = None,
    validations: ValidationReader | None = None,
    checkpoints: CheckpointReader | None = None,
    starts: StartReader | None = None,
    thens: ThenReader | None = None,
    breaker_hold: str = "",
) -> RunView:
    """Everything the pages show of ``run`` at ``now_ns``. requests: what was asked of it, from its control directory.
    breaker_hold: what forbids its breaker to pause now, as its watchdog tells it.
    configurations, validations, checkpoints, starts, thens: read what changes rarely or is much, and remember it. Raises what the
    store raises."""
    stored = (checkpoints or CheckpointReader()).of(store, run.name, now_ns)
    facts = read_facts(store, run.name, now_ns, stored)
    rows = last_rows(store, run.name, now_ns)
    last = rows[-1] if rows else None
    attempts = attempts_of(
        facts.of_kind("attempt_start", "attempt_end", "resume"), rows, lambda n: last_point_of(store, run.name, n, now_ns)
    )
    attempt = current_attempt(attempts)
    seen_ns, was_read, lost, spool = _heartbeat(store, run.name, now_ns)
    incident = main_incident(apart(facts.incidents, facts.findings, attempt.started_ns if attempt else None))
    onset_ns = _onset_ns(store, run.name, facts, incident)
    of_metrics = main_incident([one for one in facts.incidents if is_about_metrics(one)])
    metrics_onset_ns = onset_ns if of_metrics is incident else _onset_ns(store, run.name, facts, of_metrics)
    metrics = metrics_now(store, run.name, rows, of_metrics, facts.findings, metrics_onset_ns)
    speed = pace(rows)
    suspects = suspects_of(facts, attempts)
    newest = newest_verified(facts.checkpoints)
    way_back = way_back_of(run, facts, stored, attempts, rows, speed.step_s, metrics)
    recommended = way_back.checkpoint
    breaker_events = [event for event in facts.of_kind("breaker") if event.data.get("decision") != "mode"]  # not by itself
    inputs = VerdictInputs(
        now_ns=now_ns,
        incidents=facts.incidents,
        findings=facts.findings,
        control=ControlFacts(
            control.state, control.desired, control.by, control.source, control.reason, control.at_step, control.since_ns
        ),
        breaker_mode=run.breaker,
        breaker_hold=breaker_hold,
        breaker_events=breaker_events,
        attempt=attempt.number if attempt else None,
        attempt_started_ns=attempt.started_ns if attempt else None,
        attempt_ended_ns=attempt.ended_ns if attempt else None,
        resumed_from_step=attempt.resumed_from_step if attempt else None,
        end_reason=attempt.end_reason if attempt else "",
        last_step=last.step if last else None,
        last_step_time_ns=last.time_ns if last else None,
        typical_step_s=speed.step_s,
        typical_gap_s=speed.gap_s,
        total_steps=run.total_steps,
        phase=phase_of(facts.of_kind("phase"), attempt, now_ns, last),
        watch_seen_ns=seen_ns,
        was_read=was_read,
        fault=_last_fault(facts.of_kind("fault"), last, now_ns),
        recommended_step=recommended.step if recommended else None,
        recommended_level=str(recommended.level) if recommended and recommended.level else "",
        none_recommended="" if recommended else way_back.why,
        recommended_is_pinned=way_back.is_pinned,
        gpus=run.gpus,
    )
    steps_per_s = 1 / speed.step_s if speed.step_s else None
    remaining = run.total_steps - last.step if run.total_steps and last else 0
    troubles = told_troubles(facts.events)
    is_watched = seen_ns is not None and (now_ns - seen_ns) / 1e9 <= WATCH_SILENT_S
    found = told_in(
        with_unread_log(verdict(inputs), troubles, inputs.last_step, is_watched=is_watched),
        newest_death(facts.events, attempt.number, inputs.last_step_time_ns) if attempt else None,
        reading_words(run, facts.findings, facts.incidents, inputs.attempt, now_ns),
        inputs.attempt,
        inputs.last_step,
        run.log_timezone,
    )
    supervisor = supervisor_view(facts.of_kind("supervisor"), settings.supervisor.restarts_per_day, now_ns)
    is_moving = control.state not in ("paused", "stopped") and found.word not in (
        VerdictWord.HUNG,
        VerdictWord.STOPPED,
        VerdictWord.FINISHED,
        VerdictWord.HISTORY,
    )
    nonfinite = [(m.name, m.nonfinite) for m in metrics.values() if m.nonfinite is not None]
    about = incident or _incident_of(found, inputs, run.name)
    past = (thens or ThenReader()).of(store, run.name, facts.incidents, facts.findings, inputs.attempt, now_ns)
    measured = measured_in(about, facts.findings, past, metrics, inputs.attempt) if about is not None else {}
    made_of = (configurations or ConfigurationReader()).of(store, run.name, attempts, now_ns, run.dir)
    return RunView(
        settings=run,
        taken_at_ns=now_ns,
        verdict=with_restart(found, supervisor, control.supervisor, now_ns),
        control=control,
        checks=()
        if about is None
        else checks_of(
            facts.findings,
            facts.events,
            facts.checkpoints,
            about,
            onset_ns,
            attempt,
            nodes,
            nonfinite,
            "grad_norm" in metrics,
            measured.get("lr"),
            any(attempt and one.attempt == attempt.number for one in made_of),
            measured.get("grad_norm"),
            is_past=is_past(about, facts.findings, inputs.attempt),
        ),
        attempts=attempts,
        last_step=inputs.last_step,
        last_step_time_ns=inputs.last_step_time_ns,
        first_step_time_ns=_first_step_ns(store, run.name, attempts),
        watch_seen_ns=seen_ns,
        eta_s=remaining / steps_per_s if is_moving and steps_per_s and remaining > 0 else None,
        steps_per_s=steps_per_s,
        metrics=metrics,
        extra_metrics=tuple(store.extra_metrics(run.name)),
        checkpoints=facts.checkpoints,
        checkpoint_history=facts.checkpoint_history,
        newest_verified=newest,
        recommended=recommended,
        suspects=suspects,
        incidents=facts.incidents,
        findings=facts.findings,
        events=facts.events,
        control_history=tuple(sorted([*facts.control, *requests], key=lambda event: event.time_ns or 0)),
        not_watched=not_watched(run, control, facts, nodes, seen_ns, now_ns, settings, spool, troubles),
        reading=reading_health(lost, facts.events),
        configurations=made_of,
        validations=(validations or ValidationReader()).of(store, run.name, now_ns),
        saves=stored.saves,
        choices=stored.choices,
        pinned=stored.pinned,
        rollback=way_back,
        pause=pause_of(run, facts, way_back),
        supervisor=supervisor,
        card=card_of(run, facts.checkpoints, stored, attempts, speed.step_s, inputs.last_step_time_ns),
        starts=(starts or StartReader()).of(
            store, run.name, attempts, facts.findings, stored.history, stored.checks, [one.attempt for one in made_of], now_ns
        ),
        thens=past,
        troubles=troubles,
    )


def _incident_of(found: Verdict, inputs: VerdictInputs, run: str) -> Incident | None:
    """A hang or an end that no rule has made an incident of yet has checks all the same."""
    rule = {VerdictWord.HUNG: "stall", VerdictWord.STOPPED: "run_dead"}.get(found.word)
    if rule is None or found.tone != "critical":
        return None
    since_ns = found.since_ns or inputs.now_ns
    return Incident(
        f"{run}/{rule}/now", run, "time", Severity.CRITICAL, (rule,), (), inputs.last_step, None, since_ns, inputs.now_ns, None,
        found.headline, found.headline,
    )  # fmt: skip


def read_facts(store: Store, run: str, now_ns: int, stored: CheckpointFacts | None = None) -> Facts:
    """The newest events of every kind, sorted out. A clock ahead by less than a day hides nothing. stored: of the checkpoints."""
    stored = stored or CheckpointReader().of(store, run, now_ns)
    events: list[Event] = []
    for kinds, limit in EVENT_READS:
        events.extend(store.events(run, kinds, 0, now_ns + DAY_NS, limit=limit, newest_first=True))
    for owner in (run, ""):  # alerts of another monitoring system, of this run and of the cluster
        events.extend(store.events(owner, ("external",), 0, now_ns + DAY_NS, limit=MAX_OUTSIDE, newest_first=True))
    facts = sort_out(events)
    facts.unreadable.count += stored.unreadable.count
    facts.unreadable.last = facts.unreadable.last or stored.unreadable.last
    return replace(facts, checkpoints=stored.reports, checkpoint_history=stored.history)


def _first_step_ns(store: Store, run: str, attempts: Sequence[AttemptView]) -> int | None:
    if not attempts:
        return None
    first = attempts[0]
    stored = store.time_of_step(run, first.number, first.first_step) if first.first_step is not None else None
    return stored if stored is not None else first.started_ns


def _onset_ns(store: Store, run: str, facts: Facts, incident: Incident | None) -> int | None:
    if incident is None:
        return None
    members = [finding for finding in facts.findings if finding.id in incident.finding_ids]
    if members:
        first = next((one for one in members if one.id == incident.finding_ids[0]), members[0])
        stored = store.time_of_step(run, first.attempt, first.first_step)
        if stored is not None:
            return stored
    return min((finding.time_ns for finding in members if finding.time_ns is not None), default=incident.opened_at_ns)


def measured_in(
    incident: Incident, findings: Sequence[Finding], thens: Mapping[str, Then], now: Mapping[str, MetricNow], attempt: int | None
) -> Mapping[str, MetricNow]:
    """The values that an incident is judged by: the newest while it goes on, its own once it is over or ``attempt`` is a later start."""
    return thens.get(incident.id, Then()).metrics if is_past(incident, findings, attempt) else now


def _is_other_settings(finding: Finding, attempt: int) -> bool:
    """What changed at this attempt's start is an incident of its own, and evidence in every other one."""
    return finding.rule == "resume_config_changed" and finding.attempt == attempt


def checks_of(
    findings: Sequence[Finding],
    events: Sequence[Event],
    checkpoints: Sequence[CheckpointReport],
    incident: Incident,
    onset_ns: int | None,
    attempt: AttemptView | None,
    nodes: Sequence[NodeSample],
    nonfinite: Sequence[tuple[str, NonFinite]] = (),
    has_grad_norm: bool = False,
    lr: MetricNow | None = None,
    tells_settings: bool = False,
    grad_norm: MetricNow | None = None,
    *,
    is_past: bool = False,
) -> tuple[Check, ...]:
    """The checks of one incident, from what a view holds; the incidents page uses it for older incidents too. lr, grad_norm: of
    the incident itself; is_past: they are no values of now. tells_settings: the attempt told what it is made of."""
    members = [finding for finding in findings if finding.id in incident.finding_ids]
    resumed = attempt.resumed_from_step if attempt else None
    attempts = attempts_in(incident, findings)
    is_death = bool(STOPPED_RULES & set(incident.rules))
    seen = list(nonfinite)
    for finding in [*members, *(_led_to_death(findings, members) if is_death else ())]:
        if finding.rule.endswith("_nonfinite") and not any(name in finding.rule for name, _ in seen):
            seen.append((finding.rule.removesuffix("_nonfinite"), "nan"))
    evidence = Evidence(
        onset_step=onset_step(incident, members),
        onset_ns=onset_ns or incident.opened_at_ns,
        attempt=attempt.number if attempt else None,
        attempt_first_step=attempt.first_step if attempt else None,
        attempt_started_ns=attempt.started_ns if attempt else None,
        events=events,
        findings=[*members, *(f for f in findings if attempt and _is_other_settings(f, attempt.number) and f not in members)],
        nodes=tuple(nodes) or None,
        nonfinite=seen,
        has_grad_norm=has_grad_norm,
        lr_now=lr.value if lr is not None else None,
        lr_usual=lr.usual if lr is not None else None,
        grad_norm_now=grad_norm.value if grad_norm is not None else None,
        grad_norm_usual=grad_norm.usual if grad_norm is not None else None,
        when="at its worst" if is_past else "now",
        resumed_from_step=resumed,
        tells_settings=tells_settings,
        attempts=attempts,
        ended_ns=None if is_death else incident.closed_at_ns,  # the logs of the dead are read while the next attempt begins
        resumed_checkpoint=next((c for c in checkpoints if resumed is not None and c.step == resumed), None),
    )
    return triage(leading_rule(members, incident.rules, incident.family), evidence)


def _led_to_death(findings: Sequence[Finding], deaths: Sequence[Finding]) -> list[Finding]:
    """Numbers that were not finite in the last steps of an attempt that died: an incident of their own, and evidence in this one."""
    last_step = {death.attempt: death.first_step for death in deaths}
    return [
        one for one in findings
        if one.rule.endswith("_nonfinite") and 0 <= last_step.get(one.attempt, -1) - one.first_step <= DATA_WINDOW_STEPS
    ]  # fmt: skip


def _last_fault(faults: Sequence[Event], last: Row | None, now_ns: int) -> Event | None:
    """The first grave fault after the newest step: a run is called dead a while later, and is not healthy until then."""
    if last is None:
        return None
    open_ones = [
        event
        for event in faults
        if event.severity is Severity.CRITICAL
        and event.data.get("survived") is not True
        and event.attempt in (None, last.attempt)
        and last.time_ns < (event.time_ns or 0) <= now_ns <= (event.time_ns or 0) + FAULT_NEWS_NS
    ]
    return min(open_ones, key=lambda event: event.time_ns or 0, default=None)


def _heartbeat(store: Store, run: str, now_ns: int) -> tuple[int | None, bool, int, SpoolNumbers]:
    """(when the watchdog was last heard of, whether it has read a step, records it knows to be lost, what its spool and those of
    the nodes hold)."""
    spool_fields = ["spool_depth", "spool_age_s", "spool_dropped", "spool_dead"]
    fields = ["lost_records", "step_max", *spool_fields]
    frame: pd.DataFrame = store.latest("heartbeat", fields, {"run": run}, 400 * DAY_NS, now_ns + DAY_NS)
    # Collectors belong to a machine, not to a run; a machine that was taken away a day ago is no news.
    machines: pd.DataFrame = store.latest("heartbeat", spool_fields, {"run": ""}, 2 * DAY_NS, now_ns + DAY_NS)
    spool = SpoolNumbers.of(frame, machines)
    if frame.empty:
        return None, False, 0, spool
    lost = frame["lost_records"].dropna()
    was_read = bool(frame["step_max"].notna().any())
    return int(frame["time_ns"].max()), was_read, int(lost.sum()) if len(lost) else 0, spool


def last_point_of(store: Store, run: str, attempt: int, now_ns: int) -> tuple[int, int] | None:
    """Step and time (UTC ns) of the newest point of an attempt, None when it has none."""
    frame = store.raw("train", ["step"], {"run": run, "attempt": str(attempt)}, 0, now_ns + DAY_NS, limit=1, newest_first=True)
    if frame.empty or pd.isna(frame["step"].iloc[0]):
        return None
    return int(frame["step"].iloc[0]), int(frame["time_ns"].iloc[0])
