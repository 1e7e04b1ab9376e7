"""What the overview says, as plain mappings for the components: one place for its words, free of Streamlit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.control.requests import ACKNOWLEDGE
from trainvitals.incidents.triage import BAD_NODE_STATES
from trainvitals.incidents.verdict import Verdict, VerdictWord, gpu_hours
from trainvitals.records import Incident, NodeSample, Severity
from trainvitals.schema import THROUGHPUT_METRICS
from trainvitals.web import format as fmt
from trainvitals.web.node_words import context_words, count_words, report_fact
from trainvitals.web.stale import data_age_s, verdict_now
from trainvitals.web.supervisor_words import restart_fact
from trainvitals.web.view import ControlView, MetricNow, RunView, Snapshot

METRIC_LABELS: Mapping[str, str] = {
    "loss": "Loss", "grad_norm": "Grad norm", "tokens_per_s": "Tokens/s", "samples_per_s": "Samples/s",
    "tflops_per_gpu": "TFLOP/s per GPU", "step_time_s": "Step time",
}  # fmt: skip
#: In front of the verdict in the browser's tab, where there is no colour.
TAB_GLYPHS: Mapping[str, str] = {"critical": "▲ ", "warning": "△ ", "paused": "⏸ "}
ACTION_LABELS: Mapping[str, str] = {"pause": "Pause…", "resume": "Resume…", "checkpoint": "Checkpoint now…", "safe": "Roll back…"}


def band(snapshot: Snapshot, run: RunView, now_ns: int, refresh_s: float, *, names_people: bool = True) -> dict[str, Any]:
    """The verdict band's view; ``snapshot`` tells whether the store can still be read."""
    verdict = verdict_now(snapshot, run, now_ns)
    facts = []
    if verdict.word is VerdictWord.HEALTHY:
        facts.append(f"step {fmt.step(run.last_step)}")
    elif run.last_step is not None and verdict.word not in (VerdictWord.FINISHED, VerdictWord.HISTORY):
        facts.append(f"last step {fmt.step(run.last_step)}{_ago(run, verdict, now_ns)}")
    if run.control.is_pending:
        facts.append(f"asked for: {run.control.desired}, not answered yet")
    taken = taken_incident(run, verdict)
    if taken is not None:
        since = fmt.clock(taken.acknowledged_at_ns, run.settings.log_timezone, now_ns=now_ns)
        facts.append(f"{taken.acknowledged_by[:80] if names_people else 'somebody'} has it since {since}")
    silent = report_fact(snapshot.nodes, run.name, now_ns)
    if silent and verdict.word not in (VerdictWord.FINISHED, VerdictWord.HISTORY):
        facts.append(silent)
    restart = "" if verdict.word is VerdictWord.RECOVERING else restart_fact(run, now_ns)
    if restart:
        facts.append(restart)
    return {
        "word": verdict.word.value,
        "tone": verdict.tone,
        "headline": "nothing open" if verdict.word is VerdictWord.HEALTHY else verdict.headline,
        "automatic": verdict.automatic,
        "decision": verdict.decision,
        "facts": facts,
        "since": fmt.clock(verdict.since_ns, run.settings.log_timezone, now_ns=now_ns) if verdict.since_ns is not None else "",
        "data_age_s": data_age_s(run, now_ns),
        "stale_after_s": 30,
        "refresh_s": refresh_s,
        "actions": band_actions(verdict, run),
        "tab": f"{TAB_GLYPHS.get(verdict.tone, '')}{verdict.word.value} · {run.name[:60]}" if names_people else "",
        "is_thin": verdict.tone in ("ok", "info") and not verdict.decision and not verdict.automatic,
    }


def _ago(run: RunView, verdict: Verdict, now_ns: int) -> str:
    """How long ago the last step was. The finding of a hang keeps the time at which it became critical; hours later that reads as minutes."""
    if verdict.word is not VerdictWord.HUNG or verdict.incident_id is None or run.last_step_time_ns is None:
        return ""
    return f", {fmt.age(max(0.0, (now_ns - run.last_step_time_ns) / 1e9))}"


def taken_incident(run: RunView, verdict: Verdict) -> Incident | None:
    """The open incident that the verdict is about, when somebody has it: whoever is woken second reads that first."""
    return next((one for one in run.incidents if one.id == verdict.incident_id and one.is_open and one.acknowledged_by), None)


def untaken_incident(run: RunView, verdict: Verdict) -> Incident | None:
    """The open incident that the verdict is about, while nobody has it. Marks are nobody's."""
    return next(
        (
            one
            for one in run.incidents
            if one.id == verdict.incident_id and one.is_open and not one.acknowledged_by and one.severity is not Severity.INFO
        ),
        None,
    )


def band_actions(verdict: Verdict, run: RunView) -> list[dict[str, Any]]:
    """Buttons of the band: only what makes sense now, one accent at most."""
    actions: list[dict[str, Any]] = []
    needs_you = verdict.tone in ("critical", "paused") or run.supervisor.state == "held"
    verb = "Restart from" if verdict.word is VerdictWord.STOPPED else "Roll back to"
    if needs_you and run.recommended is not None:
        actions.append(
            {
                "id": "safe",
                "label": f"{verb} {fmt.step(run.recommended.step)}…",
                "is_primary": run.control.state == "paused" or verdict.word is VerdictWord.STOPPED,
                "help": "what it costs, and the commands to copy; nothing is done by opening this",
            }
        )
    if verdict.word is not VerdictWord.FINISHED:
        actions.extend(
            {"id": action, "label": ACTION_LABELS[action], "is_primary": action == "pause" and verdict.word is VerdictWord.SICK}
            for action in possible_actions(run.control, verdict.word)
            if action != "checkpoint"
        )
    if untaken_incident(run, verdict) is not None:
        actions.append(
            {"id": ACKNOWLEDGE, "label": "Acknowledge…", "help": "say that you have it: no reminders, no second target"}
        )
    return actions


def possible_actions(control: ControlView, word: VerdictWord | None = None) -> tuple[str, ...]:
    """What may be asked of the trainer now, from its own status; nothing where no trainer listens. word: the verdict's, because
    a trainer that was killed still says that it runs."""
    if control.supervisor and control.desired == "stopped" and control.state in ("not_wired", "silent"):
        return ("resume",)  # a start that never came to report: the supervisor, not the trainer, acts on it
    if not control.can_act or control.state in ("not_wired", "unreadable"):
        return ()
    if control.desired == "stopped" or control.state == "stopped":
        return ("resume",) if control.desired != "running" else ()
    if control.desired == "paused" or control.state in ("paused", "pausing"):
        return ("resume",)
    return () if word in (VerdictWord.STOPPED, VerdictWord.FINISHED) else ("pause", "checkpoint")


def rollback_cost(run: RunView) -> str:
    """What going back to the recommended checkpoint costs, in a sentence; empty when there is none."""
    safe = run.recommended
    if safe is None or safe.step is None:
        return ""
    redo = max(0, (run.last_step if run.last_step is not None else safe.step) - safe.step)
    cost = f"Going back runs {redo:,} step{'s' if redo != 1 else ''} again"
    if run.steps_per_s and redo:
        seconds = redo / run.steps_per_s
        hours = gpu_hours(seconds * run.settings.gpus / 3600)
        cost += f": about {fmt.span(seconds)}" + (f" = {hours}" if hours else "")
    holding = gpu_hours(run.settings.gpus / 60) if run.control.state == "paused" else ""
    return cost + (f"; holding costs {holding} a minute." if holding else ".")


def tiles(snapshot: Snapshot, run: RunView, now_ns: int) -> list[dict[str, Any]]:
    """The row of numbers, each against what is usual."""
    shown = [_step_tile(run), _metric_tile(run, "loss"), _metric_tile(run, "grad_norm"), _throughput_tile(run)]
    shown += [
        _left_tile(run),
        _checkpoint_tile(run, now_ns),
        nodes_tile(snapshot.nodes, now_ns),
        _age_tile(snapshot, run, now_ns),
    ]
    return shown


def _step_tile(run: RunView) -> dict[str, Any]:
    total = run.settings.total_steps
    number = run.attempt.number if run.attempt else None
    context = f"of {total:,}" if total else "total not set"
    return {"label": "Step", "value": fmt.step(run.last_step), "context": f"{context} · attempt {number}" if number else context}


def _metric_tile(run: RunView, name: str) -> dict[str, Any]:
    metric = run.metrics.get(name)
    label = METRIC_LABELS.get(name, name)
    if metric is None:
        return {"label": label, "value": fmt.UNKNOWN, "context": "not logged"}
    return {
        "label": label,
        "value": fmt.number(metric.value, metric.nonfinite),
        "context": _context(run, metric),
        "tone": "critical" if metric.is_abnormal else "",
    }


def _context(run: RunView, metric: MetricNow) -> str:
    text = fmt.against(metric.value, metric.usual)
    if run.last_step is not None and metric.step < run.last_step - 100:
        return f"of step {metric.step:,}" + (f" · {text}" if text else "")
    return text or "usual not known yet"


def _throughput_tile(run: RunView) -> dict[str, Any]:
    name = next((name for name in THROUGHPUT_METRICS if name in run.metrics), None)
    if name is None:
        if run.steps_per_s is None:
            return {"label": "Tokens/s", "value": fmt.UNKNOWN, "context": "not logged"}
        name, metric = "step_time_s", None
        value, context = fmt.step_time(1 / run.steps_per_s), "over the last steps"
    else:
        metric = run.metrics[name]
        value, context = (
            fmt.step_time(metric.value, metric.nonfinite)
            if name == "step_time_s"
            else fmt.number(metric.value, metric.nonfinite),
            _context(run, metric),
        )
    none = fmt.UNKNOWN if name == "step_time_s" else "0"  # who makes no step has no time of a step, and no speed
    if run.control.state in ("paused", "stopped"):
        return {"label": METRIC_LABELS[name], "value": none, "context": f"{run.control.state}, was {value}", "tone": "paused"}
    if run.verdict.word in (VerdictWord.HUNG, VerdictWord.STOPPED):
        return {
            "label": METRIC_LABELS[name],
            "value": none,
            "context": f"{run.verdict.word.value.lower()}, was {value}",
            "tone": "critical",
        }
    grave = any(f.is_open and f.rule == "throughput_drop" and f.severity is Severity.CRITICAL for f in run.findings)
    tone = "" if metric is None or not metric.is_abnormal else "critical" if grave else "warning"
    return {"label": METRIC_LABELS[name], "value": value, "context": context, "tone": tone}


def _left_tile(run: RunView) -> dict[str, Any]:
    if not run.settings.total_steps:
        return {"label": "Time left", "value": fmt.UNKNOWN, "context": "total_steps not set"}
    pace = f"{fmt.number(run.steps_per_s)} steps/s" if run.steps_per_s else "pace not known yet"
    if run.last_step is not None and run.last_step >= run.settings.total_steps:
        return {"label": "Time left", "value": "0", "context": "all steps done"}
    if run.eta_s is None:
        return {"label": "Time left", "value": fmt.UNKNOWN, "context": "not moving" if run.steps_per_s else pace}
    return {"label": "Time left", "value": fmt.span(run.eta_s), "context": f"at {pace}"}


def _checkpoint_tile(run: RunView, now_ns: int) -> dict[str, Any]:
    label = "Verified checkpoint"
    newest = run.newest_verified
    if newest is None:
        is_set = bool(run.checkpoints or run.settings.checkpoints)
        context = "none of them verified" if run.checkpoints else "none seen yet" if is_set else "no directory set"
        return {"label": label, "value": "none", "context": context, "tone": "warning" if run.checkpoints else ""}
    level = newest.level.value if newest.level is not None else "?"
    if newest.path in run.suspects:
        doubt = f"{fmt.step(newest.step)} is suspect"
        if run.recommended is None:
            return {"label": "Safe checkpoint", "value": "none", "context": doubt, "tone": "critical"}
        level = run.recommended.level.value if run.recommended.level is not None else "?"
        value = fmt.step(run.recommended.step)
        return {"label": "Safe checkpoint", "value": value, "context": f"{level} · {doubt}"}
    if run.recommended is not None and run.recommended.path != newest.path:
        return {
            "label": label,
            "value": fmt.step(newest.step),
            "context": f"{level} · safe: {fmt.step(run.recommended.step)}",
            "tone": "warning",
        }
    when = f" · {fmt.coarse((now_ns - newest.modified_at_ns) / 1e9)} old" if newest.modified_at_ns is not None else ""
    return {"label": label, "value": fmt.step(newest.step), "context": f"{level}{when}"}


def elsewhere(snapshot: Snapshot, names: Sequence[str], current: str, now_ns: int) -> tuple[tuple[str, str], ...]:
    """(run, sentence) of each other run of ``names`` that somebody must act upon now: one page shows one run, and hides no fire."""
    found = []
    for run in snapshot.runs:
        verdict = verdict_now(snapshot, run, now_ns)
        if run.name != current and run.name in names and verdict.tone == "critical":
            found.append((run.name, f"{run.name}: {verdict.word.value} {verdict.headline}"))
    return tuple(found)


#: Which run is looked at first: what somebody must act upon, what stands, what wants a look.
_URGENCY = ("critical", "paused", "warning")


def most_urgent(snapshot: Snapshot, names: Sequence[str], now_ns: int) -> str:
    """Name of the run of ``names`` (one at least) that must be looked at first; of equals the first."""

    def rank(name: str) -> int:
        run = snapshot.run(name)
        tone = verdict_now(snapshot, run, now_ns).tone if run is not None else ""
        return _URGENCY.index(tone) if tone in _URGENCY else len(_URGENCY)

    return min(names, key=rank)


def run_label(snapshot: Snapshot, name: str, now_ns: int) -> str:
    """A run's name where one is chosen, with how it is: ``▲ llama-70b · TRAINING-SICK``."""
    run = snapshot.run(name)
    if run is None:
        return name
    verdict = verdict_now(snapshot, run, now_ns)
    return f"{TAB_GLYPHS.get(verdict.tone, '')}{name} · {verdict.word.value}"


def nothing_to_check(snapshot: Snapshot, run: RunView, now_ns: int) -> str:
    """Why there are no checks. What nobody looks at is not well: it is not known."""
    if snapshot.error:
        return "What is open now is not known: the store cannot be read."
    if verdict_now(snapshot, run, now_ns).word is VerdictWord.UNKNOWN:
        return (
            "The checks begin with the first step." if run.last_step is None else "What is open now is not known: nobody looks."
        )
    if any(one.is_open for one in run.incidents):
        return "No check belongs to what is open; the incident says what it is."
    return "Nothing is open, so there is nothing to check."


def nodes_tile(nodes: Sequence[NodeSample], now_ns: int | None = None) -> dict[str, Any]:
    """How many nodes report, which one does not, and how many are not well. now_ns: None = say no ages."""
    if not nodes:
        return {"label": "Nodes", "value": fmt.UNKNOWN, "context": "no collector reports"}
    bad = any(node.state in BAD_NODE_STATES for node in nodes)
    failed = any(node.state in ("fail", "lost") for node in nodes)
    return {
        "label": "Nodes",
        "value": count_words(nodes),
        "context": context_words(nodes, now_ns),
        "tone": "critical" if failed else "warning" if bad else "",
    }


def _age_tile(snapshot: Snapshot, run: RunView, now_ns: int) -> dict[str, Any]:
    age_s = data_age_s(run, now_ns)
    step_age_s = None if run.last_step_time_ns is None else max(0.0, (now_ns - run.last_step_time_ns) / 1e9)
    is_late = age_s is None or age_s > 30 or bool(snapshot.error)
    context = f"last step {fmt.coarse(max(1.0, step_age_s))} ago" if step_age_s is not None else "no step yet"
    return {
        "label": "Data age", "value": "never" if age_s is None else fmt.coarse(max(1.0, age_s)), "context": context,
        "tone": "warning" if is_late else "",
    }  # fmt: skip
