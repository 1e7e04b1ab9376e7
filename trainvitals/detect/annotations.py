"""What a person's note explains: which rules it silences, from which step on, for how many points. Pure.

A note names rules itself (``data.rules``), or what was changed (``data.change``). Only what the change can cause is silenced: a lowered
learning rate explains no spike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from trainvitals.detect.findings import DEFAULT_SILENCE_POINTS

_LOSS = (
    "loss_outlier",
    "loss_spike",
    "loss_divergence",
    "loss_level_shift",
    "loss_drift",
    "loss_plateau",
    "resume_rebound",
    "resume_drop",
)
#: ``data.change`` -> rules.
CHANGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "data_mix": (*_LOSS, "loss_implausible_drop", "grad_norm_spike", "rank_loss_mismatch"),
        "learning_rate": (
            "loss_level_shift",
            "loss_drift",
            "loss_plateau",
            "resume_drop",
            "resume_lr_mismatch",
            "lr_schedule_mismatch",
        ),
        "batch_size": ("loss_level_shift", "loss_drift", "grad_norm_spike", "throughput_drop", "lr_schedule_mismatch"),
        "context_length": (*_LOSS, "loss_implausible_drop", "grad_norm_spike", "throughput_drop"),
        "nodes": ("throughput_drop", "straggler", "rank_silent"),
    }
)
#: No pattern means these: they must be named.
_ONLY_BY_NAME = frozenset({"loss_nonfinite", "breaker_trip", "pause_not_honoured", "run_dead"})
MAX_PATTERNS = 100


def rules_of(data: Mapping[str, Any], rules: Sequence[str]) -> list[str]:
    """Of ``rules`` those that a note silences."""
    named = data.get("rules")
    patterns = [str(pattern) for pattern in named[:MAX_PATTERNS]] if isinstance(named, (list, tuple)) else []
    patterns += CHANGES.get(str(data.get("change")), ())
    return [rule for rule in rules if any(_means(pattern, rule) for pattern in patterns)]


def points_of(data: Mapping[str, Any]) -> int:
    """For how many points; 500 when the note does not say."""
    points = data.get("points", DEFAULT_SILENCE_POINTS)
    if isinstance(points, bool) or not isinstance(points, (int, float)) or not 0 < points < float("inf"):
        return DEFAULT_SILENCE_POINTS
    return int(points)


def _means(pattern: str, rule: str) -> bool:
    return pattern == rule or (rule not in _ONLY_BY_NAME and fnmatchcase(rule, pattern))
