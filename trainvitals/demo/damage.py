"""What the demo's restart loop can know of damaged weights without a store, from the hook's own file: where the breaker paused,
and where the loss stopped being a number."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HOOK_FILE = "metrics.rank00000.jsonl"
#: With the demo's settings the breaker pauses within so many steps after the onset of what it judges.
ONSET_WITHIN_STEPS = 240
#: Weights are damaged before the loss shows it: what the page leaves between an onset and a safe checkpoint.
MARGIN_STEPS = 10
_TOLD_BY = (b'"header"', b'"resume"', b'"control"', b'"nonfinite"')


@dataclass(frozen=True)
class Damage:
    """Checkpoints from ``from_step`` on are suspect; those written after ``until_ns`` (a start that went back before it) are
    not. ``until_ns`` None: nobody went back yet. Going on from the pause clears nothing: the weights are the same ones."""

    from_step: int
    until_ns: int | None = None


def is_suspect(damage: Damage, step: int, modified_at_ns: int | None) -> bool:
    """Whether a checkpoint of that step, written at that time (None = not known), may hold the damage."""
    is_written_again = damage.until_ns is not None and modified_at_ns is not None and modified_at_ns >= damage.until_ns
    return step >= damage.from_step and not is_written_again


def known_damage(run_dir: Path) -> list[Damage]:
    """One for each pause of the breaker and each loss that went non-finite; none where there is no file of the hook."""
    try:
        with (run_dir / HOOK_FILE).open("rb") as file:
            return damage_of(_records(file))
    except OSError:
        return []


def damage_of(records: Iterable[dict[str, Any]]) -> list[Damage]:
    """The same, from the records: headers, the first step or resume after each, control events, and steps with a non-finite loss."""
    found: list[Damage] = []
    started_ns: int | None = None
    for record in records:
        kind, step, data = record.get("kind", record.get("type")), record.get("step"), record.get("data")
        if kind == "header":
            started_ns = _whole(record.get("started_ns"))
        elif kind == "control" and isinstance(data, dict):
            paused_at = _whole(step)
            if data.get("state") == "paused" and data.get("source") == "breaker" and paused_at is not None:
                found.append(Damage(max(0, paused_at - ONSET_WITHIN_STEPS)))
        elif kind in ("resume", "step") and started_ns is not None:
            from_step = _whole(step)
            if from_step is not None:
                went_back_ns = started_ns
                found = [
                    replace(one, until_ns=went_back_ns) if one.until_ns is None and from_step < one.from_step else one
                    for one in found
                ]
                started_ns = None
        if kind == "step" and _has_nonfinite_loss(record):
            onset = _whole(step)
            if onset is not None and not any(one.until_ns is None and one.from_step <= onset for one in found):
                found.append(Damage(max(0, onset - MARGIN_STEPS)))
    return found


def _has_nonfinite_loss(record: dict[str, Any]) -> bool:
    """Weights that are not finite stay so: nothing but a start from before clears it."""
    nonfinite = record.get("nonfinite")
    return isinstance(nonfinite, dict) and "loss" in nonfinite


def _records(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    """What tells of a start, a pause or a loss that is no number; thousands of steps are passed over. A torn line is none."""
    is_starting = False
    for line in lines:
        if not is_starting and not any(word in line for word in _TOLD_BY):
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        is_starting = record.get("type") == "header" or (is_starting and record.get("type") != "step")
        yield record


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
