"""Made-up curves for the detector tests: seeded, small, and with nothing copied from anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step, split_nonfinite

SECOND = 1_000_000_000
START_NS = 1_767_225_600 * SECOND


def curve(
    points: int,
    *,
    seed: int = 1,
    first: int = 1,
    spacing: int = 1,
    attempt: int = 1,
    noise: float = 0.01,
    seconds: float | None = 10.0,
    change: Callable[[int, dict[str, float]], None] | None = None,
    keep: Iterable[str] = ("loss", "grad_norm", "lr", "tokens_per_s"),
) -> list[Step]:
    """Steps of a healthy falling loss; ``change(k, values)`` may spoil point k (NaN and inf are split off as sources do)."""
    rng = random.Random(seed)
    steps = []
    for k in range(points):
        step = first + k * spacing
        values = {
            "loss": 2.0 + 8.0 * (1 + step / 50) ** -0.5 + rng.gauss(0, noise),
            "grad_norm": 0.3 * (1 + 0.1 * rng.uniform(-1, 1)),
            "lr": 1e-4,
            "tokens_per_s": 1e6 * (1 + rng.gauss(0, 0.005)),
        }
        if change is not None:
            change(k, values)
        finite, nonfinite = split_nonfinite({name: values[name] for name in keep if name in values})
        time_ns = None if seconds is None else START_NS + round(k * seconds * SECOND)
        steps.append(Step(step, attempt, time_ns, finite, nonfinite))
    return steps


def at(second: float) -> int:
    """Nanoseconds ``second`` seconds after the first point of a curve."""
    return START_NS + round(second * SECOND)


def feed(engine: Engine, records: Iterable[Step | Event]) -> list[Finding]:
    """Every emission, in order."""
    return [found for record in records for found in engine.update(record)]


def last_states(found: Iterable[Finding]) -> list[Finding]:
    """Each finding once, as it was told last."""
    return list({finding.id: finding for finding in found}.values())


def find(
    records: Iterable[Step | Event], *, tunables: Mapping[str, Mapping[str, float]] | None = None, end: bool = True
) -> list[Finding]:
    """Findings of a fresh engine in their last state."""
    engine = Engine("run", tunables or {})
    found = feed(engine, records)
    return last_states([*found, *(engine.finish() if end else ())])


def of_rule(found: Iterable[Finding], rule: str) -> list[Finding]:
    return [finding for finding in found if finding.rule == rule]


def alarms(found: Iterable[Finding]) -> list[Finding]:
    """What a person would hear of."""
    return [finding for finding in found if finding.severity is not Severity.INFO]


def event(kind: str, second: float | None = None, **data: Any) -> Event:
    return Event(
        kind, None if second is None else at(second), attempt=data.get("attempt"), step=data.pop("step", None), data=data
    )
