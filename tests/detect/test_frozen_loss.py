"""A training loss repeated to the last digit is told where this run never repeated one for so long."""

from __future__ import annotations

import struct

from made_up import curve, find, of_rule

from trainvitals.records import Severity


def bf16(value: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])


def test_a_loss_that_does_not_change_any_more_is_told_after_thirty_points() -> None:
    def change(k: int, values: dict[str, float]) -> None:
        if 600 <= k < 700:
            values["loss"] = 2.4130859375

    (found,) = of_rule(find(curve(900, change=change)), "loss_frozen")
    assert found.severity is Severity.WARNING
    assert (found.first_step, found.detected_step, found.last_step) == (601, 630, 701)


def test_quantised_and_short_losses_repeat_themselves_and_that_is_their_usual() -> None:
    for seed in range(4):
        for noise in (0.0005, 0.002, 0.01):
            assert not of_rule(
                find(curve(4000, seed=seed, noise=noise, change=lambda _, v: v.update(loss=bf16(v["loss"])))), "loss_frozen"
            )
            assert not of_rule(
                find(curve(4000, seed=seed, noise=noise, change=lambda _, v: v.update(loss=round(v["loss"], 2)))), "loss_frozen"
            )


def test_a_loss_logged_at_every_step_and_computed_at_every_fiftieth_is_not_frozen() -> None:
    held = [0.0]

    def change(k: int, values: dict[str, float]) -> None:
        if k % 50 == 0:
            held[0] = values["loss"]
        values["loss"] = held[0]

    assert not of_rule(find(curve(6000, change=change)), "loss_frozen")


def test_zeros_of_reinforcement_learning_are_not_frozen() -> None:
    assert not of_rule(find(curve(900, change=lambda k, v: v.update(loss=0.0 if k > 300 else v["loss"]))), "loss_frozen")


def test_a_loss_that_never_changed_since_its_first_value_is_told_unless_rounding_explains_it() -> None:
    (found,) = of_rule(find(curve(1_000, change=lambda _, v: v.update(loss=10.8259))), "loss_frozen")
    assert found.severity is Severity.WARNING and found.detected_step == 900
    assert "since its first value" in found.message
    for rounded in (10.8125, 10.83, 0.0):
        assert not of_rule(find(curve(1_000, change=lambda _, v, rounded=rounded: v.update(loss=rounded))), "loss_frozen")
