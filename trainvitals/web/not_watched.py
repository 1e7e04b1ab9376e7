"""What nobody is looking at, in plain sentences: a quiet page must not be mistaken for a watched one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from trainvitals.incidents.verdict import WATCH_SILENT_S, span
from trainvitals.records import CheckpointState, NodeSample, VerificationLevel
from trainvitals.settings import RunSettings, Settings
from trainvitals.web.facts import Facts
from trainvitals.web.node_list import NEVER_NS
from trainvitals.web.spool import NO_SPOOL, SpoolNumbers
from trainvitals.web.told_troubles import CHECKPOINTS, LOG
from trainvitals.web.view import ControlView

#: Longest piece of foreign text in a sentence.
QUOTE_LIMIT = 120


def not_watched(
    run: RunSettings,
    control: ControlView,
    facts: Facts,
    nodes: Sequence[NodeSample],
    watch_seen_ns: int | None,
    now_ns: int,
    settings: Settings,
    spool: SpoolNumbers = NO_SPOOL,
    troubles: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Sentences without a full stop, the gravest first."""
    lines: list[str] = []
    if watch_seen_ns is None:
        lines.append("no watchdog has reported on this run")
    elif (now_ns - watch_seen_ns) / 1e9 > WATCH_SILENT_S:
        lines.append(f"watchdog silent for {span((now_ns - watch_seen_ns) / 1e9)}")
    if control.state == "not_wired":
        starts = [event for event in facts.of_kind("attempt_start") if event.data.get("source")]
        newest = max(starts, key=lambda event: event.time_ns or 0, default=None)
        if newest is not None and newest.data["source"] == "hook":
            lines.append("no ControlClient in the trainer (docs/control.md): it records and cannot be paused from here")
        else:
            lines.append("no hook in the trainer: it cannot be paused from here, steps come from the log only")
    elif control.state in ("silent", "unreadable"):
        lines.append(f"control: {control.sentence}".rstrip("."))
    if run.breaker == "off":
        lines.append("breaker off")
    elif run.breaker == "dry-run":
        lines.append("breaker in dry-run: it says what it would do and pauses nothing")
    elif control.state == "not_wired":
        lines.append("breaker armed but not wired")
    if LOG in troubles:
        lines.append("the log: no step is read in it (no format that is known; docs/formats.md)")
    if CHECKPOINTS in troubles:
        lines.append("the checkpoints: they cannot be looked at now")
    if not run.checkpoints:
        lines.append("no checkpoint directory is set")
    elif not facts.checkpoints:
        lines.append("no checkpoint seen yet")
    else:
        shallow = [
            report
            for report in facts.checkpoints
            if report.state is CheckpointState.VERIFIED
            and report.level in (None, VerificationLevel.PRESENCE, VerificationLevel.STRUCTURE)
        ]
        if shallow:
            lines.append(f"content of {len(shallow):,} checkpoint{'s' if len(shallow) > 1 else ''} (structure checked only)")
    if not settings.gpu.enabled:
        lines.append("GPU health (switched off)")
    elif not nodes:
        lines.append("GPU health (no collector reports)")
    elif all(node.state == "no_gpu" for node in nodes):
        lines.append("GPU health (no NVIDIA driver on the nodes seen)")
    without = sum(node.run == run.name and node.time_ns == NEVER_NS for node in nodes)
    if without:
        lines.append(f"GPU health of {without:,} machine{'s' if without != 1 else ''} of this run (no report from there)")
    lines.extend(spool.sentences())
    if facts.unreadable.count:
        lines.append(f"{facts.unreadable.count:,} stored events unreadable (last: {facts.unreadable.last[:QUOTE_LIMIT]})")
    return tuple(lines)
