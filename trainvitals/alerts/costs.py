"""What going back to the safe checkpoint repeats, in steps, GPU-hours and money. Pure; nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """None = not known. money: in the currency of the run's ``gpu_hour_price``."""

    steps: int | None = None
    gpu_hours: float | None = None
    money: float | None = None


def going_back(
    last_step: int | None, safe_step: int | None, step_s: float | None, gpus: int, gpu_hour_price: float
) -> Cost:  # fmt: skip
    """step_s: seconds that a step takes, None = not known. gpus, gpu_hour_price: 0 = not said."""
    if last_step is None or safe_step is None:
        return Cost()
    steps = max(0, last_step - safe_step)
    if not step_s or step_s < 0 or not gpus:
        return Cost(steps)
    hours = steps * step_s * gpus / 3600
    return Cost(steps, hours, hours * gpu_hour_price if gpu_hour_price else None)
