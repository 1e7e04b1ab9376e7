"""A process that appends training points through a spool to an InfluxDB server, and says which appends returned.

``python chaos_writer.py SPEC``: SPEC is JSON with spool, url, databases, run, count (points in all, 0 = endless), batch
(points an append), pause_s (between appends), max_bytes, token_file, deliver. A writer that starts again goes on after the
last number that its spool knows. On stdout "N": all numbers up to N were appended. Ends when stdin closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from trainvitals.records import Point
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile

BASE_NS = 1_790_000_000 * 10**9


def point(run: str, number: int) -> Point:
    """Deterministic, one millisecond apart."""
    fields = {"step": number, "loss": 2.0 + number % 97 / 1000, "grad_norm": number * 0.5, "nonfinite": 0}
    return Point("train", {"run": run, "attempt": "1"}, BASE_NS + number * 1_000_000, fields)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_spool(spec: dict) -> Spool:
    databases = spec["databases"]
    settings = InfluxdbSettings(
        database=databases[0],
        database_long=databases[1],
        token_file=spec.get("token_file", ""),
        timeout_s=spec.get("timeout_s", 30.0),
    )
    file = SpoolFile(spec["spool"], owner="chaos", max_bytes=spec.get("max_bytes", 256 * 1024 * 1024))
    return Spool(file, InfluxStore(spec["url"], settings), start=spec.get("deliver", True))


def main() -> None:
    spec = json.loads(sys.argv[1])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    spool = open_spool(spec)
    run, count, batch = spec["run"], spec.get("count", 0), spec.get("batch", 10)
    key = f"{run}/last"
    known = spool.load_state(key).get(key)
    number = int(known) + 1 if known else 0
    while not ended.is_set() and (not count or number < count):
        last = min(number + batch, count) - 1 if count else number + batch - 1
        spool.commit([point(run, each) for each in range(number, last + 1)], {key: str(last).encode()})
        number = last + 1
        print(last, flush=True)  # noqa: T201
        if spec.get("tell_memory") and number % 20_000 == 0:
            print(f"memory {resident_bytes()}", flush=True)  # noqa: T201
        if spec.get("pause_s"):
            ended.wait(spec["pause_s"])
    print("done", flush=True)  # noqa: T201
    ended.wait()
    spool.close()


if __name__ == "__main__":
    main()
