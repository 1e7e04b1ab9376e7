"""The one sentence at the top of every page: a pure function of what is known of a run.

Words in the order in which they win: FINISHED and STOPPED (the trainer is gone), HISTORY (nobody saw it alive), HUNG, TRAINING-SICK (also while it is paused
because of that), PAUSED, NO DATA, SLOW, ATTENTION (something beside the training, such as a broken checkpoint), RECOVERED, healthy. No data is a state of its own and never reads as healthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainvitals.incidents import deciding
from trainvitals.incidents.amounts import gpu_hours as gpu_hours
from trainvitals.incidents.amounts import span as span
from trainvitals.incidents.breaker_words import breaker_words
from trainvitals.incidents.deciding import HUNG_RULES as HUNG_RULES
from trainvitals.incidents.deciding import STOPPED_RULES as STOPPED_RULES
from trainvitals.incidents.deciding import main_incident as main_incident
from trainvitals.incidents.verdict_word import VerdictWord as VerdictWord
from trainvitals.records import Event, Finding, Incident, Severity

#: A watchdog that has not been heard of for this long is called silent (it beats every 2 s).
WATCH_SILENT_S = 30.0
#: Time since the last step that means "hung": 5 typical steps, and never under a minute.
HUNG_STEPS = 5.0
HUNG_FLOOR_S = 60.0
#: Steps of a run that was never watched are history when they are this old, those of one whose watchdog is gone a day later.
UNWATCHED_S = 10 * 60.0
ABANDONED_S = 86_400.0
#: Ways of ending that are no fault.
GOOD_ENDS = frozenset({"finished", "completed", "complete", "done", "max_steps"})
#: While the trainer says one of these, a missing step is no hang.
RESTING_STATES = frozenset({"pausing", "paused", "resuming", "checkpointing", "stopping", "stopped"})


@dataclass(frozen=True)
class Verdict:
    """tone: critical, warning, paused, info or ok. ``automatic``: what was done by itself. ``decision``: what is yours."""

    word: VerdictWord
    tone: str
    headline: str
    since_ns: int | None
    automatic: str = ""
    decision: str = ""
    incident_id: str | None = None


@dataclass(frozen=True)
class ControlFacts:
    """What the control status says, in plain values; ``state`` as in ``trainvitals.web.view.ControlView``."""

    state: str = "not_wired"
    desired: str = "running"
    by: str = ""
    source: str = ""
    reason: str = ""
    at_step: int | None = None
    since_ns: int | None = None


@dataclass(frozen=True)
class VerdictInputs:
    """Everything the verdict depends on. Times are UTC ns; None = never seen.

    typical_gap_s: usual time between two step records (a log may tell every tenth step only).
    breaker_hold: what forbids it to pause now, a clause, "" = nothing. breaker_events: events of kind ``breaker``, any order. phase: the phase the trainer said it is in ("" = training).
    redo_steps and gpus price a way back; ``recommended_step`` is the checkpoint one would go back to, none_recommended: why there is none.
    fault: the newest critical ``fault`` event that no step has followed. was_read: the watchdog has read a step of this run itself; without one everything stored was imported.
    """

    now_ns: int
    incidents: Sequence[Incident] = ()
    findings: Sequence[Finding] = ()
    control: ControlFacts = ControlFacts()
    breaker_mode: str = "dry-run"
    breaker_hold: str = ""
    breaker_events: Sequence[Event] = ()
    attempt: int | None = None
    attempt_started_ns: int | None = None
    attempt_ended_ns: int | None = None
    resumed_from_step: int | None = None
    end_reason: str = ""
    last_step: int | None = None
    last_step_time_ns: int | None = None
    typical_step_s: float | None = None
    typical_gap_s: float | None = None
    total_steps: int = 0
    phase: str = ""
    watch_seen_ns: int | None = None
    was_read: bool = True
    fault: Event | None = None
    recommended_step: int | None = None
    recommended_level: str = ""
    none_recommended: str = ""
    recommended_is_pinned: bool = False
    gpus: int = 0


def hung_after_s(typical_gap_s: float | None) -> float:
    """Seconds without a step record that mean a hang: five usual gaps between records, at least a minute."""
    return max(HUNG_FLOOR_S, HUNG_STEPS * (typical_gap_s or 0.0))


def verdict(inputs: VerdictInputs) -> Verdict:
    """The verdict at ``inputs.now_ns``."""
    inputs = replace(inputs, incidents=deciding.apart(inputs.incidents, inputs.findings, inputs.attempt_started_ns))
    incident = main_incident(inputs.incidents)
    rules = deciding.open_rules(incident, inputs.findings)
    silent_s = None if inputs.watch_seen_ns is None else max(0.0, (inputs.now_ns - inputs.watch_seen_ns) / 1e9)
    is_watched = silent_s is not None and silent_s <= WATCH_SILENT_S
    is_paused = inputs.control.state in ("paused", "pausing")
    ended = _ended(inputs, incident, rules)
    if ended is not None:
        return ended
    past = _history(inputs, incident, rules, silent_s)
    if past is not None:
        return past
    if incident and rules & HUNG_RULES and not is_paused:
        return _open(VerdictWord.HUNG, incident, inputs, is_watched, silent_s)
    hung = _hung_by_time(inputs, is_watched)
    if hung is not None:
        return hung
    if incident and deciding.is_about_training(rules):
        return _beside(_open(VerdictWord.SICK, incident, inputs, is_watched, silent_s), incident, inputs)
    if is_paused:
        return _paused(inputs, incident)
    if inputs.last_step is None or not is_watched:
        return _no_data(inputs, silent_s, incident)
    if incident:
        word = VerdictWord.SLOW if deciding.is_slow(rules) else VerdictWord.ATTENTION
        return _beside(_open(word, incident, inputs, is_watched, silent_s), incident, inputs)
    if inputs.fault is not None:
        return Verdict(
            VerdictWord.ATTENTION, "warning", f"the log tells of a failure after step {inputs.last_step:,}: {inputs.fault.text[:200].strip()}",
            inputs.fault.time_ns, "If no step follows, the run is called dead within minutes, and the ends of its logs are read.",
        )  # fmt: skip
    return _well(inputs)


def _ended(inputs: VerdictInputs, incident: Incident | None, rules: set[str]) -> Verdict | None:
    control = inputs.control
    said_goodbye = control.state == "stopped"
    at = f" at step {inputs.last_step:,}" if inputs.last_step is not None else ""
    if inputs.attempt_ended_ns is None and not said_goodbye and not rules & STOPPED_RULES:
        if inputs.control.state in RESTING_STATES or not (inputs.phase == "finished" or _is_complete(inputs)):
            return None
        return _finished(inputs, incident, rules, inputs.last_step_time_ns)
    since_ns = (
        inputs.attempt_ended_ns or (control.since_ns if said_goodbye else None) or (incident.opened_at_ns if incident else None)
    )
    # After the stop a resume only says that it may start again: the end was wished all the same.
    was_wished = control.desired == "stopped" or (said_goodbye and inputs.end_reason.lower().startswith("stopped"))
    # A supervisor that gives up asks for the stop itself: nobody wished for that.
    is_held = bool(rules & deciding.HELD_RULES) or (control.desired, control.source) == ("stopped", "supervisor")
    is_asked = was_wished and not is_held and (said_goodbye or inputs.attempt_ended_ns is not None)
    reached_the_end = bool(inputs.total_steps) and (inputs.last_step or 0) >= inputs.total_steps
    if not is_asked and not is_held and not rules & STOPPED_RULES and (inputs.end_reason.lower() in GOOD_ENDS or reached_the_end):
        return _finished(inputs, incident, rules, since_ns)
    if is_asked:
        why, tone = f"on request of {control.by or control.source or 'somebody'}{_because(control.reason)}", "warning"
    elif is_held and not rules & deciding.HELD_RULES:
        why, tone = f"the supervisor starts it no more{_because(control.reason)}", "critical"
    elif inputs.end_reason and inputs.attempt_ended_ns is not None and not is_held:
        why, tone = f"the trainer ended: {inputs.end_reason}", "critical"
    else:
        why, tone = deciding.stopped_words(incident, rules, inputs.findings), "critical"
    number = f"attempt {inputs.attempt}" if inputs.attempt is not None else "the run"
    return Verdict(
        VerdictWord.STOPPED, tone, f"{number} stopped{at}; {why}", since_ns, _breaker(inputs, incident),
        _way_back(inputs, "Restart"), incident.id if incident else None,
    )  # fmt: skip


def _finished(inputs: VerdictInputs, incident: Incident | None, rules: set[str], since_ns: int | None) -> Verdict:
    """An end that was planned is no proof that the result is any good: what was open at the end is still open."""
    at = f" at step {inputs.last_step:,}" if inputs.last_step is not None else ""
    headline = f"the run ended as planned{at}"
    if incident is None or deciding.is_slow(rules) or rules <= HUNG_RULES:
        return Verdict(VerdictWord.FINISHED, "ok", headline, since_ns)
    tone = "critical" if incident.severity is Severity.CRITICAL else "warning"
    todo = (
        f"Look at it before anything is built on the last weights. {_way_back(inputs, 'Go back')}"
        if deciding.is_about_training(rules) else "Look at it before anything is built on this run's checkpoints."
    )  # fmt: skip
    headline += f", but open at its end: {deciding.title_words(incident)}"
    return Verdict(VerdictWord.FINISHED, tone, headline, since_ns, _breaker(inputs, incident), todo, incident.id)


def _is_complete(inputs: VerdictInputs) -> bool:
    """The last planned step is there. One that is beyond it says that the plan is wrong, as long as steps come."""
    if not inputs.total_steps or inputs.last_step is None or inputs.last_step < inputs.total_steps:
        return False
    return inputs.last_step == inputs.total_steps or _silence_s(inputs) > hung_after_s(inputs.typical_gap_s)


def _silence_s(inputs: VerdictInputs) -> float:
    return 0.0 if inputs.last_step_time_ns is None else (inputs.now_ns - inputs.last_step_time_ns) / 1e9


def _history(inputs: VerdictInputs, incident: Incident | None, rules: set[str], silent_s: float | None) -> Verdict | None:
    """Old steps that no watchdog saw come: imported, an old log, or a run that nobody has watched for a day. No emergency."""
    if inputs.last_step is None or inputs.last_step_time_ns is None or inputs.phase == "start":
        return None
    age_s = (inputs.now_ns - max(inputs.last_step_time_ns, inputs.attempt_started_ns or 0)) / 1e9
    was_old = any(f.rule == "stall" and f.is_open and f.data.get("is_history") for f in inputs.findings)
    if silent_s is None:
        is_past, why = age_s > UNWATCHED_S, "nobody watches this run"
    elif silent_s > ABANDONED_S:
        is_past, why = age_s > ABANDONED_S, f"its watchdog was last heard of {span(silent_s)} ago"
    elif not inputs.was_read:
        is_past, why = age_s > HUNG_FLOOR_S, "what is stored was imported: the watchdog has no file that it could follow"
    else:
        is_past, why = was_old and not rules & HUNG_RULES, "it was silent before the watchdog first looked"
    if not is_past:
        return None
    headline = f"last step {inputs.last_step:,}, {span(_silence_s(inputs))} ago; {why}"
    if incident:
        headline += f". Open at its end: {incident.title or ', '.join(incident.rules)}"
    if was_old and inputs.was_read:
        todo = "It ended or died; nothing in its log says which. A step that comes is watched at once."
    else:
        todo = "To watch it, if it still trains: name its logs in trainvitals.toml, then python -m trainvitals up. Else there is nothing to do."
    return Verdict(VerdictWord.HISTORY, "info", headline, inputs.last_step_time_ns, todo, "", incident.id if incident else None)


def _hung_by_time(inputs: VerdictInputs, is_watched: bool) -> Verdict | None:
    resting = inputs.control.state in RESTING_STATES or inputs.phase in ("checkpoint", "eval", "start", "paused", "finished")
    if not is_watched or inputs.last_step_time_ns is None or resting or inputs.fault is not None:
        return None
    # A new attempt starts its own clock: loading a checkpoint takes minutes and is no hang of the old one.
    since_ns = max(inputs.last_step_time_ns, inputs.attempt_started_ns or 0)
    waited_s = (inputs.now_ns - since_ns) / 1e9
    if waited_s <= hung_after_s(inputs.typical_gap_s or inputs.typical_step_s):
        return None
    usual = f" (usual {span(inputs.typical_step_s)} a step)" if inputs.typical_step_s else ""
    return Verdict(
        VerdictWord.HUNG, "critical", f"no step for {span(waited_s)} after step {inputs.last_step:,}{usual}", since_ns,
        _automatic(inputs, None),
        "Look at the cluster: which rank is behind, is it alive, what does its log say. Busy GPUs prove nothing.",
    )  # fmt: skip


def _open(word: VerdictWord, incident: Incident, inputs: VerdictInputs, is_watched: bool, silent_s: float | None) -> Verdict:
    headline = deciding.title_words(incident)
    if not is_watched:
        headline += f" (as known {span(silent_s)} ago: the watchdog is silent)" if silent_s is not None else " (no watchdog seen)"
    if word is VerdictWord.HUNG:
        decision = "Look at the cluster: which rank is behind, is it alive, what does its log say. Busy GPUs prove nothing."
    elif word is VerdictWord.ATTENTION and "resume_behind" in incident.rules:
        decision = "Steps that were done are done again, or would be at a restart. See which checkpoint is loaded, and why."
    elif word is VerdictWord.ATTENTION:
        decision = "Training itself is fine. Look at this before you need it."
    elif word is VerdictWord.SLOW:
        decision = "Training goes on. Look for the slow node or the slow storage within hours."
    elif incident.severity is Severity.CRITICAL or inputs.control.state == "paused":
        decision = _way_back(inputs, "Go back")
    else:
        decision = "Nobody needs to act this minute. Go through the checks; pause if it gets worse."
    return Verdict(
        word, "critical" if word is VerdictWord.HUNG or incident.severity is Severity.CRITICAL else "warning", headline, incident.opened_at_ns,
        _automatic(inputs, incident), decision, incident.id,
    )  # fmt: skip


def _beside(found: Verdict, incident: Incident, inputs: VerdictInputs) -> Verdict:
    """With what was worse than ``incident`` and is over: a fresh death or hang in the headline, behind what is open; later beside it."""
    over = deciding.recovered(inputs.incidents, inputs.now_ns, inputs.attempt_started_ns)
    worse = [one for one in over if one.severity.rank > incident.severity.rank]
    if not worse:
        return found
    gravest = worse[0]
    words = deciding.recovered_words(
        gravest,
        deciding.goes_on_words(gravest, inputs.attempt, inputs.attempt_started_ns, inputs.resumed_from_step),
        len(worse) - 1,
    )
    age_s = (inputs.now_ns - (gravest.closed_at_ns or 0)) / 1e9
    is_death = bool(set(gravest.rules) & (STOPPED_RULES | HUNG_RULES))
    if age_s > deciding.RECOVERED_LOUD_S or not is_death or found.word is VerdictWord.SICK:
        return replace(found, automatic=f"{found.automatic} Over for {span(age_s)}: {words}.".strip())
    decision = found.decision.replace("Training itself is fine. Look at this", "Training goes on. Look at what is open")
    word = VerdictWord.ATTENTION if found.word is VerdictWord.SLOW else found.word
    return replace(found, word=word, headline=f"{found.headline}. Over: {words}", decision=decision)


def _paused(inputs: VerdictInputs, incident: Incident | None) -> Verdict:
    control = inputs.control
    at = f" at step {control.at_step:,}" if control.at_step is not None else ""
    who = control.by or control.source or "somebody"
    verb = "pausing" if control.state == "pausing" else "paused"
    return Verdict(
        VerdictWord.PAUSED, "paused", f"{verb} by {who}{at}{_because(control.reason)}", control.since_ns,
        "The trainer holds its GPUs and acknowledged the pause." if control.state == "paused" else "The trainer is on its way.",
        f"Resume goes on with the weights in memory; {_way_back(inputs, 'going back')}".rstrip("; ") if control.state == "paused" else "",
        incident.id if incident else None,
    )  # fmt: skip


def _no_data(inputs: VerdictInputs, silent_s: float | None, incident: Incident | None) -> Verdict:
    if silent_s is None:
        headline = "no watchdog has reported on this run yet"
        decision = "Start it: python -m trainvitals watch --run NAME, or python -m trainvitals up."
    elif silent_s > WATCH_SILENT_S:
        headline = f"the watchdog has been silent for {span(silent_s)}; what you see is older than that"
        decision = "Training may be fine or not: nobody looks. Restart the watchdog (python -m trainvitals up) and see its log."
    else:
        headline = "waiting for the first step: the watchdog runs and has seen none yet"
        decision = "Right after a start this is usual. If it stays so, see whether the log globs and the run directory are right."
    return Verdict(
        VerdictWord.UNKNOWN, "warning", headline, inputs.watch_seen_ns, "", decision, incident.id if incident else None
    )


def _well(inputs: VerdictInputs) -> Verdict:
    over = deciding.recovered(inputs.incidents, inputs.now_ns, inputs.attempt_started_ns)
    if over:
        gravest = over[0]
        is_fresh = inputs.now_ns - (gravest.closed_at_ns or 0) <= deciding.RECOVERED_LOUD_S * 1e9
        goes_on = deciding.goes_on_words(gravest, inputs.attempt, inputs.attempt_started_ns, inputs.resumed_from_step)
        was_restarted = inputs.attempt_started_ns is not None and inputs.attempt_started_ns > gravest.opened_at_ns
        by_itself = _breaker(inputs, gravest) or (
            f"Attempt {inputs.attempt} goes on since." if was_restarted else "Over without anybody's help."
        )
        return Verdict(
            VerdictWord.RECOVERED, "info", deciding.recovered_words(gravest, goes_on, len(over) - 1), gravest.closed_at_ns,
            f"{by_itself} Nothing to do now; read the incident when you are awake.".strip() if is_fresh else "", "", gravest.id,
        )  # fmt: skip
    since = [i.closed_at_ns for i in inputs.incidents if i.closed_at_ns is not None and i.severity.rank >= Severity.WARNING.rank]
    since_ns = max([*since, *([inputs.attempt_started_ns] if inputs.attempt_started_ns is not None else [])], default=None)
    return Verdict(VerdictWord.HEALTHY, "ok", f"step {inputs.last_step:,}, nothing open", since_ns)


def _automatic(inputs: VerdictInputs, incident: Incident | None) -> str:
    """What was done by itself, in a sentence; the breaker's answer is always given while something critical is open."""
    control = inputs.control
    if control.state in ("paused", "pausing"):
        at = f" at step {control.at_step:,}" if control.at_step is not None else ""
        who = "the breaker" if control.source == "breaker" else control.by or control.source or "somebody"
        when = f", {_ago(inputs, control.since_ns)}" if control.since_ns is not None else ""
        done = "Paused" if control.state == "paused" else "Pausing"
        return f"{done}{at} by {who}{when}" + (", acknowledged by the trainer." if done == "Paused" else ".")
    told = _breaker(inputs, incident)
    if told:
        return told
    if incident is None or incident.severity is not Severity.CRITICAL:
        return ""
    if control.state == "not_wired":
        return "Nothing was done by itself: the trainer has no hook that takes requests, so nothing can pause it from here."
    if inputs.breaker_mode == "off":
        return "Nothing was done by itself: the breaker is off for this run."
    if inputs.breaker_mode == "dry-run":
        return "Nothing was done by itself: the breaker is in dry-run, and its conditions are not met."
    if inputs.breaker_hold:
        return f"The breaker is armed, and held now: {inputs.breaker_hold}."
    return "The breaker is armed; its conditions are not met yet."


def _breaker(inputs: VerdictInputs, incident: Incident | None) -> str:
    if incident is None:
        return ""
    return breaker_words(
        inputs.breaker_events, incident, deciding.open_rules(incident, inputs.findings), inputs.attempt, inputs.last_step
    )


def _way_back(inputs: VerdictInputs, verb: str) -> str:
    if inputs.recommended_step is None:
        why = inputs.none_recommended.rstrip(".") or "no checkpoint is verified"
        return f"{verb}: {why}; look at the checkpoints before you restart anything."
    pinned = ", pinned" if inputs.recommended_is_pinned else ""
    level = f" ({inputs.recommended_level} verified{pinned})" if inputs.recommended_level else ""
    redo = max(0, (inputs.last_step or inputs.recommended_step) - inputs.recommended_step)
    cost = f"redoes {redo:,} step{'s' if redo != 1 else ''}"
    if inputs.gpus and inputs.typical_step_s:
        hours = gpu_hours(redo * inputs.typical_step_s * inputs.gpus / 3600)
        cost += f" = {hours}" if hours else ""
    text = f"{verb} from step {inputs.recommended_step:,}{level} {cost}" if verb != "Go back" else (
        f"Going back to step {inputs.recommended_step:,}{level} {cost}"
    )  # fmt: skip
    holding = gpu_hours(inputs.gpus / 60)
    if inputs.control.state == "paused" and holding:
        text += f"; holding costs {holding} a minute"
    return text + "."


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _ago(inputs: VerdictInputs, time_ns: int | None) -> str:
    return "an unknown time ago" if time_ns is None else f"{span((inputs.now_ns - time_ns) / 1e9)} ago"
