"""False alarms on made-up healthy curves, recall on injected faults, and the cost of a point. Prints Markdown tables.

    python -m bench.detection [--seeds 8] [--points 20000]

Curves come from this file alone (seeded), so they show how the rules behave, not how often real runs fault.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step

START_NS = 1_767_225_600_000_000_000
NOISE_CLASSES = ("plain", "batch_ramp", "averaged", "gaps", "resumes", "heavy_tails", "quantised")


@dataclass(frozen=True)
class Curve:
    """``loss``, ``sigma`` (its noise), ``base`` (without noise), ``grad_norm``, ``tokens_per_s`` per step from 1."""

    loss: list[float]
    sigma: list[float]
    base: list[float]
    grad_norm: list[float]
    tokens_per_s: list[float]
    step_time_s: list[float]


def heavy(rng: random.Random, freedom: float = 8.0) -> float:
    """Student's t of unit variance."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(freedom / 2, 2) / freedom) / math.sqrt(freedom / (freedom - 2))


def healthy(rng: random.Random, points: int, noise: str) -> Curve:
    """Power law after a warm-up, cosine or WSD end, noise that shrinks with the loss, isolated odd batches."""
    floor, power, scale, warmup = rng.uniform(1.6, 2.6), rng.uniform(0.25, 0.5), rng.uniform(20, 200), rng.randint(200, 2000)
    height = rng.uniform(10.4, 11.2) - floor
    schedule, end_gain = rng.choice(["cosine", "wsd", "constant"]), rng.uniform(0.04, 0.12)
    rank = noise == "heavy_tails"
    spread = rng.uniform(0.08, 0.16) if rank else rng.uniform(0.006, 0.05)
    odd_share = 8e-3 if rank else 1e-3
    memory = rng.uniform(0, 0.3)
    ramps = sorted(rng.randint(500, max(501, points // 2)) for _ in range(3)) if noise == "batch_ramp" else []
    usual_s, usual_tokens, wander = rng.uniform(2, 20), rng.uniform(1e5, 1e7), rng.uniform(0.003, 0.02)
    evaluation = rng.uniform(2, 9)  # times a step; longer ones are for announced phases, see docs/detection.md
    carried = slow = 0.0
    curve = Curve([], [], [], [], [], [])
    for t in range(1, points + 1):
        effective = t * t / (2 * warmup) if t < warmup else t - warmup / 2
        base = floor + height * ((effective + scale) / scale) ** -power
        if schedule == "cosine":
            base -= end_gain * (1 - math.cos(math.pi * t / points)) / 2
        elif schedule == "wsd" and t > 0.8 * points:
            base -= end_gain * math.sqrt((t - 0.8 * points) / (0.2 * points))
        sigma = spread * (base / (floor + 0.5)) ** 0.8 / math.sqrt(1.5) ** sum(t > at for at in ramps)
        carried = memory * carried + math.sqrt(1 - memory**2) * heavy(rng)
        loss = base + sigma * carried
        if rng.random() < odd_share:
            loss += sigma * (4 + rng.expovariate(0.25))
        slow = 0.999 * slow + rng.gauss(0, wander * math.sqrt(1 - 0.999**2))
        seconds = usual_s * math.exp(rng.gauss(0, 0.01) - slow)
        if t % 500 == 0:
            seconds *= evaluation * rng.uniform(0.8, 1.2)
        elif rng.random() < 2e-3:
            seconds *= rng.uniform(1.5, 5)
        if noise == "quantised":
            loss = round(loss * 64) / 64
        curve.loss.append(loss)
        curve.sigma.append(sigma)
        curve.base.append(base)
        curve.grad_norm.append(math.exp(heavy(rng, 5) * 0.2) * (0.2 + 2 / math.sqrt(1 + t / 50)))
        curve.tokens_per_s.append(usual_tokens * usual_s / seconds)
        curve.step_time_s.append(seconds)
    return curve


def records(rng: random.Random, curve: Curve, noise: str = "plain") -> Iterator[Step | Event]:
    """The curve as the engine reads it: averaged over ten, with holes and repeats, or with five clean resumes."""
    time_ns, points = START_NS, len(curve.loss)
    resumes = sorted(rng.randint(points // 5, points - 1) for _ in range(5)) if noise == "resumes" else []
    attempt, t = 1, 0
    ten: list[int] = []
    while t < points:
        time_ns += round(curve.step_time_s[t] * 1e9)
        step = Step(
            t + 1, attempt, time_ns,
            {"loss": curve.loss[t], "grad_norm": curve.grad_norm[t], "tokens_per_s": curve.tokens_per_s[t]},
        )  # fmt: skip
        if attempt > 1:
            step = replace(step, values={**step.values, "loss": curve.loss[t] + rng.gauss(0, 0.02) * curve.sigma[t]})
        if noise == "averaged":
            ten.append(t)
            if len(ten) == 10:
                means = {
                    "loss": statistics.fmean(curve.loss[i] for i in ten),
                    "grad_norm": statistics.fmean(curve.grad_norm[i] for i in ten),
                    "tokens_per_s": statistics.fmean(curve.tokens_per_s[i] for i in ten),
                }
                yield replace(step, values=means)
                ten = []
        elif noise != "gaps" or rng.random() > 0.1:
            yield step
            if noise == "gaps" and rng.random() < 0.02:
                yield step
        t += 1
        if resumes and t == resumes[0]:
            resumes.pop(0)
            t = max(0, t - rng.randint(100, 600))
            attempt += 1
            time_ns += 300_000_000_000
            yield Event("attempt_start", time_ns, attempt=attempt, data={"attempt": attempt})


def findings(items: Iterable[Step | Event]) -> tuple[list[Finding], int]:
    """All findings in their last state, and the number of points."""
    engine, newest, points = Engine("bench"), {}, 0
    for record in items:
        points += isinstance(record, Step)
        for found in engine.update(record):
            newest[found.id] = found
    for found in engine.finish():
        newest[found.id] = found
    return list(newest.values()), points


def inject(curve: Curve, at: int, fault: str, size: float, rng: random.Random) -> None:
    """Change the curve from ``at`` on. Sizes: spike in sigma, blow-up in lost progress, the others as shares."""
    rise, decay = rng.randint(1, 7), rng.choice([5, 20, 80])
    ramp = rng.randint(20, 200)
    for k, t in enumerate(range(at, len(curve.loss))):
        if fault == "spike":
            curve.loss[t] += size * curve.sigma[at] * ((k + 1) / rise if k < rise else math.exp(-(k - rise) / decay))
        elif fault == "blow-up":
            curve.loss[t] += size * (curve.base[0] - curve.base[at]) * min(1.0, (k + 1) / ramp)
        elif fault == "drift":
            curve.loss[t] += curve.base[at] * size * k / 1000 + curve.base[at] - curve.base[t]
        elif fault == "shift":
            curve.loss[t] += curve.base[at] * size
        elif fault == "NaN":
            curve.loss[t] = math.nan
        elif fault == "grad norm":
            curve.grad_norm[t] *= size if k < 20 else 1.0
        elif fault == "throughput":
            curve.tokens_per_s[t] *= 1 - size
            curve.step_time_s[t] /= 1 - size


LOSS_RULES = {"loss_spike", "loss_divergence", "loss_level_shift", "loss_drift", "loss_nonfinite"}
FAULTS: tuple[tuple[str, tuple[float, ...], set[str]], ...] = (
    ("spike", (6, 10, 20), LOSS_RULES),
    ("blow-up", (0.02, 0.05, 0.2), LOSS_RULES),
    ("drift", (0.01, 0.02, 0.05), LOSS_RULES),
    ("shift", (0.01, 0.02), LOSS_RULES),
    ("NaN", (1,), {"loss_nonfinite"}),
    ("grad norm", (5, 20), {"grad_norm_spike"}),
    ("throughput", (0.05, 0.1, 0.2, 0.5), {"throughput_drop"}),
)


def _as_logged(items: Iterable[Step | Event]) -> Iterator[Step | Event]:
    """NaN moves from the values to ``nonfinite``, as every source tells it."""
    for item in items:
        if isinstance(item, Step) and math.isnan(item.values["loss"]):
            values = {name: value for name, value in item.values.items() if name != "loss"}
            yield replace(item, values=values, nonfinite={"loss": "nan"})
        else:
            yield item


def false_alarms(seeds: int, points: int) -> None:
    """Healthy curves only: every warning is false."""
    print(
        "| noise class | points | info | false warnings | false criticals | breaker trips | rules |\n|---|---|---|---|---|---|---|"
    )
    total: Counter[str] = Counter()
    for noise in NOISE_CLASSES:
        row: Counter[str] = Counter()
        rules: Counter[str] = Counter()
        for seed in range(seeds):
            rng = random.Random(f"healthy/{noise}/{seed}")
            found, count = findings(records(rng, healthy(rng, points * (5 if noise == "averaged" else 1), noise), noise))
            row["points"] += count
            for finding in found:
                if finding.rule == "breaker_trip":
                    row["trips"] += 1
                elif finding.severity is Severity.INFO:
                    row["info"] += 1
                else:
                    row[finding.severity.value] += 1
                    rules[finding.rule] += 1
        total.update(row)
        told = ", ".join(f"{rule} {count}" for rule, count in rules.items()) or "–"
        print(f"| {noise} | {row['points']:,} | {row['info']} | {row['warning']} | {row['critical']} | {row['trips']} | {told} |")
    share = 1e5 * (total["warning"] + total["critical"]) / max(1, total["points"])
    print(
        f"| all | {total['points']:,} | {total['info']} | {total['warning']} | {total['critical']} | {total['trips']} | {share:.2f} per 100,000 points |"
    )


def recall(seeds: int, points: int, make: Callable[[random.Random, int, str], Curve] = healthy) -> None:
    """Faults of graded size, at a random place of the second half."""
    print("\n| fault | size | found | critical | median delay (points) | breaker trips |\n|---|---|---|---|---|---|")
    for fault, sizes, rules in FAULTS:
        for size in sizes:
            delays: list[int] = []
            critical = trips = 0
            for seed in range(seeds):
                rng = random.Random(f"fault/{fault}/{seed}")
                curve = make(rng, points, ("plain", "heavy_tails")[seed % 2] if fault != "NaN" else "plain")
                at = rng.randint(points // 2, points - 3000)
                inject(curve, at, fault, size, rng)
                found, _ = findings(_as_logged(records(rng, curve)))
                hits = [f for f in found if f.rule in rules and f.severity is not Severity.INFO and f.detected_step > at]
                if hits:
                    delays.append(min(f.detected_step for f in hits) - at - 1)
                critical += any(f.severity is Severity.CRITICAL for f in hits)
                trips += any(f.rule == "breaker_trip" and f.detected_step > at for f in found)
            middle = f"{statistics.median(delays):.0f}" if delays else "–"
            print(f"| {fault} | {size:g} | {len(delays)}/{seeds} | {critical}/{seeds} | {middle} | {trips}/{seeds} |")


def cost(points: int) -> None:
    """CPU time of a point with four metrics, and the size of the saved state."""
    rng = random.Random("cost")
    items = list(records(rng, healthy(rng, points, "plain")))
    engine = Engine("bench")
    begun = time.process_time()
    for item in items:
        engine.update(item)
    spent = time.process_time() - begun
    print(
        f"\n{1e6 * spent / len(items):.1f} µs of CPU per point, all rules; saved state {len(json.dumps(engine.to_state())) / 1000:.0f} kB."
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--points", type=int, default=20_000)
    options = parser.parse_args()
    false_alarms(options.seeds, options.points)
    recall(options.seeds, min(options.points, 12_000))
    cost(options.points)


if __name__ == "__main__":
    main()
