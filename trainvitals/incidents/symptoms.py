"""The operations handbook's table as data: what is seen, where it most often comes from, what to look at.

Source: section 3 of the engineering article on pre-training stability ("first the data, then the code, then the cluster"). Its five
symptoms are the first of the rows; the others are what else this product finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.records import Finding, Incident


@dataclass(frozen=True)
class Symptom:
    """One row of the table: what is seen, where it most often comes from, what to look at (per layer)."""

    name: str
    suspect: str
    suspect_layer: str
    action: str


SYMPTOMS: dict[str, Symptom] = {
    symptom.name: symptom
    for symptom in (
        Symptom(
            "loss jumps or diverges", "the data", "data",
            "Look at the latest batches: repeats, odd tokens, a cleaning rule that removed too much.",
        ),
        Symptom(
            "loss does not come down", "learning rate or data mix", "code",
            "Compare the learning-rate schedule with the plan, and the data mix with the plan.",
        ),
        Symptom(
            "loss rebounds after a restart", "a checkpoint without optimizer state", "code",
            "See whether the checkpoint that was loaded holds the optimizer state and whether it was loaded.",
        ),
        Symptom(
            "settings changed at a restart", "the settings or the code", "code",
            "See whether every change was meant: settings, code and library versions against the attempt before.",
        ),
        Symptom(
            "ranks disagree on the loss", "communication or parallel settings", "cluster",
            "Look at data/tensor parallel settings and the NCCL topology; compare the worst rank's host.",
        ),
        Symptom(
            "occasional NaN", "numerical stability", "numerics",
            "Look at mixed precision, gradient clipping and bf16 overflow; see the loss scale.",
        ),
        Symptom(
            "no steps, or slow steps", "the cluster", "cluster",
            "Find the rank that is behind, its host, its log; then network and storage.",
        ),
        Symptom(
            "the trainer ended", "the cluster", "cluster",
            "Read the end of its log and what its host says of it: out of memory, Xid, the scheduler's own end of the job.",
        ),
        Symptom(
            "a checkpoint cannot be trusted", "storage or an interrupted save", "cluster",
            "Look at the reasons beside the checkpoint, the space left and the save log; keep the last verified one.",
        ),
        Symptom(
            "saves are late, hang or block", "storage", "cluster",
            "Look at the space and quota left, the file system's speed and the save's own log lines; see whether a rank never wrote.",
        ),
        Symptom(
            "a start does not go on where it could", "the pointer file, or the settings of the restart", "code",
            "See which checkpoint was loaded and why: the pointer file, the load path in the launch script, markers of unfinished saves.",
        ),
        Symptom(
            "the safe checkpoint is about to go", "the trainer's own retention", "code",
            "Copy the checkpoint, or pause without a save (control pause --no-save); then see why it could not be kept.",
        ),
        Symptom(
            "a checkpoint without optimizer state", "settings of the save", "code",
            "See save_only_model, --no-save-optim and their relatives, and what changed since the last whole checkpoint.",
        ),
    )
}  # fmt: skip

_BY_RULE = {
    "loss_nonfinite": "occasional NaN", "grad_norm_nonfinite": "occasional NaN",
    "loss_spike": "loss jumps or diverges", "loss_divergence": "loss jumps or diverges",
    "loss_outlier": "loss jumps or diverges", "loss_level_shift": "loss jumps or diverges",
    "loss_implausible_drop": "loss jumps or diverges", "grad_norm_spike": "loss jumps or diverges",
    "loss_drift": "loss does not come down", "loss_plateau": "loss does not come down",
    "loss_not_learning": "loss does not come down", "lr_schedule_mismatch": "loss does not come down",
    "loss_frozen": "loss does not come down", "validation_rise": "loss does not come down",
    "validation_missing": "loss does not come down", "validation_nonfinite": "occasional NaN",
    "resume_config_changed": "settings changed at a restart",
    "resume_behind": "a start does not go on where it could",
    "checkpoint_no_optimizer": "a checkpoint without optimizer state",
    "checkpoint_stuck": "saves are late, hang or block", "checkpoint_overdue": "saves are late, hang or block",
    "checkpoint_blocking": "saves are late, hang or block",
    "checkpoint_safe_expiring": "the safe checkpoint is about to go",
    "run_dead": "the trainer ended", "out_of_memory": "the trainer ended", "restart_failed": "the trainer ended",
    "restart_loop": "the trainer ended",
    "rank_loss_mismatch": "ranks disagree on the loss", "breaker_trip": "loss jumps or diverges", "breaker_alert": "loss jumps or diverges",
}  # fmt: skip
#: What the watchdog did about a symptom; it names the symptom only when nothing else does.
_CONSEQUENCES = frozenset({"breaker_trip", "breaker_alert"})
#: What is another trouble than the loss being too high, also where that was found before it and is as grave.
OF_ITS_OWN = frozenset({"loss_nonfinite"})


def symptom(rule: str) -> Symptom:
    """The row of the table that a rule belongs to."""
    if rule in _BY_RULE:
        return SYMPTOMS[_BY_RULE[rule]]
    if rule.startswith("resume_"):
        return SYMPTOMS["loss rebounds after a restart"]
    if rule.startswith("checkpoint_"):
        return SYMPTOMS["a checkpoint cannot be trusted"]
    if rule.startswith(("loss_", "grad_")):
        return SYMPTOMS["loss jumps or diverges"]
    return SYMPTOMS["no steps, or slow steps"]


def onset_step(incident: Incident, findings: Sequence[Finding]) -> int | None:
    """Where it began, of the finding that opened it: the incident's own time is that one's.

    A rule that looks far back (a plateau, a drift) and joins later says that its stretch began earlier; ``incident.first_step``
    knows that, because no checkpoint of that stretch is safe. findings: of any incident. None when no step is known.
    """
    opened_by = next((one for one in findings if one.id in incident.finding_ids[:1]), None)
    return opened_by.first_step if opened_by is not None else incident.first_step


def leading_rule(findings: Sequence[Finding], rules: Sequence[str] = (), otherwise: str = "") -> str:
    """The rule that names an incident's symptom: of its worst finding the earliest, never what was only done about it.

    rules: all rules of the incident, for when none of its findings is known here; ``otherwise`` when there is no rule either.
    """
    named = [finding for finding in findings if finding.rule not in _CONSEQUENCES] or list(findings)
    worst = max(named, key=_precedence, default=None)
    if worst is not None:
        return worst.rule
    return next((rule for rule in rules if rule not in _CONSEQUENCES), next(iter(rules), otherwise))


def _precedence(finding: Finding) -> tuple[int, bool, int]:
    return finding.severity.rank, finding.is_open and finding.rule in OF_ITS_OWN, -finding.first_step
