"""What is known around the onset of an incident, and what a check of it says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.records import CheckpointReport, Event, Finding, NodeSample, NonFinite

#: Changes this many steps before the onset are suspects.
DATA_WINDOW_STEPS = 200


@dataclass(frozen=True)
class Check:
    """One line of "check in this order". layer: data, code, numerics, cluster. mark: "!" evidence found, "–" looked and
    nothing there, "?" not known here."""

    layer: str
    mark: str
    title: str
    evidence: str


@dataclass(frozen=True)
class Evidence:
    """What is known around the onset. Nothing here is looked up: whoever calls has it.

    nodes: None = no node health is collected; sees_nodes: False = whoever asks cannot know (``watch`` reads no store). nonfinite: metrics that are non-finite now or were in the incident.
    lr_now, lr_usual, grad_norm_now, grad_norm_usual: now and before the onset; when: in words, when "now" was. resumed_checkpoint: report of the checkpoint the running attempt started from, None = not known.
    tells_settings: the attempt told what it is made of, so a change would have been found.
    attempts: those that the incident was in, empty = not known. ended_ns: when the incident was over, None = it is open, or a death.
    """

    onset_step: int | None = None
    onset_ns: int | None = None
    attempt_first_step: int | None = None
    attempt_started_ns: int | None = None
    attempt: int | None = None
    events: Sequence[Event] = ()
    findings: Sequence[Finding] = ()
    nodes: Sequence[NodeSample] | None = None
    nonfinite: Sequence[tuple[str, NonFinite]] = ()
    loss_scale: float | None = None
    lr_now: float | None = None
    lr_usual: float | None = None
    has_grad_norm: bool = False
    grad_norm_now: float | None = None
    grad_norm_usual: float | None = None
    resumed_from_step: int | None = None
    resumed_checkpoint: CheckpointReport | None = None
    tells_settings: bool = False
    attempts: frozenset[int] = frozenset()
    ended_ns: int | None = None
    when: str = "now"
    sees_nodes: bool = True


def is_about_training(rule: str) -> bool:
    """Whether the rule speaks of the curves, not of time, nodes or checkpoints."""
    return rule.startswith(("loss_", "grad_", "resume_", "rank_loss_", "lr_", "breaker_")) and rule != "resume_behind"


def near_before(evidence: Evidence, event: Event) -> bool:
    """Whether the event is at the onset or at most ``DATA_WINDOW_STEPS`` before it."""
    if evidence.onset_step is None or event.step is None:
        return False
    return 0 <= evidence.onset_step - event.step <= DATA_WINDOW_STEPS


def was_there(evidence: Evidence, event: Event) -> bool:
    """Not of a later start over the same steps, and not after all was over."""
    if evidence.attempts and event.attempt is not None and event.attempt > max(evidence.attempts):
        return False
    return evidence.ended_ns is None or event.time_ns is None or event.time_ns <= evidence.ended_ns
