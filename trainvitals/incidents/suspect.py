"""Which checkpoints may hold damaged weights although they verify: those saved while the loss was sick. Pure.

A checkpoint verifies when its files are whole. Weights that blew up are whole, too: only the run's own history tells.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trainvitals.incidents.current_attempt import in_order, later_numbers
from trainvitals.records import CheckpointReport, Finding, Incident, Severity

#: Beginnings of rules that speak of the weights: a way back must lie before the onset of their incidents.
WEIGHT_RULES = ("loss_", "grad_", "resume_", "breaker_trip")
#: Other settings damage no checkpoint by themselves, and neither does a start from an older one.
_NO_WEIGHT_RULES = frozenset({"resume_config_changed", "resume_behind"})


class Attempt(Protocol):
    """One start of the trainer; steps are None while they are not known."""

    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...
    @property
    def last_step(self) -> int | None: ...
    @property
    def resumed_from_step(self) -> int | None: ...


def suspect_checkpoints(
    checkpoints: Sequence[CheckpointReport],
    incidents: Sequence[Incident],
    findings: Sequence[Finding],
    attempts: Sequence[Attempt],
    margin_of: Callable[[Incident], int] | None = None,
) -> dict[str, int]:
    """Path of each suspect checkpoint -> onset (step) of the incident that makes it so, the earliest one.

    margin_of: steps before an incident's onset in which its damage may have begun unseen; None = none.

    An incident of the loss, of at least ``warning``, makes suspect what was saved from its onset on: until it recovered, or,
    when it ended because a newer attempt went back before the onset, for ever. What that newer attempt wrote (modified since
    its start) is its own. A modification time that is not known proves nothing, so such a checkpoint stays suspect.
    """
    found: dict[str, int] = {}
    by_step = sorted((c for c in checkpoints if c.step is not None), key=_step)
    by_id = {finding.id: finding for finding in findings}
    attempt_of = {id_: finding.attempt for id_, finding in by_id.items()}
    ordered = in_order(attempts)
    for incident in incidents:
        onset = incident.first_step
        if onset is None or not is_about_weights(incident) or was_meant(incident, by_id):
            continue
        until, written_again_ns = _extent(incident, onset, attempt_of, ordered)
        first = bisect.bisect_left(by_step, onset - (margin_of(incident) if margin_of else 0), key=_step)
        end = len(by_step) if until is None else bisect.bisect_right(by_step, until, key=_step)
        for checkpoint in by_step[first:end]:
            modified_ns = checkpoint.modified_at_ns
            if written_again_ns is not None and modified_ns is not None and modified_ns >= written_again_ns:
                continue
            found[checkpoint.path] = min(onset, found.get(checkpoint.path, onset))
    return found


def _step(checkpoint: CheckpointReport) -> int:
    return checkpoint.step or 0


def is_about_weights(incident: Incident) -> bool:
    """Whether it is of at least ``warning`` and speaks of the weights."""
    return incident.severity.rank >= Severity.WARNING.rank and any(map(is_weight_rule, incident.rules))


def was_meant(incident: Incident, by_id: Mapping[str, Finding]) -> bool:
    """Whether a person's note ended all of it that speaks of the weights: a change of the data damages none."""
    members = [by_id[id_] for id_ in incident.finding_ids if id_ in by_id]
    grave = [one for one in members if is_weight_rule(one.rule) and one.severity.rank >= Severity.WARNING.rank]
    return bool(grave) and not incident.is_open and all(one.data.get("is_expected") is True for one in grave)


def is_weight_rule(rule: str) -> bool:
    """Whether a finding of ``rule`` speaks of the weights."""
    return rule.startswith(WEIGHT_RULES) and rule not in _NO_WEIGHT_RULES


def _extent(
    incident: Incident, onset: int, attempt_of: Mapping[str, int], ordered: Sequence[Attempt]
) -> tuple[int | None, int | None]:
    """(last suspect step, start of the attempt that went back before the onset); None = no end, no such attempt."""
    own = _attempt_of(incident, attempt_of, ordered)
    numbers = later_numbers(ordered, own)
    later = [attempt for attempt in ordered if attempt.number in numbers]
    back = next((attempt for attempt in later if _starts_before(attempt, onset)), None)
    written_again_ns = back.started_ns if back is not None else None
    if incident.is_open or incident.last_step is None:
        return None, written_again_ns
    if back is None:
        return incident.last_step, None
    # Going back closes an incident at the last step there was; a recovery comes before that.
    between = [attempt for attempt in ordered if attempt.number == own] + later[: later.index(back)]
    lived = [attempt.last_step for attempt in between if attempt.last_step is not None]
    has_recovered = bool(lived) and incident.last_step < max(lived)
    return (incident.last_step if has_recovered else None), written_again_ns


def _attempt_of(incident: Incident, attempt_of: Mapping[str, int], ordered: Sequence[Attempt]) -> int:
    """Attempt in which the incident began; by its time when none of its findings is known any more."""
    members = [attempt_of[id_] for id_ in incident.finding_ids if id_ in attempt_of]
    if members:
        return min(members)
    begun = [attempt.number for attempt in ordered if attempt.started_ns <= incident.opened_at_ns]
    return begun[-1] if begun else ordered[0].number if ordered else 1


def _starts_before(attempt: Attempt, onset: int) -> bool:
    if attempt.resumed_from_step is not None:
        return attempt.resumed_from_step < onset
    return attempt.first_step is not None and attempt.first_step <= onset
