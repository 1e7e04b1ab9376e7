"""Notices for the tests of words and policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainvitals.alerts.notice import Notice, NoticeKind, Suspect, Verb, notice_id
from trainvitals.records import Severity

T0_NS = 1_800_000_000 * 10**9

DIVERGENCE = Notice(
    id=notice_id("inc-1", "escalated", 1), kind=NoticeKind.ESCALATED, number=1, run="llama-70b", incident_id="inc-1", family="loss",
    severity=Severity.CRITICAL, verb=Verb.TRAINING_SICK, rule="loss_divergence", rules=("loss_spike", "loss_divergence"),
    what="loss 2.31 → 2.94 since step 48,210, not coming back", at_ns=T0_NS, opened_at_ns=T0_NS - 300 * 10**9, step=48_210,
    metric="loss", value=2.94, expected=2.31, safe_step=48_000, safe_level="content", lost_steps=310, lost_gpu_hours=2650.0, gpus=5120,
    suspects=(
        Suspect("data", "New data began at step 48,150", "60 steps before the onset."),
        Suspect("code", "No restart and no change of settings."), Suspect("cluster", "No fault in the log, no bad node."),
    ),
    breaker="dry run: would have paused at step 48,310", control="The trainer is running.", runbook_url="https://runbook/loss_divergence",
    link="https://health.example/incidents?run=llama-70b&incident=inc-1",
)  # fmt: skip


def notice(kind: str = "escalated", incident: str = "inc-1", severity: str = "critical", number: int = 1, **more: Any) -> Notice:
    """One like ``DIVERGENCE``."""
    return replace(
        DIVERGENCE, id=notice_id(incident, kind, number), kind=NoticeKind(kind), number=number, incident_id=incident,
        severity=Severity(severity), **more,
    )  # fmt: skip
