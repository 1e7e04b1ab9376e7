"""Node samples of a cluster that is not there, so that the wall has something to show. Every sample is marked as simulated.

One node runs warm, and one falls silent for a while and comes back; the rest is well.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from trainvitals.clock import Clock, StopSignal, SystemClock
from trainvitals.errors import StoreError
from trainvitals.records import NodeSample
from trainvitals.store import encode
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Writer

RACKS = 8
NODES_PER_RACK = 8
GPUS_PER_NODE = 8
PERIOD_S = 5.0
WARM_NODE = "sim-r02-n05"
SILENT_NODE = "sim-r05-n07"
#: Seconds since the start, repeated: first it fails, then nothing comes from it, then it is back.
SILENT_CYCLE_S = 240.0
FAILING_S = (90.0, 110.0)
SILENT_S = (110.0, 170.0)


def node_names() -> tuple[str, ...]:
    """63 names: eight racks of eight, less the one place that the real machine takes."""
    names = [f"sim-r{rack:02d}-n{node:02d}" for rack in range(1, RACKS + 1) for node in range(1, NODES_PER_RACK + 1)]
    return tuple(names[:-1])


def samples(elapsed_s: float, time_ns: int, run: str = "") -> list[NodeSample]:
    """What the simulated nodes say at a moment: a pure function of the time. A silent node says nothing."""
    phase_s = elapsed_s % SILENT_CYCLE_S
    found = []
    for number, name in enumerate(node_names()):
        if name == SILENT_NODE and SILENT_S[0] <= phase_s < SILENT_S[1]:
            continue
        wave = math.sin(elapsed_s / 30 + number)
        noise = random.Random(number * 1_000_003 + int(elapsed_s)).random()  # noqa: S311 (no secret)
        state, text, temperature_c = "ok", "simulated", 58 + 4 * wave + 2 * noise
        xid = None
        if name == WARM_NODE:
            state, text, temperature_c = "warm", "simulated: GPUs near their slow-down temperature", 84 + wave + noise
        elif name == SILENT_NODE and FAILING_S[0] <= phase_s < FAILING_S[1]:
            state, text, xid = "fail", "simulated: GPU has fallen off the bus", 79
        found.append(
            NodeSample(
                node=name, time_ns=time_ns, state=state, gpus=GPUS_PER_NODE,
                utilization_mean_percent=round(93 + 3 * noise, 1), utilization_min_percent=round(88 + 4 * noise, 1),
                temperature_max_c=round(temperature_c, 1), power_sum_w=round(GPUS_PER_NODE * (560 + 30 * wave), 0),
                memory_used_max_bytes=70_000_000_000 + int(2e9 * noise), ecc_uncorrected=0, xid_last=xid, run=run,
                is_simulated=True, text=text,
            )
        )  # fmt: skip
    return found


def publish(sink: Writer, stopping: StopSignal, clock: Clock | None = None, run: str = "", period_s: float = PERIOD_S) -> None:
    """Write samples every ``period_s`` until ``stopping`` is set; a store that is away costs that sample, said on stderr."""
    clock = clock or SystemClock()
    started_s = clock.monotonic_s()
    while True:
        elapsed_s = clock.monotonic_s() - started_s
        try:
            sink.write([encode.node_point(sample) for sample in samples(elapsed_s, clock.time_ns(), run)])
        except StoreError as error:
            sys.stderr.write(f"simulated nodes: these samples are lost: {error}\n")
        if stopping.wait(period_s):
            return


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m trainvitals.demo.simulated_nodes --store URL``"""
    parser = argparse.ArgumentParser(
        prog="python -m trainvitals.demo.simulated_nodes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--store", required=True, help="store to write to, as in the settings file: sqlite:///path/to/file.db")
    parser.add_argument("--run", default="demo", help="run that the nodes say they work for")
    args = parser.parse_args(argv)
    stopping = StopSignal()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    store = open_store(args.store)
    try:
        publish(store, stopping, run=args.run)
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
