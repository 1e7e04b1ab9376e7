"""Training curves to judge detectors on: made-up healthy ones of many kinds of noise, real ones read from files, and faults for both.

Made-up curves are seeded and come from this file alone, so they show how rules behave, not how often real runs fault.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from trainvitals.records import Event, Step

START_NS = 1_767_225_600_000_000_000
SECONDS_PER_DAY = 86400.0
AVERAGED_STEPS = 10
NOISE_CLASSES = (
    "plain", "batch_ramp", "averaged", "gaps", "resumes", "heavy_tails", "quantised", "rl", "stairs", "long_warmup", "diurnal",
    "stalls", "short_steps",
)  # fmt: skip


@dataclass
class Curve:
    """Columns per step: ``loss``, ``sigma`` (its noise), ``base`` (without noise), ``grad_norm``, ``lr``, ``tokens_per_s``, ``step_time_s``.

    ``grad_norm`` and ``lr`` are empty when the run did not log them; ``spacing``: steps between two points.
    """

    loss: list[float]
    sigma: list[float]
    base: list[float]
    grad_norm: list[float]
    lr: list[float]
    tokens_per_s: list[float]
    step_time_s: list[float]
    spacing: int = 1
    metric: str = "tokens_per_s"


def heavy(rng: random.Random, freedom: float = 8.0) -> float:
    """Student's t of unit variance."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(freedom / 2, 2) / freedom) / math.sqrt(freedom / (freedom - 2))


def bfloat16(value: float) -> float:
    """Rounded to the eight significant bits of bf16."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256) / 256, exponent)


def healthy(rng: random.Random, points: int, noise: str) -> Curve:
    """Power law after a warm-up, cosine or WSD end, noise that shrinks with the loss, isolated odd batches, slow wander of the throughput."""
    floor, power, scale, warmup = rng.uniform(1.6, 2.6), rng.uniform(0.25, 0.5), rng.uniform(20, 200), rng.randint(200, 2000)
    if noise == "long_warmup":
        warmup = points * 3 // 10
    height = rng.uniform(10.4, 11.2) - floor
    schedule, end_gain, peak_lr = (
        rng.choice(["cosine", "wsd", "constant"]),
        rng.uniform(0.04, 0.12),
        10 ** rng.uniform(-4.5, -2.5),
    )
    is_rank = noise == "heavy_tails"
    spread = rng.uniform(0.08, 0.16) if is_rank else rng.uniform(0.006, 0.05)
    odd_share = 8e-3 if is_rank else 1e-3
    memory = rng.uniform(0, 0.3)
    ramps = sorted(rng.randint(500, max(501, points // 2)) for _ in range(3)) if noise == "batch_ramp" else []
    epoch = points // rng.randint(4, 8) if noise == "stairs" else 0
    stair = rng.uniform(0.05, 0.25)
    reward = rng.choice(["zeros", "around_zero", "negative"]) if noise == "rl" else ""
    usual_s, usual_tokens, wander = rng.uniform(2, 20), rng.uniform(1e5, 1e7), rng.uniform(0.003, 0.02)
    usual_s *= 0.03 if noise == "short_steps" else 1.0
    swing = 0.01 if noise == "diurnal" else 0.0
    evaluation = rng.uniform(2, 9)  # times a step; longer ones are for announced phases
    carried = slow = clock_s = 0.0
    curve = Curve([], [], [], [], [], [], [])
    for t in range(1, points + 1):
        effective = t * t / (2 * warmup) if t < warmup else t - warmup / 2
        base = floor + height * ((effective + scale) / scale) ** -power
        lr = peak_lr * min(1.0, t / warmup)
        done = t / points
        if schedule == "cosine":
            base -= end_gain * (1 - math.cos(math.pi * done)) / 2
            lr *= 0.55 + 0.45 * math.cos(math.pi * done)
        elif schedule == "wsd" and done > 0.8:
            base -= end_gain * math.sqrt((done - 0.8) / 0.2)
            lr *= (1 - done) / 0.2
        sigma = spread * (base / (floor + 0.5)) ** 0.8 / math.sqrt(1.5) ** sum(t > at for at in ramps)
        if epoch:
            base *= (1 - stair) ** (t // epoch) * (1 + 0.002 * (t % epoch) / epoch)
        carried = memory * carried + math.sqrt(1 - memory**2) * heavy(rng)
        loss = base + sigma * carried
        if rng.random() < odd_share:
            loss += sigma * (4 + rng.expovariate(0.25))
        log_norm = 0.2 * heavy(rng, 5)
        if reward:
            base = -0.3 * done if reward == "negative" else 0.0
            sigma, log_norm = 0.02, rng.gauss(0, 0.85)
            loss = 0.0 if reward == "zeros" and rng.random() < 0.75 else base + sigma * heavy(rng, 4)
        slow = 0.999 * slow + rng.gauss(0, wander * math.sqrt(1 - 0.999**2))
        pace = slow + swing * math.sin(2 * math.pi * clock_s / SECONDS_PER_DAY)
        seconds = usual_s * math.exp(rng.gauss(0, 0.01) - pace)
        if noise == "stalls":
            seconds += usual_s * (rng.uniform(2, 8.5) if t % 100 == 0 else 0)
        elif t % 500 == 0:
            seconds *= evaluation * rng.uniform(0.8, 1.0)
        elif rng.random() < 2e-3:
            seconds *= rng.uniform(1.5, 5)
        clock_s += seconds
        curve.loss.append(bfloat16(loss) if noise == "quantised" else loss)
        curve.sigma.append(sigma)
        curve.base.append(base)
        curve.grad_norm.append(math.exp(log_norm) * (0.2 + 2 / math.sqrt(1 + t / 50)))
        curve.lr.append(lr)
        curve.tokens_per_s.append(usual_tokens * usual_s / seconds)
        curve.step_time_s.append(seconds)
    return curve


def _step(curve: Curve, t: int, attempt: int, time_ns: int) -> Step:
    raw = {"loss": curve.loss[t], curve.metric: curve.tokens_per_s[t]}
    if curve.grad_norm:
        raw["grad_norm"] = curve.grad_norm[t]
    if curve.lr:
        raw["lr"] = curve.lr[t]
    nonfinite = {"loss": "nan"} if math.isnan(raw["loss"]) else {}
    values = {name: value for name, value in raw.items() if not math.isnan(value)}
    return Step((t + 1) * curve.spacing, attempt, time_ns, values, nonfinite)  # type: ignore[arg-type]


def records(rng: random.Random, curve: Curve, noise: str = "plain") -> Iterator[Step | Event]:
    """The curve as the engine reads it.

    ``averaged`` over ten steps; ``gaps``: every tenth step missing, every fiftieth told twice; ``resumes``: five clean ones, with
    overlap; ``stalls``: every hundredth step held up by an evaluation or a checkpoint of up to ten steps' length, most of
    them announced.
    """
    time_ns, points = START_NS, len(curve.loss)
    resumes = sorted(rng.randint(points // 5, points - 1) for _ in range(5)) if noise == "resumes" else []
    attempt, t = 1, 0
    ten: list[Step] = []
    while t < points:
        if noise == "stalls" and (t + 1) % 100 == 0 and rng.random() < 0.7:
            phase = rng.choice(["eval", "checkpoint"])
            yield Event("phase", time_ns, data={"phase": phase, "state": "begin"})
            time_ns += round(curve.step_time_s[t] * 9e8)
            yield Event("phase", time_ns, data={"phase": phase, "state": "end"})
            time_ns += round(curve.step_time_s[t] * 1e8)
        else:
            time_ns += round(curve.step_time_s[t] * 1e9)
        step = _step(curve, t, attempt, time_ns)
        if attempt > 1:
            step = replace(step, values={**step.values, "loss": curve.loss[t] + rng.gauss(0, 0.02) * curve.sigma[t]})
        if noise == "averaged":
            ten.append(step)
            if len(ten) == AVERAGED_STEPS:
                yield replace(step, values={name: statistics.fmean(s.values[name] for s in ten) for name in step.values})
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


def inject(curve: Curve, at: int, fault: str, size: float, rng: random.Random) -> None:
    """Change the curve from point ``at`` on. Sizes: spike in sigma, blow-up in lost progress, the others as shares."""
    rise, decay = rng.randint(1, 7), rng.choice([5, 20, 80])
    ramp = rng.randint(20, 200)
    base, sigma, first = curve.base[at], curve.sigma[at], curve.base[0]
    for k, t in enumerate(range(at, len(curve.loss))):
        if fault == "spike":
            curve.loss[t] += size * sigma * ((k + 1) / rise if k < rise else math.exp(-(k - rise) / decay))
        elif fault == "blow-up":
            curve.loss[t] += size * (first - base) * min(1.0, (k + 1) / ramp)
        elif fault == "drift":
            curve.loss[t] += base * size * k / 1000 + base - curve.base[t]
        elif fault == "shift":
            curve.loss[t] += base * size
        elif fault == "NaN":
            curve.loss[t] = math.nan
        elif fault == "grad norm":
            curve.grad_norm[t] *= size if k < 20 else 1.0
        elif fault == "throughput":
            curve.tokens_per_s[t] *= 1 - size
            curve.step_time_s[t] /= 1 - size
        else:
            raise ValueError(f"No fault is called {fault!r}.")


# -- real curves --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """What is in a real curve between two steps; ``is_sure``: the evidence leaves no doubt."""

    kind: str
    first_step: int
    last_step: int
    is_sure: bool


def read_labels(path: Path) -> dict[str, list[Label]]:
    """Curve -> labels, from a CSV with the columns name, kind, first_step, last_step, sure."""
    labels: dict[str, list[Label]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            label = Label(row["kind"], int(row["first_step"]), int(row["last_step"]), row["sure"] == "yes")
            labels.setdefault(row["name"], []).append(label)
    return labels


def read_curve(path: Path) -> Curve:
    """A curve of a real run: a CSV of step, loss and perhaps grad_norm, lr and throughput; ``#`` lines are comments.

    Its unit of throughput is taken from the comments ("throughput unit: tokens/s" or "steps/s"). A point without a throughput
    takes the usual one; step times are made from steps per second, or from half a million tokens a step.
    """
    raw = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    lines = raw.splitlines()
    is_tokens = any(line.startswith("# throughput unit: tokens/s") for line in lines)
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    loss = [_number(row, "loss") for row in rows]
    smooth = _smooth(loss)
    jumps = sorted(abs(a - b) for a, b in pairwise(loss) if not math.isnan(a - b))
    usual_jump = jumps[len(jumps) // 2] if jumps else 0.0
    speed = [_number(row, "throughput") for row in rows]
    known = sorted(value for value in speed if value > 0)
    usual = known[len(known) // 2] if known else math.nan
    steps = [int(row["step"]) for row in rows]
    spacing = max(1, round(statistics.median(b - a for a, b in pairwise(steps)))) if len(steps) > 1 else 1
    work = (524_288 if is_tokens else 1) * spacing
    seconds = [work / (value if value > 0 else usual) if known else 1.0 for value in speed]
    grad_norm, lr = ([_number(row, name) for row in rows] for name in ("grad_norm", "lr"))
    return Curve(
        loss=loss,
        sigma=[1.0484 * usual_jump] * len(loss),  # 1.4826 / sqrt 2: difference of two points -> one point
        base=smooth,
        grad_norm=grad_norm if any(value > 0 for value in grad_norm) else [],
        lr=lr if any(value > 0 for value in lr) else [],
        tokens_per_s=speed,
        step_time_s=seconds,
        spacing=spacing,
    )


def _number(row: dict[str, str], name: str) -> float:
    text = row.get(name) or ""
    return float(text) if text else math.nan


def _smooth(values: list[float], half: int = 50) -> list[float]:
    """Medians of blocks of 2 x half points, drawn through."""
    smooth: list[float] = []
    for at in range(0, len(values), half):
        near = [value for value in values[max(0, at - half) : at + 2 * half] if not math.isnan(value)]
        smooth += [statistics.median(near) if near else math.nan] * min(half, len(values) - at)
    return smooth
