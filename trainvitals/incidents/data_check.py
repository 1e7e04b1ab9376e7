"""The first check: whether new data began shortly before the onset, as the trainer told it or as somebody noted it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.incidents.data_notes import noted_mix, steps_before
from trainvitals.incidents.evidence import DATA_WINDOW_STEPS, Check, Evidence, is_about_training, near_before, was_there
from trainvitals.incidents.symptoms import SYMPTOMS
from trainvitals.records import Event


def data_check(rule: str, evidence: Evidence) -> Check:
    """What is known of the batches before the onset."""
    if not is_about_training(rule):
        return Check("data", "–", "Not a matter of the batches", "What is seen does not depend on the data.")
    positions = [event for event in evidence.events if event.kind == "data" and was_there(evidence, event)]
    action = SYMPTOMS["loss jumps or diverges"].action
    noted = noted_mix(evidence.events, evidence.onset_step, DATA_WINDOW_STEPS)
    if not positions:
        unknown = Check(
            "data", "?", "Data position not reported by this trainer", f"{action} The hook's data() call would name the shards."
        )
        return Check("data", "!", noted[0], f"{noted[1]} {action}") if noted else unknown
    near = [event for event in data_changes(positions) if near_before(evidence, event)]
    if near and evidence.onset_step is not None:
        event = max(near, key=lambda e: e.step or 0)
        before = evidence.onset_step - (event.step or 0)
        return Check(
            "data",
            "!",
            f"New data began at step {event.step:,}",
            " ".join(
                part for part in (f"{steps_before(before)}.", _position(event), *(f"{said}." for said in noted), action) if part
            ),
        )
    if noted:
        return Check("data", "!", noted[0], f"{noted[1]} {action}")
    known = [event for event in positions if evidence.onset_step is None or (event.step or 0) <= evidence.onset_step]
    last = max(known or positions, key=lambda e: (e.attempt or 0, e.step or 0))
    return Check("data", "–", f"No new source in the {DATA_WINDOW_STEPS} steps before", f"{_position(last)} {action}".strip())


def data_changes(positions: Sequence[Event]) -> list[Event]:
    """Data events that begin something new: another source than the event before it, or, where no source is named, other
    shards than most events go on with. Routine positions are none, and neither is the first one known."""
    ordered = sorted(positions, key=lambda event: (event.attempt or 0, event.step or 0))
    by_source = any(event.data.get("source") for event in ordered)
    keys = [str(event.data.get("source" if by_source else "shards", "")) for event in ordered]
    changes = [event for event, before, key in zip(ordered[1:], keys, keys[1:], strict=False) if key != before]
    is_routine = not by_source and len(changes) * 3 > len(ordered)
    return [] if is_routine else changes


def _position(event: Event) -> str:
    parts = []
    if event.data.get("source"):
        parts.append(f"Source {event.data['source']}.")
    shards = event.data.get("shards")
    if isinstance(shards, (list, tuple)) and shards:
        shown = ", ".join(str(shard) for shard in shards[:3])
        parts.append(f"Shards {shown}{f' and {len(shards) - 3} more' if len(shards) > 3 else ''}.")
    elif shards:
        parts.append(f"Shards {shards}.")
    sample = event.data.get("sample_first")
    if sample is not None:
        parts.append(f"From sample {sample:,}." if isinstance(sample, int) else f"From sample {sample}.")
    return " ".join(parts)
