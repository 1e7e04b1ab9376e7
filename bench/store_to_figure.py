"""How long a run of a million steps takes from the SQLite file to the JSON of its figure, and whether its spikes are in it.

    python bench/store_to_figure.py [--steps N] [--count BUCKETS] [--repeat N] [--directory DIR]

Writes a table for people, then one JSON line. Exit code 1 when a one-step spike is missing or a goal is not met
(one metric within 0.7 s, four within 2 s, on two shared cores).
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainvitals.charts.build import curve_data
from trainvitals.charts.curves import figure_json
from trainvitals.records import Step
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_323_045 * SECOND
BATCH = 5_000
RUN = "bench"
METRICS = ("loss", "grad_norm", "lr", "tokens_per_s", "step_time_s", "mfu")
ONE, FOUR = ("loss",), ("loss", "grad_norm", "lr", "tokens_per_s")
GOALS_S = {"one": 0.7, "four": 2.0}
SPIKES = 25
SPIKE_LOSS = 1_000.0


def spike_steps(steps: int) -> dict[int, float]:
    """Step -> its loss: one somewhere in each equal part of the run, each of a height of its own so it can be looked for."""
    generator = random.Random(7)
    part = steps // SPIKES
    return {at * part + generator.randrange(part): SPIKE_LOSS + at for at in range(SPIKES)}


def ingest(path: Path, steps: int) -> dict[str, float]:
    """Write the run as ``watch`` would, in batches; returns seconds of encoding and of writing, and the file's size."""
    generator = random.Random(1)
    spikes = spike_steps(steps)
    store = SqliteStore(path)
    encoding_s = writing_s = 0.0
    for first in range(0, steps, BATCH):
        began = time.perf_counter()
        points = []
        for step in range(first, min(first + BATCH, steps)):
            noise = generator.random()
            values = {
                "loss": spikes.get(step, 2.0 + 8.0 * math.exp(-step / 50_000) + 0.05 * noise),
                "grad_norm": 0.3 + noise * noise,
                "lr": 3e-4 * (0.55 + 0.45 * math.cos(math.pi * step / steps)),
                "tokens_per_s": 1.2e6 * (1 - 0.02 * noise),
                "step_time_s": 3.5 + 0.1 * noise,
                "mfu": 0.41 + 0.01 * noise,
            }
            points.append(step_point(RUN, Step(step, 1, None, values), T0 + step * 3_500_000_000 + step % 1_000_000))
        middle = time.perf_counter()
        store.write(points)
        encoding_s += middle - began
        writing_s += time.perf_counter() - middle
    store.close()
    return {"encoding_s": encoding_s, "writing_s": writing_s, "file_bytes": path.stat().st_size}


def measure(path: Path, metrics: tuple[str, ...], count: int, repeat: int, by: str) -> dict[str, object]:
    """Time store -> frame -> figure JSON in this process, read-only, as the dashboard does."""
    store = SqliteStore(path, read_only=True)
    frame_s, total_s, cpu_s, size = [], [], [], 0
    for _ in range(repeat):
        began, began_cpu = time.perf_counter(), time.process_time()
        frame = store.buckets("train", metrics, {"run": RUN}, 0, 2**62, count, by)
        frame_s.append(time.perf_counter() - began)
        text = figure_json(curve_data(frame, [], [], [], [], metrics, "step" if by == "step" else "time"), "light")
        total_s.append(time.perf_counter() - began)
        cpu_s.append(time.process_time() - began_cpu)
        size = len(text)
    steps = int(frame["n"].sum())
    found, drawn = set(frame["loss_max"]), drawn_values(text)
    store.close()
    return {
        "frame_s": statistics.median(frame_s), "total_s": statistics.median(total_s), "worst_s": max(total_s),
        "first_s": total_s[0], "cpu_s": statistics.median(cpu_s), "rows": len(frame), "json_bytes": size, "steps": steps,
        "spikes_in_frame": sum(value in found for value in spike_steps(steps).values()),
        "spikes_in_figure": sum(value in drawn for value in spike_steps(steps).values()),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def drawn_values(figure: str) -> set[float]:
    """Every y value of a figure, read back from its typed arrays as the browser does."""
    drawn: set[float] = set()
    for trace in json.loads(figure)["data"]:
        y = trace.get("y")
        if isinstance(y, dict):
            drawn.update(np.frombuffer(base64.b64decode(y["bdata"]), dtype="<" + y["dtype"]).tolist())
    return drawn


def measured_apart(path: Path, metrics: tuple[str, ...], count: int, repeat: int, by: str) -> dict[str, object]:
    """The same in a process of its own: its peak memory is then that of this query alone."""
    command = [sys.executable, __file__, "--measure", str(path), "--metrics", ",".join(metrics), "--by", by,
               "--count", str(count), "--repeat", str(repeat)]  # fmt: skip
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--count", type=int, default=2_000, help="buckets asked for")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--directory", help="where the file is made (default: a temporary directory)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--metrics", help=argparse.SUPPRESS)
    parser.add_argument("--by", default="step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        metrics = tuple(options.metrics.split(","))
        print(json.dumps(measure(Path(options.measure), metrics, options.count, options.repeat, options.by)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "bench.db"
        written = ingest(path, options.steps)
        writer_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        results = {
            f"{name} by {by}": measured_apart(path, metrics, options.count, options.repeat, by)
            for by in ("step", "time_ns")
            for name, metrics in (("one", ONE), ("four", FOUR))
        }
    return report(options.steps, written, writer_rss_mb, results)


def report(steps: int, written: dict[str, float], writer_rss_mb: float, results: dict[str, dict[str, object]]) -> int:
    rate = steps / written["writing_s"]
    print(
        f"{steps:,} steps x {len(METRICS)} metrics: {rate:,.0f} rows/s written, {written['encoding_s'] / steps * 1e6:.1f} µs a step"
    )
    print(
        f"to make and encode, {written['file_bytes'] / 1e6:.0f} MB, writer's peak memory {writer_rss_mb:.0f} MB, {os.cpu_count()} cores\n"
    )
    print(
        "| metrics | store to frame, s | store to figure JSON, s (median / worst) | its CPU, s | rows | JSON kB | spikes | peak memory, MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    is_good = True
    for name, result in results.items():
        goal = GOALS_S[name.split()[0]]
        is_good &= result["spikes_in_frame"] == result["spikes_in_figure"] == SPIKES and float(str(result["total_s"])) <= goal
        print(
            f"| {name} | {result['frame_s']:.2f} | {result['total_s']:.2f} / {result['worst_s']:.2f} | {result['cpu_s']:.2f} | {result['rows']} "
            f"| {int(str(result['json_bytes'])) / 1e3:.0f} | {result['spikes_in_figure']} of {SPIKES} | {result['peak_rss_mb']:.0f} |"
        )
    print(f"\nload average {os.getloadavg()[0]:.1f}: wall clock holds the wait for other programs too, CPU does not")
    print(
        json.dumps({"steps": steps, "rows_per_s": rate, "goals_s": GOALS_S, "met": bool(is_good), **written, "results": results})
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
