"""``python -m collectors NAME``: run one collector; ``--once --stdout`` prints its records as JSON lines and stores nothing."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from collectors.base import Collector, Health, PointBuffer, run
from collectors.checkpoints import CheckpointCollector
from collectors.gpu import GpuCollector
from collectors.gpu_process import GpuProcess
from collectors.trainer_log import TrainerLogCollector
from trainvitals.clock import StopSignal, SystemClock
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.records import Point
from trainvitals.settings import Settings, load
from trainvitals.store.sink import heartbeat_fields, open_sink


class JsonLines:
    """A writer that prints each point as one JSON object."""

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            try:
                print(json.dumps(asdict(point)), flush=True)  # noqa: T201
            except BrokenPipeError as error:
                raise ReaderGone from error


class ReaderGone(Exception):
    """Whoever read stdout has had enough (``| head``): the end, and no fault."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 fine, 1 a poll failed (with ``--once``), 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m collectors", description="Run one collector of Trainvitals.")
    parser.add_argument("name", choices=("gpu", "checkpoints", "trainer_log"))
    parser.add_argument("--config", help="trainvitals.toml (default: TRAINVITALS_CONFIG, ./trainvitals.toml)")
    parser.add_argument("--once", action="store_true", help="one poll, then end")
    parser.add_argument("--stdout", action="store_true", help="print records as JSON lines instead of storing them")
    # In a pod the host name is the pod's, and another one after each restart.
    name = os.environ.get("NODE_NAME") or socket.gethostname()
    parser.add_argument(
        "--node", default=name, help="name of this machine (default: NODE_NAME of the environment, its host name)"
    )
    parser.add_argument("--run", default="", help="run of the settings whose logs or checkpoints are read")
    parser.add_argument("--path", nargs="+", default=[], help="logs or checkpoint directories to read instead of the run's")
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except ReaderGone:
        # Python flushes stdout once more at its end, into the same closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TrainvitalsError as error:
        print(f"collector {arguments.name}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code


def _run(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config)
    if arguments.name != "gpu" and not arguments.stdout:
        raise InputError(
            "The watchdog stores logs and checkpoints of a run (trainvitals watch); add --stdout to look at them here."
        )
    collector, period_s = _collector(arguments, settings)
    health = Health()
    stop = StopSignal()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    clock = SystemClock()
    store = None if arguments.stdout else open_sink(settings, f"collector/{arguments.name}/{arguments.node}", clock=clock)

    def spool_numbers() -> list[Point]:
        fields = heartbeat_fields(store)
        return [Point("heartbeat", {"run": "", "node": arguments.node}, clock.time_ns(), fields)] if fields else []

    try:
        buffer = PointBuffer(JsonLines() if store is None else store, health)
        wait = (lambda _: True) if arguments.once else stop.wait
        run(collector, buffer, health, clock, period_s, wait, arguments.node, also=spool_numbers)
    finally:
        collector.close()
        if store is not None:
            store.close()
    return 1 if arguments.once and health.trouble else 0


def _collector(arguments: argparse.Namespace, settings: Settings) -> tuple[Collector, float]:
    clock = SystemClock()
    if arguments.name == "gpu":
        process = GpuProcess(clock, settings.gpu.deadline_s)
        return GpuCollector(arguments.node, process, clock, expected=settings.gpu.expected), settings.gpu.period_s
    paths = [str(Path(path).absolute()) for path in arguments.path]
    run_settings = settings.run(arguments.run) if arguments.run and not paths else None
    if run_settings is None and not paths:
        raise InputError("Name what to read: --run RUN of the settings, or --path.")
    if arguments.name == "checkpoints":
        directories = run_settings.checkpoints if run_settings else paths
        return CheckpointCollector(arguments.run, directories, clock), settings.watch.checkpoint_scan_s
    patterns = run_settings.logs if run_settings else paths
    log_format, timezone = (run_settings.log_format, run_settings.log_timezone) if run_settings else ("auto", "UTC")
    return TrainerLogCollector(arguments.run, patterns, clock, log_format, timezone), settings.watch.poll_s


if __name__ == "__main__":
    sys.exit(main())
