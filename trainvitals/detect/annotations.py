"""What a person's note explains: which rules it silences, from which step on, for how many points. Pure.

A note names rules itself (``data.rules``), or what was changed (``data.change``). Only what the change can cause is silenced: a lowered
learning rate explains no spike.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from trainvitals.detect.findings import DEFAULT_SILENCE_POINTS
from trainvitals.errors import InputError

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
#: What these do to a loss has an end: a blow-up is told all the same (``note_bounds``).
BOUNDED_CHANGES = ("data_mix", "context_length")
#: No pattern means these: they must be named.
_ONLY_BY_NAME = frozenset({"loss_nonfinite", "breaker_trip", "pause_not_honoured", "run_dead", "restart_failed", "restart_loop"})
MAX_PATTERNS = 100
MAX_PATTERN_CHARACTERS = 64
#: A note that changes nothing silences nothing, unless it names rules.
FREE_NOTE = "note"
#: What a person may silence at once; a longer change of the run is a new usual.
MAX_POINTS = 100_000
#: Beyond this a step is a slip of the hand.
MAX_STEP = 10**15
MAX_TEXT = 2000


@dataclass(frozen=True, slots=True)
class Note:
    """What a person says, checked. step: from which step on, None = from now on. points: None = as many as is usual (500)."""

    step: int | None
    change: str
    text: str
    rules: tuple[str, ...] = ()
    points: int | None = None

    def to_data(self) -> dict[str, Any]:
        """``data`` of a request and of an `annotation` event, without what was not said."""
        data: dict[str, Any] = {"change": self.change}
        if self.rules:
            data["rules"] = list(self.rules)
        if self.points is not None:
            data["points"] = self.points
        return data


def checked_note(data: Mapping[str, Any], rules: Sequence[str]) -> Note:
    """The note in ``data`` (step, change, text, rules, points). Raises ``InputError`` that says what it must be."""
    step, change, text = data.get("step"), data.get("change", FREE_NOTE), data.get("text")
    named, points = data.get("rules") or [], data.get("points")
    if step is not None and not (_is_whole(step) and 0 <= step <= MAX_STEP):
        raise InputError(f"step must be a whole number from 0 to {MAX_STEP:,}, not {_shown(step)}.")
    if not isinstance(change, str) or change not in (*CHANGES, FREE_NOTE):
        raise InputError(f"change must be one of {', '.join((*CHANGES, FREE_NOTE))}, not {_shown(change)}.")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
        raise InputError(f"text must say what there is to know, in at most {MAX_TEXT:,} characters.")
    if not isinstance(named, (list, tuple)) or len(named) > MAX_PATTERNS:
        raise InputError(f"rules must be a list of at most {MAX_PATTERNS} names of rules.")
    for pattern in named:
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARACTERS or not any(_means(pattern, r) for r in rules):
            near = difflib.get_close_matches(str(pattern)[:MAX_PATTERN_CHARACTERS], rules, 1)
            raise InputError(f"No rule is called {_shown(pattern)}" + (f"; is {near[0]} meant?" if near else "."))
    if points is not None and not (_is_whole(points) and 1 <= points <= MAX_POINTS):
        raise InputError(f"points must be a whole number from 1 to {MAX_POINTS:,}, not {_shown(points)}.")
    return Note(step, change, text.strip(), tuple(named), points)


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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a very large number"
    return text if len(text) <= 60 else text[:57] + "..."
