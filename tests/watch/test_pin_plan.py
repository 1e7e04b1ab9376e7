"""Which checkpoint is pinned and which pin is let go."""

from __future__ import annotations

from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel
from trainvitals.watch.pin_plan import plan

HOUR_S = 3600.0


def at(step: int, state: CheckpointState = CheckpointState.VERIFIED) -> CheckpointReport:
    return CheckpointReport(f"/c/checkpoint-{step}", step, "hf", state, VerificationLevel.CONTENT, True, 1, 1)


def pinned(*steps: int) -> dict[str, CheckpointReport]:
    return {f"/c/.trainvitals-pinned/checkpoint-{step}": at(step) for step in steps}


def decide(
    recommended: CheckpointReport | None, pins: dict[str, CheckpointReport], **given: object
) -> tuple[int | None, list[int]]:
    asked = {"is_trouble_open": True, "quiet_s": None, "keep_s": 6 * HOUR_S, "originals": {"/c/checkpoint-300"}} | given
    found = plan(recommended, pins=pins, **asked)  # type: ignore[arg-type]
    return found.pin.step if found.pin else None, sorted(int(path.rsplit("-", 1)[1]) for path in found.release)


def test_while_trouble_is_open_the_recommended_one_is_pinned_once() -> None:
    assert decide(at(300), {}) == (300, [])
    assert decide(at(300), pinned(300)) == (None, [])
    assert decide(None, pinned(300)) == (None, [])


def test_a_second_one_is_pinned_beside_the_first_and_for_a_third_the_oldest_goes() -> None:
    assert decide(at(400), pinned(300)) == (400, [])
    assert decide(at(500), pinned(300, 400)) == (500, [300])


def test_a_damaged_pin_goes_at_once() -> None:
    pins = pinned(300) | {"/c/.trainvitals-pinned/checkpoint-400": at(400, CheckpointState.CORRUPT)}
    assert decide(at(300), pins) == (None, [400])
    assert decide(at(300), pins, is_trouble_open=False, quiet_s=1.0) == (None, [400])


def test_after_the_trouble_a_pin_goes_when_a_newer_one_is_safe_or_after_hours() -> None:
    over = {"is_trouble_open": False, "quiet_s": 60.0}
    assert decide(at(400), pinned(300), **over) == (None, [300])
    assert decide(at(300), pinned(300), **over) == (None, [])
    assert decide(at(300), pinned(300), is_trouble_open=False, quiet_s=7 * HOUR_S) == (None, [300])


def test_the_last_way_back_never_goes() -> None:
    forever = {"is_trouble_open": False, "quiet_s": 1e9, "originals": set()}
    assert decide(at(300), pinned(300), **forever) == (None, [])
    assert decide(None, pinned(300), **forever) == (None, [])


def test_a_pinned_path_that_is_recommended_is_pinned_already() -> None:
    own = CheckpointReport("/c/.trainvitals-pinned/checkpoint-300", 300, "hf", CheckpointState.VERIFIED, None, True, 1, 1)
    assert decide(own, pinned(300)) == (None, [])
