"""Which checkpoint is to be pinned now and which pin is to be let go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainvitals.checkpoints.pinning import MAX_PINS, original_path, pin_path
from trainvitals.records import CheckpointReport, CheckpointState

_BAD = frozenset({CheckpointState.CORRUPT, CheckpointState.INCOMPLETE})


@dataclass(frozen=True)
class PinPlan:
    """pin: checkpoint to pin, or None. release: path of a pin -> why it is let go."""

    pin: CheckpointReport | None
    release: Mapping[str, str]


def plan(
    recommended: CheckpointReport | None, *, is_trouble_open: bool, quiet_s: float | None, keep_s: float,
    pins: Mapping[str, CheckpointReport], originals: Collection[str], not_own: Collection[str] = (),
) -> PinPlan:  # fmt: skip
    """What to do.

    quiet_s: seconds since the last incident about the weights ended, None = there was none. pins: path of the pin -> what is
    pinned there. originals: paths of the checkpoints that the trainer still has. not_own: pins that
    another run may need, or that nobody remembers yet: never let go.
    """
    # A damaged one is better than none, for a person who has to choose.
    own = {path: report for path, report in pins.items() if path not in not_own}
    is_damaged = {path for path, report in own.items() if report.state in _BAD and recommended is not None}
    release: dict[str, str] = dict.fromkeys(is_damaged, "it is damaged")
    left = {path: report for path, report in own.items() if path not in release}
    if not is_trouble_open:
        release |= _not_needed(recommended, quiet_s, keep_s, left, originals)
        return PinPlan(None, release)
    if recommended is None or pin_path(recommended.path) in left:
        return PinPlan(None, release)
    if len(left) >= MAX_PINS:
        worst = min(left, key=lambda path: (left[path].step or 0, path))
        release[worst] = f"{MAX_PINS} are kept, and a better one is to be"
    return PinPlan(recommended, release)


def _not_needed(
    recommended: CheckpointReport | None, quiet_s: float | None, keep_s: float, pins: Mapping[str, CheckpointReport],
    originals: Collection[str],
) -> dict[str, str]:  # fmt: skip
    found: dict[str, str] = {}
    for path, report in pins.items():
        is_recommended = recommended is not None and pin_path(recommended.path) == path
        has_original = original_path(path) in originals
        if recommended is None or (is_recommended and not has_original):
            continue  # nothing else is safe: with this pin the last way back would go
        if (recommended.step or 0) > (report.step or 0):
            found[path] = f"step {recommended.step:,} is safe, too, and newer"
        elif quiet_s is None or quiet_s >= keep_s:
            found[path] = "the incident has been over for long enough"
    return found
