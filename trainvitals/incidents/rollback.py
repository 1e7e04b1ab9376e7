"""Which checkpoint to go back to, what that costs, and why not a newer one. Pure.

The newest checkpoint whose files are verified, that lies before the onset by a margin, whose own window was healthy, that holds
an optimizer and belongs to the history that goes on. The same function serves the pages and the watchdog that pins it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainvitals.incidents.damaged_values import DamagedValues, is_damaged_in_the_run
from trainvitals.incidents.data_to_skip import DataToSkip, data_to_skip
from trainvitals.incidents.lineage import Lineage
from trainvitals.incidents.resume_command import ResumeCommand, resume_command
from trainvitals.incidents.suspect import Attempt, is_about_weights, is_weight_rule, suspect_checkpoints, was_meant
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Incident, Severity, VerificationLevel

#: Weights are damaged before the loss shows it: so many steps lie between a safe one and an onset, and one logged point.
MARGIN_STEPS = 10
#: An onset that is only estimated lies up to twice as far before its detection (made-up slow rises that block medians found).
MARGIN_DELAYS = 2
#: Share of an incident's rise above its usual level from which on a checkpoint's own loss says that it is sick, too.
SICK_SHARE = 0.5
LEVEL_RANK: Mapping[VerificationLevel, int] = {level: rank for rank, level in enumerate(VerificationLevel)}
_STATES: Mapping[CheckpointState, str] = {
    CheckpointState.WRITING: "it is still being written",
    CheckpointState.STAGED: "it is not on the disk yet",
    CheckpointState.COMPLETE: "its files are there, but nothing has verified them",
    CheckpointState.VERIFYING: "it is being verified",
    CheckpointState.INCOMPLETE: "parts of it are missing",
    CheckpointState.CORRUPT: "it is damaged",
    CheckpointState.DELETING: "it is being deleted",
    CheckpointState.DELETED: "it is deleted",
    CheckpointState.UNKNOWN_FORMAT: "its format is not known",
}


@dataclass(frozen=True)
class RollbackInputs:
    """Everything the recommendation depends on; steps, seconds and tokens of the run, None = not known.

    gap_steps: steps between two records of the run. data: events of kind ``data``. pinned: paths that no deletion reaches.
    """

    checkpoints: Sequence[CheckpointReport]
    incidents: Sequence[Incident] = ()
    findings: Sequence[Finding] = ()
    attempts: Sequence[Attempt] = ()
    last_step: int | None = None
    gap_steps: int = 1
    step_s: float | None = None
    tokens_per_step: float | None = None
    gpus: int = 0
    resume_command: str = ""
    data: Sequence[Event] = ()
    pinned: Iterable[str] = ()


@dataclass(frozen=True)
class Rollback:
    """checkpoint: None when none may be recommended; ``why`` is a sentence either way. rejected: path -> reason, of all others.

    onset_step: where the newest trouble with the weights began; None = there was none. needs_content: nothing has compared its
    bytes with anything yet, so that comes before a restart. needs_load: another one holds damaged numbers and this one was not
    loaded, so that comes first. redo_*: what going back runs again.
    """

    checkpoint: CheckpointReport | None
    why: str
    rejected: Mapping[str, str] = field(default_factory=dict)
    onset_step: int | None = None
    margin_steps: int = 0
    is_pinned: bool = False
    needs_content: bool = False
    redo_steps: int | None = None
    redo_tokens: int | None = None
    redo_gpu_hours: float | None = None
    command: ResumeCommand = field(default_factory=ResumeCommand)
    skip: DataToSkip | None = None
    needs_load: bool = False


def recommend(inputs: RollbackInputs) -> Rollback:
    """The checkpoint to go back to, or none."""
    by_id = {one.id: one for one in inputs.findings}
    episodes = [one for one in _episodes(inputs.incidents, inputs.findings) if not was_meant(one, by_id)]
    damaged = DamagedValues(inputs.checkpoints, inputs.attempts)
    gone = [one for one in inputs.checkpoints if one.state is CheckpointState.DELETED and is_damaged_in_the_run(one)]
    there = [one for one in inputs.checkpoints if one not in gone] if gone else inputs.checkpoints
    inputs = replace(inputs, incidents=episodes, checkpoints=there)
    trouble = _newest_trouble(inputs.incidents)
    onset = trouble.first_step if trouble is not None else None
    margins = _Margins(inputs.findings, inputs.gap_steps)
    margin = margins.steps(trouble) if trouble is not None else 0
    rejected = _rejected(inputs, margins, damaged)
    usable = [one for one in inputs.checkpoints if one.path not in rejected]
    chosen = max(usable, key=_rank, default=None)
    for one in usable:
        if one is not chosen and chosen is not None:
            rejected[one.path] = _why_not_chosen(one, chosen)
    if chosen is None:
        return Rollback(None, _why_none(inputs.checkpoints, rejected), rejected, onset, margin)
    redo = None if inputs.last_step is None or chosen.step is None else max(0, inputs.last_step - chosen.step)
    is_pinned = chosen.path in set(inputs.pinned)
    needs_load = damaged.has_any and chosen.level is not VerificationLevel.LOAD
    return Rollback(
        chosen,
        _why(chosen, trouble, inputs, rejected, needs_load=needs_load),
        rejected,
        onset,
        margin,
        is_pinned,
        chosen.level is not None and LEVEL_RANK[chosen.level] < LEVEL_RANK[VerificationLevel.CONTENT],
        redo,
        None if redo is None or inputs.tokens_per_step is None else round(redo * inputs.tokens_per_step),
        None if redo is None or not inputs.step_s or not inputs.gpus else redo * inputs.step_s * inputs.gpus / 3600,
        resume_command(inputs.resume_command, chosen.path, chosen.step),
        None if trouble is None else data_to_skip(inputs.data, chosen.step, onset, inputs.last_step),
        needs_load,
    )


class _Margins:
    """Steps before the onset of an incident that may be damaged already: by how uncertain that onset is."""

    def __init__(self, findings: Sequence[Finding], gap_steps: int) -> None:
        self._by_id = {one.id: one for one in findings}
        self._by_onset: dict[int, Finding] = {}
        self._gap_steps = max(1, gap_steps)
        # One onset is told by several rules, some of them later: the one that saw it first knows most of when it was.
        for one in sorted(findings, key=lambda one: one.detected_step):
            if is_weight_rule(one.rule):
                self._by_onset.setdefault(one.first_step, one)

    def steps(self, incident: Incident) -> int:
        if incident.rules and all(rule.startswith("resume_") for rule in incident.rules):
            return 0  # the trouble came with a resume: what lies before it was saved by another process
        least = self._gap_steps + MARGIN_STEPS
        steps = [self._by_id[id_].first_step for id_ in incident.finding_ids if id_ in self._by_id]
        first = self._by_onset.get(min(steps)) if steps else None
        if first is None:
            return least
        rise_from = first.data.get("rise_from")
        if isinstance(rise_from, int) and not isinstance(rise_from, bool) and rise_from <= first.first_step:
            return first.first_step - rise_from + least
        return max(least, MARGIN_DELAYS * max(0, first.detected_step - first.first_step))


def _newest_trouble(incidents: Sequence[Incident]) -> Incident | None:
    about = [one for one in incidents if one.first_step is not None and is_about_weights(one)]
    return max(about, key=lambda one: (one.is_open, one.opened_at_ns), default=None)


def _episodes(incidents: Sequence[Incident], findings: Sequence[Finding]) -> list[Incident]:
    """Each incident as one for every stretch of steps in which one of its findings about the weights was open.

    What comes back soon is one incident for people; a checkpoint saved in the healthy stretch between is none the worse for it.
    """
    by_id = {one.id: one for one in findings}
    parts: list[Incident] = []
    for incident in incidents:
        members = [by_id[id_] for id_ in incident.finding_ids if id_ in by_id]
        grave = [one for one in members if one.severity.rank >= Severity.WARNING.rank and is_weight_rule(one.rule)]
        if not is_about_weights(incident) or not grave or len(members) < len(incident.finding_ids):
            parts.append(incident)
            continue
        stretches: list[list[Finding]] = []
        for one in sorted(grave, key=lambda one: (one.attempt, one.first_step)):
            if stretches and _touches(stretches[-1], one):
                stretches[-1].append(one)
            else:
                stretches.append([one])
        parts += [_episode(incident, stretch) for stretch in stretches]
    return parts


def _touches(stretch: Sequence[Finding], one: Finding) -> bool:
    is_endless = any(known.last_step is None for known in stretch)
    is_same_start = stretch[-1].attempt == one.attempt
    return is_same_start and (is_endless or one.first_step <= max(known.last_step or 0 for known in stretch))


def _episode(incident: Incident, stretch: Sequence[Finding]) -> Incident:
    is_open = any(one.is_open for one in stretch)
    ends = [one.last_step for one in stretch if one.last_step is not None]
    return replace(
        incident,
        id=stretch[0].id,
        severity=max((one.severity for one in stretch), key=lambda severity: severity.rank),
        rules=tuple(dict.fromkeys(one.rule for one in stretch)),
        finding_ids=tuple(one.id for one in stretch),
        first_step=min(one.first_step for one in stretch),
        last_step=None if is_open or not ends else max(ends),
        opened_at_ns=min((one.time_ns for one in stretch if one.time_ns is not None), default=incident.opened_at_ns),
        closed_at_ns=None if is_open else incident.closed_at_ns or incident.updated_at_ns,
        title=stretch[0].message,
    )


def _rank(checkpoint: CheckpointReport) -> tuple[bool, int, int, bool, int]:
    """Weights without the optimizer restart with a rebound, so they are the second choice at any age; of two copies of one step
    the one that more was proven of, then the one whose name no other save will take."""
    has_own_name = str(checkpoint.step) in checkpoint.path.rstrip("/").rsplit("/", 1)[-1]
    level = LEVEL_RANK[checkpoint.level] if checkpoint.level is not None else -1
    return (checkpoint.has_optimizer is not False, checkpoint.step or 0, level, has_own_name, checkpoint.modified_at_ns or 0)


def _rejected(inputs: RollbackInputs, margins: _Margins, damaged: DamagedValues) -> dict[str, str]:
    lineage = Lineage(inputs.attempts, max(1, inputs.gap_steps))
    suspects = suspect_checkpoints(inputs.checkpoints, inputs.incidents, inputs.findings, inputs.attempts, margins.steps)
    unrecovered = _unrecovered(inputs)
    found: dict[str, str] = {}
    for one in inputs.checkpoints:
        reason = _unusable(one) or _after_onset(one, suspects) or _own_loss(one, unrecovered) or damaged.reason(one)
        if not reason:
            number = lineage.abandoned_by(one)
            reason = "" if number is None else f"its history was given up: attempt {number} did not go on from it"
        if reason:
            found[one.path] = reason
    return found


def _unusable(one: CheckpointReport) -> str:
    if one.state is not CheckpointState.VERIFIED:
        first = f" ({one.reasons[0]})" if one.reasons else ""
        return _STATES[one.state] + first
    if one.step is None:
        return "its step is not known"
    if one.level is None or LEVEL_RANK[one.level] < LEVEL_RANK[VerificationLevel.STRUCTURE]:
        return "nothing but its presence was verified"
    if one.loss is not None and not math.isfinite(one.loss):
        return "the loss at its step was not a number"
    return ""


def _after_onset(one: CheckpointReport, suspects: Mapping[str, int]) -> str:
    onset = suspects.get(one.path)
    if onset is None or one.step is None:
        return ""
    if one.step >= onset:
        return f"it was saved at or after the onset of an incident, step {onset:,}"
    return f"it was saved {onset - one.step:,} steps before an onset (step {onset:,}), which is too near: damage begins unseen"


def _unrecovered(inputs: RollbackInputs) -> list[Finding]:
    """Rises of the loss that ended only because their level was taken for the usual one; what is known of their height."""
    return [
        one
        for one in inputs.findings
        if one.rule == "loss_divergence" and not one.is_open and one.data.get("is_accepted") is True
        and one.value is not None and one.expected is not None
    ]  # fmt: skip


def _own_loss(one: CheckpointReport, unrecovered: Sequence[Finding]) -> str:
    """A level that was taken for the usual one is not a healthy one: only a loss that came back clears what was saved later."""
    for finding in unrecovered:
        if one.step is None or one.step < finding.first_step or finding.value is None or finding.expected is None:
            continue
        limit = finding.expected + SICK_SHARE * (finding.value - finding.expected)
        if one.loss is None:
            return f"the loss rose at step {finding.first_step:,} and nothing says that it came back"
        if one.loss >= limit:
            return f"its loss {one.loss:.4g} is not back from the rise at step {finding.first_step:,} (usual there: {finding.expected:.4g})"
    return ""


def _why_not_chosen(one: CheckpointReport, chosen: CheckpointReport) -> str:
    if one.step == chosen.step:
        return "it is a copy of the recommended step of which less is proven, or which is older"
    if one.has_optimizer is False and (one.step or 0) > (chosen.step or 0):
        return "it holds no optimizer state: training would restart with a rebound"
    return f"it is older than the recommended one (step {chosen.step:,})"


def _why_none(checkpoints: Sequence[CheckpointReport], rejected: Mapping[str, str]) -> str:
    if not checkpoints:
        return "No checkpoint is known, so none can be recommended."
    newest = max(checkpoints, key=lambda one: one.step or 0)
    name = "the newest" if newest.step is None else f"the newest (step {newest.step:,})"
    return f"None of {len(checkpoints):,} can be recommended; {name}: {rejected.get(newest.path, 'not verified')}."


def _why(
    chosen: CheckpointReport, trouble: Incident | None, inputs: RollbackInputs, rejected: Mapping[str, str], *, needs_load: bool
) -> str:  # fmt: skip
    parts = ["the newest that is verified"]
    if trouble is not None and trouble.first_step is not None and chosen.step is not None and chosen.step < trouble.first_step:
        parts.append(f"lies {trouble.first_step - chosen.step:,} steps before the onset (step {trouble.first_step:,})")
    elif trouble is not None:
        parts.append("was saved when the loss was healthy again")
    else:
        parts.append("no incident speaks against it")
    if needs_load:
        parts.append("another one holds damaged numbers, so load this one first (checkpoint verify --level load)")
    if chosen.has_optimizer is False:
        parts.append("it holds no optimizer state, but neither does any other: expect a rebound")
    newer = [one for one in inputs.checkpoints if (one.step or 0) > (chosen.step or 0) and one.path in rejected]
    if newer:
        first = min(newer, key=lambda one: one.step or 0)
        which = "the only newer one" if len(newer) == 1 else f"of {len(newer):,} newer ones none is safe, the next"
        parts.append(f"{which} (step {first.step:,}){' is not safe' if len(newer) == 1 else ''}: {rejected[first.path]}")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."
