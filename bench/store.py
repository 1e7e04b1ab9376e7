"""What one store holds: hardware of a large cluster through the spool into one real influxd, long curves and the node wall.

    python bench/store.py [--nodes 1280] [--minutes 10] [--live-s 60] [--steps 1000000] [--repeat 7] [--skip ingest,curve]

Needs influxd (Debian's package influxdb). Writes tables for people, then one JSON line. Exit code 1 when a goal is not met:
a curve of a million steps in 2,000 buckets within 50 ms on both stores, the wall's query for 1,280 nodes within 100 ms, and
the spool never further behind than 10 s while rows come in real time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.services.influx_server import INFLUXD, InfluxServer
from trainvitals.clock import ManualClock
from trainvitals.records import GpuSample, NodeSample, Point, Step
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.drawing import buckets_for_drawing
from trainvitals.store.encode import gpu_point, node_point, step_point
from trainvitals.store.influx import InfluxStore
from trainvitals.store.protocol import Store
from trainvitals.store.rollup_driver import DirtyNotes, RollupDriver
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
PERIOD_S = 10
GPUS = 8
RUN = "bench"
STEP_NS = 3_500_000_000
NODE_FIELDS = ["state", "gpus", "utilization_mean_percent", "temperature_max_c", "power_sum_w", "run", "text"]
GOALS = {"curve_ms": 50.0, "wall_ms": 100.0, "lag_s": 10.0}


def hardware(nodes: int, time_ns: int, generator: random.Random) -> Iterator[list[Point]]:
    """One sample of every node, a list a node: 8 GPUs and their summary, values of three decimals."""
    for number in range(nodes):
        name = f"node{number:04d}"
        points = []
        for index in range(GPUS):
            noise = generator.random()
            points.append(
                gpu_point(
                    GpuSample(
                        name, f"GPU-{number:04d}-{index}", index, time_ns, "ok", name="H200", utilization_percent=round(90 + 10 * noise, 1),
                        memory_used_bytes=int(120e9 + 1e9 * noise), memory_total_bytes=150_754_820_096,
                        temperature_c=round(55 + 10 * noise), power_w=round(600 + 100 * noise, 3), power_limit_w=700.0,
                        sm_clock_mhz=1980.0, throttle_reasons=0, ecc_uncorrected=0, ecc_corrected=0, xid_last=None,
                    )
                )
            )  # fmt: skip
        points.append(
            node_point(
                NodeSample(name, time_ns, "ok", gpus=GPUS, utilization_mean_percent=95.0 + generator.random(), temperature_max_c=64.0,
                           power_sum_w=round(5200 + 100 * generator.random(), 1), memory_used_max_bytes=int(121e9), run=RUN)
            )
        )  # fmt: skip
        yield points


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far (user and system), from /proc."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def size_bytes(directory: Path) -> int:
    """What the files take on disk: InfluxDB's series files are made larger than what is in them."""
    return sum(512 * file.stat().st_blocks for file in directory.rglob("*") if file.is_file())


def ingest(
    server: InfluxServer, settings: InfluxdbSettings, directory: Path, nodes: int, minutes: float, live_s: int
) -> dict[str, float]:
    """``minutes`` of hardware as fast as it goes, then ``live_s`` in real time, through one spool on disk."""
    assert server.process is not None
    pid, generator = server.process.pid, random.Random(1)
    file = SpoolFile(directory / "bench.spool", owner="bench", max_bytes=1 << 30)
    spool = Spool(file, InfluxStore(server.url, settings), lambda sentence: print(sentence, file=sys.stderr))
    count = round(minutes * 60 / PERIOD_S)
    end_ns = time.time_ns() // SECOND * SECOND - live_s * SECOND
    own, its, began = time.process_time(), cpu_s(pid), time.perf_counter()
    rows, deepest = 0, 0
    for at in range(count):
        for points in hardware(nodes, end_ns - (count - at) * PERIOD_S * SECOND, generator):
            spool.write(points)
            rows += len(points)
        deepest = max(deepest, spool.stats().waiting)
    appended_s = time.perf_counter() - began
    while spool.stats().waiting:
        time.sleep(0.2)
    fast_s = time.perf_counter() - began
    result = {
        "rows": rows, "appended_s": appended_s, "delivered_s": fast_s, "rows_per_s": rows / fast_s, "deepest": deepest,
        "own_cpu_s": time.process_time() - own, "server_cpu_s": cpu_s(pid) - its,
    }  # fmt: skip
    own, its, began = time.process_time(), cpu_s(pid), time.perf_counter()
    lags: list[float] = []
    for at in range(live_s // PERIOD_S):
        while time.perf_counter() < began + at * PERIOD_S:
            lags.append(spool.stats().oldest_age_s)
            time.sleep(0.25)
        for points in hardware(nodes, time.time_ns(), generator):
            spool.write(points)
    while time.perf_counter() < began + live_s or spool.stats().waiting:
        lags.append(spool.stats().oldest_age_s)
        time.sleep(0.25)
    wall_s = time.perf_counter() - began
    stats = spool.stats()
    result |= {
        "live_rows_per_s": nodes * (GPUS + 1) / PERIOD_S, "live_lag_s": max(lags, default=0.0),
        "live_lag_median_s": statistics.median(lags), "live_own_cpu": (time.process_time() - own) / wall_s,
        "live_server_cpu": (cpu_s(pid) - its) / wall_s, "server_rss_mb": resident_mb(pid),
        "dropped": stats.dropped, "dead_letters": stats.dead_letters, "lost": rows + live_s // PERIOD_S * nodes * (GPUS + 1),
    }  # fmt: skip
    spool.close(30.0)
    result["lost"] -= stored_rows(server, settings.database)
    return result


def stored_rows(server: InfluxServer, database: str) -> int:
    results = server.query('SELECT count("state") FROM "gpu"; SELECT count("state") FROM "node"', database)
    return sum(int(series["values"][0][1]) for result in results for series in result.get("series", []))


def settled_bytes(server: InfluxServer, database: str, limit_s: float = 90.0) -> int:
    """Size of a database once its log was folded into files and those were compacted: when it no longer changes."""
    deadline, sizes = time.monotonic() + limit_s, [-2, -1]
    while time.monotonic() < deadline and (sizes[-1] != sizes[-2] or size_bytes(server.directory / "wal" / database) > 100_000):
        time.sleep(15)
        sizes.append(size_bytes(server.directory / "data" / database) + size_bytes(server.directory / "wal" / database))
    return sizes[-1]


def curve(store: Store, steps: int, end_ns: int) -> float:
    """Write a run of that many steps that ended just now; returns seconds."""
    generator = random.Random(1)
    start_ns = end_ns - steps * STEP_NS
    began = time.perf_counter()
    for first in range(0, steps, 5_000):
        points = []
        for step in range(first, min(first + 5_000, steps)):
            noise = generator.random()
            values = {
                "loss": 1_000.0 if step == steps // 3 else 2.0 + 8.0 * math.exp(-step / 50_000) + 0.05 * noise,
                "grad_norm": 0.3 + noise * noise, "lr": 3e-4, "tokens_per_s": 1.2e6 * (1 - 0.02 * noise),
            }  # fmt: skip
            points.append(step_point(RUN, Step(step, 1, None, values), start_ns + step * STEP_NS))
        store.write(points)
    return time.perf_counter() - began


def rolled_up(store: Store, keeps: SqliteStore, end_ns: int) -> float:
    """Roll the whole run up in ``store`` (progress is kept in ``keeps``); returns seconds."""

    class Both:
        def write(self, points: list[Point]) -> None:
            store.write(points)

        def commit(self, points: list[Point], state: dict[str, bytes | None]) -> None:
            store.write(points)
            keeps.commit([], state)

        def load_state(self, prefix: str) -> dict[str, bytes]:
            return keeps.load_state(prefix)

    clock = ManualClock(end_ns)
    driver = RollupDriver(RUN, store, DirtyNotes(Both(), clock), clock, lambda: 0.0)  # type: ignore[arg-type]
    began = time.perf_counter()
    while driver.step().is_behind:
        pass
    return time.perf_counter() - began


def timed(read: Callable[[], object], repeat: int) -> dict[str, float]:
    """Median, worst and first of ``repeat`` calls in ms, and the CPU of one in this process."""
    taken, own = [], time.process_time()
    for _ in range(repeat):
        began = time.perf_counter()
        read()
        taken.append(1_000 * (time.perf_counter() - began))
    cpu_ms = 1_000 * (time.process_time() - own) / repeat
    return {
        "median_ms": statistics.median(taken),
        "best_ms": min(taken),
        "worst_ms": max(taken),
        "first_ms": taken[0],
        "cpu_ms": cpu_ms,
    }


def curves(stores: dict[str, Store], steps: int, repeat: int, directory: Path) -> dict[str, dict[str, float]]:
    end_ns = time.time_ns() // SECOND * SECOND
    results: dict[str, dict[str, float]] = {}
    for name, store in stores.items():
        written_s = curve(store, steps, end_ns)
        with_state = SqliteStore(directory / f"state-{name}.db")
        rolled_s = rolled_up(store, with_state, end_ns)
        with_state.close()
        for fields in (["loss"], ["loss", "grad_norm", "lr", "tokens_per_s"]):
            for by in ("step", "time_ns"):
                frame = buckets_for_drawing(store, fields, {"run": RUN}, 0, end_ns + 86_400 * SECOND, 2_000, by)
                assert frame["n"].sum() == steps and frame["loss_max"].max() == 1_000.0, f"{name}: the curve is not the run"

                def read(fields: list[str] = fields, by: str = by, store: Store = store) -> object:
                    return buckets_for_drawing(store, fields, {"run": RUN}, 0, end_ns + 86_400 * SECOND, 2_000, by)

                key = f"{name}, {len(fields)} metric{'s' if len(fields) > 1 else ''} by {'step' if by == 'step' else 'time'}"
                results[key] = timed(read, repeat) | {"rows": len(frame), "written_s": written_s, "rolled_up_s": rolled_s}
        results[f"{name}, 1 metric by time, without roll-ups"] = timed(
            lambda store=store: store.buckets("train", ["loss"], {"run": RUN}, 0, end_ns + 86_400 * SECOND, 2_000), 1
        ) | {"written_s": written_s, "rolled_up_s": rolled_s, "rows": 0}  # type: ignore[misc]
        print(f"{name}: {steps:,} steps written in {written_s:.0f} s, rolled up in {rolled_s:.0f} s", file=sys.stderr)
    return results


def walls(stores: dict[str, Store], nodes: int, repeat: int) -> dict[str, dict[str, float]]:
    results = {}
    for name, store in stores.items():
        now_ns = time.time_ns()
        for back in (20, 10, 0):
            for points in hardware(nodes, now_ns - back * SECOND, random.Random(back)):
                store.write([points[-1]])
        seen = store.latest("node", NODE_FIELDS, {}, 60 * SECOND, now_ns)
        assert len(seen) == nodes, f"{name}: {len(seen)} nodes"
        results[name] = timed(
            lambda store=store, now_ns=now_ns: store.latest("node", NODE_FIELDS, {}, 60 * SECOND, now_ns), repeat
        )  # type: ignore[misc]
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1_280)
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of hardware written as fast as it goes")
    parser.add_argument("--live-s", type=int, default=60, help="seconds of hardware written in real time")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--skip", default="", help="of ingest, curve, wall: what not to run")
    options = parser.parse_args()
    skip = set(options.skip.split(","))
    if INFLUXD is None:
        print("bench/store.py needs influxd (Debian's package influxdb).", file=sys.stderr)
        return 2
    # Files as they are after a day, in seconds: the log folded in, then everything compacted.
    os.environ["INFLUXDB_DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION"] = "5s"
    os.environ["INFLUXDB_DATA_COMPACT_FULL_WRITE_COLD_DURATION"] = "10s"
    found: dict[str, object] = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "nodes": options.nodes}
    met: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        server = InfluxServer(directory / "influxd", index="tsi1").start()
        try:
            names = server.make_databases()
            settings = InfluxdbSettings(database=names[0], database_long=names[1])
            stores: dict[str, Store] = {
                "SQLite": SqliteStore(directory / "bench.db"),
                "InfluxDB": InfluxStore(server.url, settings),
            }
            if "ingest" not in skip:
                taken = ingest(server, settings, directory, options.nodes, options.minutes, options.live_s)
                taken["bytes_per_row"] = settled_bytes(server, names[0]) / (
                    taken["rows"] + taken["live_rows_per_s"] * options.live_s
                )
                found["ingest"] = taken
                met["lag"] = taken["live_lag_s"] <= GOALS["lag_s"] and taken["lost"] == 0
                report_ingest(options.nodes, taken)
            if "wall" not in skip:
                found["wall"] = walls(stores, options.nodes, options.repeat)
                met["wall"] = all(each["median_ms"] <= GOALS["wall_ms"] for each in found["wall"].values())  # type: ignore[attr-defined]
                report("newest row of every node", found["wall"])  # type: ignore[arg-type]
            if "curve" not in skip:
                drawn = found["curve"] = curves(stores, options.steps, options.repeat, directory)
                one = [each for key, each in drawn.items() if "1 metric " in key and "without" not in key]
                met["curve"] = all(each["median_ms"] <= GOALS["curve_ms"] for each in one)
                found["long_bytes_per_step"] = settled_bytes(server, names[1]) / options.steps
                report(f"{options.steps:,} steps in 2,000 buckets", drawn)
            for store in stores.values():
                store.close()
        finally:
            server.stop()
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; goals {GOALS}, met: {met}")
    print(json.dumps(found | {"goals": GOALS, "met": met}))
    return 0 if all(met.values()) else 1


def report_ingest(nodes: int, taken: dict[str, float]) -> None:
    print(f"{nodes:,} nodes, {nodes * GPUS:,} GPUs, every {PERIOD_S} s: {taken['live_rows_per_s']:,.0f} rows/s needed\n")
    print(
        "| as fast as it goes, rows/s | CPU s: we / influxd | real time: CPU of a core: we / influxd | lag s: median / worst | lost | bytes a row | GB a day |"
    )
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {taken['rows_per_s']:,.0f} | {taken['own_cpu_s']:.0f} / {taken['server_cpu_s']:.0f} | {taken['live_own_cpu']:.0%} / {taken['live_server_cpu']:.0%} "
        f"| {taken['live_lag_median_s']:.1f} / {taken['live_lag_s']:.1f} | {taken['lost']:.0f} | {taken['bytes_per_row']:.1f} "
        f"| {taken['bytes_per_row'] * taken['live_rows_per_s'] * 86_400 / 1e9:.1f} |\n"
    )


def report(what: str, results: dict[str, dict[str, float]]) -> None:
    print(f"| {what} | median ms | best ms | worst ms | our CPU ms |\n|---|---|---|---|---|")
    for name, each in results.items():
        print(f"| {name} | {each['median_ms']:.0f} | {each['best_ms']:.0f} | {each['worst_ms']:.0f} | {each['cpu_ms']:.0f} |")
    print()


if __name__ == "__main__":
    sys.exit(main())
