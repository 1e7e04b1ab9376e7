"""Which trouble explains which other one: what follows from it is a finding like any other, and tells nobody anything. Pure.

Findings of one group are one incident anyway (``grouping``): a stall and the throughput, a loss that is no number and its spikes. Here
stand those that would be an incident of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainvitals.incidents.grouping import group_of
from trainvitals.records import Finding, Severity

#: No step is made: what is measured of steps, or waits for one, says nothing new.
NO_STEPS = frozenset({"stall", "run_dead", "nccl_timeout", "out_of_memory", "restart_failed", "restart_loop"})


@dataclass(frozen=True, slots=True)
class Suppression:
    """While a finding of ``by`` is open, those of ``mutes`` that are no graver open no incident."""

    by: frozenset[str]
    mutes: frozenset[str]
    why: str


SUPPRESSIONS: tuple[Suppression, ...] = (
    Suppression(
        NO_STEPS,
        frozenset({"throughput_drop", "checkpoint_overdue", "checkpoint_blocking", "straggler", "rank_silent"}),
        "no step is made: it is slow, late or silent because of that",
    ),
    Suppression(
        frozenset({"loss_nonfinite"}),
        frozenset({"loss_spike", "loss_outlier", "loss_level_shift", "grad_norm_spike", "grad_norm_nonfinite"}),
        "the loss is no number: what is told of its height follows from that",
    ),
)


def muted_by(finding: Finding, others: Iterable[Finding]) -> Finding | None:
    """Of the open findings the one that explains ``finding`` and is at least as grave; None when it stands for itself.

    One of the same group explains nothing here: both are one incident.
    """
    if finding.severity is Severity.INFO:
        return None
    group = group_of(finding.family)
    for other in others:
        is_as_grave = other.severity.rank >= finding.severity.rank
        if other.id != finding.id and is_as_grave and group_of(other.family) != group and explains(other.rule, finding.rule):
            return other
    return None


def explains(rule: str, other: str) -> bool:
    """Whether an open finding of ``rule`` mutes one of ``other``."""
    return any(rule in row.by and other in row.mutes for row in SUPPRESSIONS)
