"""Score card of the rules: false alarms, recall by size of fault, real curves, rival methods, cost. Prints Markdown tables.

    python -m bench.detection [--seeds 8] [--points 20000] [--series DIR --labels FILE]
    python -m bench.detection --only false_alarms --points-per-class 2000000 --jobs 2

Made-up curves are seeded (``--first-seed``, for a fresh draw). DIR holds CSVs of real runs (step, loss, grad_norm, lr, throughput; .gz is
fine), FILE says what is in them (name, kind, first_step, last_step, sure); without them those parts of the tables are left out.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from bench.detection_baselines import BASELINES
from bench.detection_curves import AVERAGED_STEPS, NOISE_CLASSES, Curve, Label, healthy, inject, read_curve, read_labels, records
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step

MERGE_POINTS = 200  # alarms this close are one incident
EARLY_POINTS = 20
LOSS_RULES = {"loss_spike", "loss_divergence", "loss_level_shift", "loss_drift", "loss_nonfinite"}
FAULTS: tuple[tuple[str, tuple[float, ...], set[str]], ...] = (
    ("spike", (4, 6, 10, 20), LOSS_RULES),
    ("blow-up", (0.02, 0.05, 0.2), LOSS_RULES),
    ("drift", (0.01, 0.02, 0.05), LOSS_RULES),
    ("shift", (0.01, 0.02), LOSS_RULES),
    ("NaN", (1,), {"loss_nonfinite"}),
    ("grad norm", (5, 20), {"grad_norm_spike"}),
    ("throughput", (0.05, 0.1, 0.2, 0.5), {"throughput_drop"}),
)
COMPARED: tuple[tuple[str, float, int], ...] = (  # fault, size, points within which it must be found
    ("spike", 6, 200), ("spike", 10, 200), ("spike", 20, 200), ("blow-up", 0.05, 600), ("blow-up", 0.2, 600), ("drift", 0.02, 3000),
)  # fmt: skip
LOSS_EVENTS = {
    "loss_spike_recovers", "loss_spike_slow", "loss_spike_diverges", "loss_ramp_diverges", "resume_loss_jump", "plateau_not_learning",
}  # fmt: skip
MIN_REAL_POINTS = 200
MIN_HOST_POINTS = 4000
MIN_THROUGHPUT_POINTS = 2000
COST_RUNS = 5
MADE_PER_POINT = {"averaged": float(AVERAGED_STEPS), "gaps": 1.1}  # so that every noise class has as many points
FALSE_ALARM_FAMILIES = ("loss", "grad_norm", "throughput", "liveness")
FALSE_ALARM_HEADS = (
    "noise",
    "points",
    "info",
    "false warnings",
    "false criticals",
    "breaker trips",
    *FALSE_ALARM_FAMILIES,
    "which",
)


def findings(items: Iterable[Step | Event], family: str = "") -> tuple[list[Finding], int]:
    """All findings (or those of one family, which is quicker) in their last state, and the number of points."""
    engine, newest, points = Engine("bench"), {}, 0
    if family:
        engine._detectors = tuple(detector for detector in engine._detectors if detector.family == family)
    for record in items:
        points += isinstance(record, Step)
        for found in engine.update(record):
            newest[found.id] = found
    for found in engine.finish():
        newest[found.id] = found
    return list(newest.values()), points


def is_alarm(found: Finding) -> bool:
    """Whether a person would hear of it."""
    return found.severity is not Severity.INFO and found.rule != "breaker_trip"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Markdown."""
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)
    print()


def _false_alarms_of(task: tuple[str, int, int]) -> tuple[str, Counter[str], Counter[str]]:
    """One healthy curve, in a process of its own perhaps: its noise, what was counted, and the rules that were wrong."""
    noise, seed, points = task
    row, rules = Counter[str](), Counter[str]()
    rng = random.Random(f"healthy/{noise}/{seed}")
    curve = healthy(rng, round(points * MADE_PER_POINT.get(noise, 1.0)), noise)
    found, row["points"] = findings(records(rng, curve, noise))
    for finding in found:
        row["trip" if finding.rule == "breaker_trip" else finding.severity.value] += 1
        if is_alarm(finding):
            row[finding.family] += 1
            rules[f"{finding.rule}{' critical' if finding.severity is Severity.CRITICAL else ''}"] += 1
    return noise, row, rules


def false_alarms(seeds: Sequence[int], points: int, jobs: int = 1, classes: Sequence[str] | None = None) -> None:
    """Healthy curves only: every warning is false. Rates are warnings per 100,000 points."""
    print("Made-up healthy curves\n")
    total, per_noise = Counter[str](), {noise: (Counter[str](), Counter[str]()) for noise in classes or NOISE_CLASSES}
    tasks = [(noise, seed, points) for noise in per_noise for seed in seeds]
    left = Counter(noise for noise, _, _ in tasks)
    print(f"| {' | '.join(FALSE_ALARM_HEADS)} |\n|{'---|' * len(FALSE_ALARM_HEADS)}")
    with multiprocessing.get_context("spawn").Pool(jobs) if jobs > 1 else nullcontext() as pool:
        for noise, row, rules in pool.imap_unordered(_false_alarms_of, tasks) if pool else map(_false_alarms_of, tasks):
            per_noise[noise][0].update(row)
            per_noise[noise][1].update(rules)
            total.update(row)
            left[noise] -= 1
            if not left[noise]:
                told = ", ".join(f"{rule} {count}" for rule, count in per_noise[noise][1].most_common()) or "–"
                print(_false_alarm_row(noise, per_noise[noise][0], told), flush=True)
    print(_false_alarm_row("all", total, "") + "\n", flush=True)


def _false_alarm_row(name: str, row: Counter[str], told: str) -> str:
    rates = (f"{1e5 * row[family] / max(1, row['points']):.2f}" for family in FALSE_ALARM_FAMILIES)
    counts = (row[kind] for kind in ("info", "warning", "critical", "trip"))
    return f"| {' | '.join([name, format(row['points'], ','), *map(str, counts), *rates, told])} |"


def recall(seeds: Iterable[int], points: int) -> None:
    """Faults of graded size, at a random place of the second half."""
    print("Faults in made-up curves\n")
    rows, seeds = [], list(seeds)
    for fault, sizes, rules in FAULTS:
        for size in sizes:
            delays: list[int] = []
            critical = trips = 0
            for seed in seeds:
                rng = random.Random(f"fault/{fault}/{seed}")
                curve = healthy(rng, points, ("plain", "heavy_tails")[seed % 2] if fault != "NaN" else "plain")
                at = rng.randint(points // 2, points - 3000)
                inject(curve, at, fault, size, rng)
                found, _ = findings(records(rng, curve))
                hits = [f for f in found if f.rule in rules and is_alarm(f) and f.detected_step > at]
                if hits:
                    delays.append(min(f.detected_step for f in hits) - at - 1)
                critical += any(f.severity is Severity.CRITICAL for f in hits)
                trips += any(f.rule == "breaker_trip" and f.detected_step > at for f in found)
            count = len(seeds)
            rows.append(
                (fault, f"{size:g}", f"{len(delays)}/{count}", f"{critical}/{count}", _median(delays), f"{trips}/{count}")
            )
    table(("fault", "size", "found", "critical", "median delay (points)", "breaker trips"), rows)


# -- side by side with rival methods --------------------------------------------------------------------------------------


def alarms_of_rules(curve: Curve) -> list[int]:
    """Indices at which the loss rules raised a warning, from the loss alone."""
    bare = copy.copy(curve)
    bare.grad_norm, bare.lr, bare.tokens_per_s = [], [], [math.nan] * len(curve.loss)
    found, _ = findings(records(random.Random(0), bare), "loss")
    return sorted(f.detected_step // curve.spacing - 1 for f in found if is_alarm(f) and f.family == "loss")


def alarms_of(curve: Curve) -> dict[str, list[int]]:
    """Method -> indices of alarmed points."""
    return {"**Trainvitals, loss rules**": alarms_of_rules(curve)} | {name: rule(curve.loss) for name, rule in BASELINES.items()}


def incidents(alarms: Iterable[int]) -> int:
    """Alarms at most ``MERGE_POINTS`` apart count once."""
    count, last = 0, -(10**9)
    for at in alarms:
        count += at - last > MERGE_POINTS
        last = at
    return count


class Score:
    """What one method did on all curves."""

    def __init__(self) -> None:
        self.false = Counter[str]()
        self.found: dict[tuple[str, float], list[int | None]] = {}
        self.real: list[int | None] = []

    def cells(self, points: Counter[str]) -> list[str]:
        """The columns of its row, after the name."""
        cells = [f"{1e5 * self.false[kind] / points[kind]:.1f}" if points[kind] else "–" for kind in ("made-up", "real")]
        for fault, size, _ in COMPARED:
            delays = self.found[fault, size]
            hits = [delay for delay in delays if delay is not None]
            cells.append(f"{len(hits) / len(delays):.2f} ({_median(hits)})")
        hits = [delay for delay in self.real if delay is not None]
        return [*cells, f"{len(hits)}/{len(self.real)} ({_median(hits)})" if self.real else "–"]


def compare(seeds: Iterable[int], points: int, real: dict[str, Curve], labels: dict[str, list[Label]]) -> None:
    """One table: false incidents and recall of our rules and of their rivals, on the same losses."""
    print("Loss rules beside what else people use: false incidents per 100,000 points, found (median delay in points)\n")
    scores: dict[str, Score] = {}
    counted, seeds = Counter[str](), list(seeds)
    for noise in ("plain", "batch_ramp", "heavy_tails", "quantised"):
        for seed in seeds:
            curve = healthy(random.Random(f"healthy/{noise}/{seed}"), points, noise)
            counted["made-up"] += points
            for name, alarms in alarms_of(curve).items():
                scores.setdefault(name, Score()).false["made-up"] += incidents(alarms)
    sound = [name for name in real if _is_sound(real[name], labels.get(name, []))]
    for name, curve in real.items():
        _score_real(curve, labels.get(name, []), scores, counted)
    for fault, size, within in COMPARED:
        for seed in seeds:
            rng = random.Random(f"compare/{fault}/{seed}")
            if sound and seed % 2:
                curve = copy.deepcopy(real[rng.choice(sound)])
            else:
                curve = healthy(rng, points, rng.choice(["plain", "heavy_tails"]))
            count = len(curve.loss)
            at = rng.randint(count // 2, max(count // 2, count - within - 1))
            inject(curve, at, fault, size, rng)
            for name, alarms in alarms_of(curve).items():
                delay = next((alarm - at for alarm in alarms if at <= alarm < at + within), None)
                scores[name].found.setdefault((fault, size), []).append(delay)
    heads = ["method", "false, made-up", "false, real", *(f"{fault} {size:g}" for fault, size, _ in COMPARED), "real events"]
    table(heads, ([name, *score.cells(counted)] for name, score in scores.items()))


def _is_sound(curve: Curve, labels: list[Label]) -> bool:
    """Whether faults may be put into a real curve: healthy, long enough, and with progress that can be lost."""
    is_long = len(curve.loss) >= MIN_HOST_POINTS
    return (
        is_long
        and all(label.kind.startswith("clean") for label in labels)
        and curve.base[0] - curve.base[-1] > 10 * curve.sigma[0]
    )


def _score_real(curve: Curve, labels: list[Label], scores: dict[str, Score], counted: Counter[str]) -> None:
    """Events of a labelled curve, and the alarms that touch none of its labels."""
    counted["real"] += len(curve.loss)
    spans = [(label, label.first_step // curve.spacing - 1, label.last_step // curve.spacing - 1) for label in labels]
    spans = [span for span in spans if not span[0].kind.startswith("clean")]
    for name, alarms in alarms_of(curve).items():
        loose = [a for a in alarms if not any(lo - EARLY_POINTS <= a <= hi + MERGE_POINTS for _, lo, hi in spans)]
        scores[name].false["real"] += incidents(loose)
        for label, lo, hi in spans:
            if label.is_sure and label.kind in LOSS_EVENTS:
                delays = (a - lo for a in alarms if lo - EARLY_POINTS <= a <= hi + EARLY_POINTS)
                scores[name].real.append(next(delays, None))


# -- throughput, cost ------------------------------------------------------------------------------------------------------


def throughput(seeds: Iterable[int], real: dict[str, Curve]) -> None:
    """Drops put into the real throughput of runs, and what is found in it as it is."""
    print("Drops in real throughput series\n")
    rows, seeds = [], list(seeds)
    for is_timed in (False, True):
        for size in (0.0, 0.05, 0.1, 0.2):
            found, tried, delays = 0, 0, []
            for name, curve in real.items():
                for seed in seeds if size else [0]:
                    rng = random.Random(f"throughput/{name}/{seed}")
                    changed = copy.deepcopy(curve)
                    at = rng.randint(len(curve.loss) * 2 // 5, len(curve.loss) * 4 // 5) if size else 0
                    inject(changed, at, "throughput", size, rng)
                    changed.loss, changed.grad_norm, changed.lr = [math.nan] * len(curve.loss), [], []
                    items: Iterable[Step | Event] = records(rng, changed)
                    if not is_timed:
                        items = (Step(step.step, 1, None, step.values) for step in items if isinstance(step, Step))
                    told = findings(items, "throughput")[0]
                    hits = [delay for f in told if (delay := f.detected_step // curve.spacing - 1 - at) >= 0]
                    found += len(hits) if not size else bool(hits)
                    tried += 1
                    delays += [min(hits)] if hits else []
            times = "with times (buckets up to 10 s)" if is_timed else "without times (a point is a bucket)"
            counted = f"{found} warnings in {tried} series" if not size else f"{found}/{tried} ({found / tried:.2f})"
            rows.append((times, f"{100 * size:g} %" if size else "none", counted, _median(delays) if size else "–"))
    table(("series", "drop", "found", "median delay (points)"), rows)


def cost(points: int) -> None:
    """CPU time of a point per family, of all, and the size of the saved state; the best of some runs, as others use the machine."""
    rng = random.Random("cost")
    items = list(records(rng, healthy(rng, points, "plain")))
    families = dict.fromkeys(detector.family for detector in Engine("bench")._detectors)
    order, loss = _best_us(items, set()), _best_us(items, {"loss"})
    spent = Counter({"loss": loss - order})
    for family in families:
        if family != "loss":  # others read what that of the loss has found
            spent[family] = _best_us(items, {"loss", family}) - loss
    engine = Engine("bench")
    for item in items:
        engine.update(item)
    print("CPU per point\n")
    rows = [(family, f"{max(0.0, spent_us):.1f} µs") for family, spent_us in spent.most_common()]
    table(("family", "per point"), [*rows, ("all, with the order of steps", f"{_best_us(items, set(families)):.1f} µs")])
    print(f"The saved state is {len(json.dumps(engine.to_state())) / 1000:.0f} kB.")


def _best_us(items: Sequence[Step | Event], families: set[str]) -> float:
    """CPU time of a point, with the detectors of these families only."""
    best = math.inf
    for _ in range(COST_RUNS):
        engine = Engine("bench")
        engine._detectors = tuple(detector for detector in engine._detectors if detector.family in families)
        begun = time.thread_time_ns()  # not the time of day
        for item in items:
            engine.update(item)
        best = min(best, (time.thread_time_ns() - begun) / 1e3 / len(items))
    return best


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f}" if values else "–"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="curves per cell")
    parser.add_argument("--first-seed", type=int, default=0, help="0-99 were looked at while the rules were made")
    parser.add_argument("--points", type=int, default=20_000, help="points per curve")
    parser.add_argument("--points-per-class", type=int, help="healthy points of every noise class, instead of --seeds curves")
    parser.add_argument("--noise", action="append", choices=NOISE_CLASSES, help="only these classes of healthy curves")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the healthy curves")
    parser.add_argument("--series", type=Path, help="folder of real curves")
    parser.add_argument("--labels", type=Path, help="CSV that says what is in them")
    parser.add_argument("--only", choices=("false_alarms", "recall", "compare", "throughput", "cost"), help="one table")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    curves = -(-options.points_per_class // options.points) if options.points_per_class else options.seeds
    healthy_seeds = range(options.first_seed, options.first_seed + curves)
    files = sorted(options.series.glob("*.csv*")) if options.series else []
    real = {file.name.split(".csv")[0]: read_curve(file) for file in files}
    real = {name: curve for name, curve in real.items() if len(curve.loss) >= MIN_REAL_POINTS}
    labels = read_labels(options.labels) if options.labels else {}
    fast = {n: c for n, c in real.items() if sum(value > 0 for value in c.tokens_per_s) >= MIN_THROUGHPUT_POINTS}
    few = min(options.points, 12_000)
    tables = {
        "false_alarms": lambda: false_alarms(healthy_seeds, options.points, options.jobs, options.noise),
        "recall": lambda: recall(seeds, few),
        "compare": lambda: compare(seeds, few, real, labels),
        "throughput": lambda: throughput(seeds, fast) if fast else None,
        "cost": lambda: cost(options.points),
    }
    for name, make in tables.items():
        if options.only in (None, name):
            make()


if __name__ == "__main__":
    main()
