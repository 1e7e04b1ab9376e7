"""The writers that ``bench/hook.py`` compares: each logs six metrics a step, and says how many steps its files hold.

Peers that are not installed are left out and named. To have them all, in an environment of their own:

    python3 -m venv /tmp/peers
    /tmp/peers/bin/pip install torch tensorboard tensorboardX wandb trackio mlflow
    /tmp/peers/bin/python bench/hook.py --directory /var/tmp/bench
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

NAMES = ("loss", "grad_norm", "lr", "tokens_per_s", "step_time_s", "mfu")
Log = Callable[[int, list[float]], None]
Made = tuple[Log, Callable[[], None]]


def hook(directory: str, mode: str) -> Made:
    """Our recorder."""
    from trainvitals.hook import Recorder

    recorder = Recorder(directory, run="bench", writer=mode)
    log = recorder.log

    def call(step: int, v: list[float]) -> None:
        log(step, loss=v[0], grad_norm=v[1], lr=v[2], tokens_per_s=v[3], step_time_s=v[4], mfu=v[5])

    return call, recorder.close


def plain_append(directory: str) -> Made:
    """The floor: json.dumps and one write per step, without any care."""
    descriptor = os.open(str(Path(directory) / "metrics.rank00000.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def call(step: int, v: list[float]) -> None:
        document = {"type": "step", "step": step, "time_ns": time.time_ns(), "values": dict(zip(NAMES, v, strict=True))}
        os.write(descriptor, (json.dumps(document) + "\n").encode())

    return call, lambda: os.close(descriptor)


def json_lines(directory: str) -> tuple[int, int]:
    """(steps, torn lines) of our file."""
    steps = torn = 0
    for line in (Path(directory) / "metrics.rank00000.jsonl").read_bytes().split(b"\n"):
        try:
            steps += bool(line) and json.loads(line)["type"] == "step"
        except ValueError:
            torn += 1
    return steps, torn


def summary_writer(directory: str, module: str) -> Made:
    """A SummaryWriter with the TensorBoard interface."""
    writer = importlib.import_module(module).SummaryWriter(directory)

    def call(step: int, v: list[float]) -> None:
        for name, value in zip(NAMES, v, strict=True):
            writer.add_scalar(name, value, step)

    return call, writer.close


def event_file_writer(directory: str) -> Made:
    """TensorBoard's own event writer, as torch.utils.tensorboard uses it (one event a scalar, queue of 10)."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(directory, 10, 120)

    def call(step: int, v: list[float]) -> None:
        for name, value in zip(NAMES, v, strict=True):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    return call, writer.close


def event_file_steps(directory: str) -> tuple[int, int]:
    """Steps of which the last of the six scalars is in the event file."""
    wanted, steps, torn = NAMES[-1].encode(), 0, 0
    for path in Path(directory).glob("events.*"):
        content, at = path.read_bytes(), 0
        while at < len(content):
            if at + 12 > len(content):
                torn += 1
                break
            (length,) = struct.unpack_from("<Q", content, at)
            body = content[at + 12 : at + 12 + length]
            at += 16 + length
            torn += at > len(content)
            steps += at <= len(content) and wanted in body
    return steps, torn


def wandb_offline(directory: str) -> Made:
    """Weights & Biases without a server: a program beside the trainer writes the file."""
    os.environ |= {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "HOME": directory}
    import wandb

    run = wandb.init(mode="offline", dir=directory, project="bench")

    def call(step: int, v: list[float]) -> None:
        run.log(dict(zip(NAMES, v, strict=True)), step=step)

    return call, run.finish


def wandb_steps(directory: str) -> tuple[int, int]:
    """History records of the run's file (the record format of LevelDB's log)."""
    from wandb.proto.wandb_internal_pb2 import Record

    steps = 0
    for path in Path(directory).glob("wandb/offline-run-*/*.wandb"):
        for body in _leveldb_records(path.read_bytes()):
            record = Record()
            record.ParseFromString(body)
            steps += record.WhichOneof("record_type") == "history"
    return steps, 0


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    at, body = 7, b""
    while at + 7 <= len(content):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        at += 7
        if kind == 0 or at + length > len(content):
            return
        body = (b"" if kind in (1, 2) else body) + content[at : at + length]
        at += length
        if kind in (1, 4):
            yield body


def trackio(directory: str) -> Made:
    """Trackio without a server: a thread writes a SQLite file."""
    os.environ |= {"TRACKIO_DIR": directory, "HOME": directory}
    library = importlib.import_module("trackio")
    library.init(project="bench", name="run", embed=False)

    def call(step: int, v: list[float]) -> None:
        library.log(dict(zip(NAMES, v, strict=True)), step=step)

    return call, library.finish


def trackio_steps(directory: str) -> tuple[int, int]:
    """Rows of the file."""
    with sqlite3.connect(Path(directory) / "bench.db") as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM metrics").fetchone()[0]), 0
        except sqlite3.OperationalError:  # it was killed before it wrote anything
            return 0, 0


def mlflow_files(directory: str) -> Made:
    """MLflow's file store: a line per metric, written in the call."""
    os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "HOME": directory}
    mlflow = importlib.import_module("mlflow")
    mlflow.set_tracking_uri((Path(directory) / "store").absolute().as_uri())
    mlflow.start_run()

    def call(step: int, v: list[float]) -> None:
        mlflow.log_metrics(dict(zip(NAMES, v, strict=True)), step=step)

    return call, mlflow.end_run


def mlflow_steps(directory: str) -> tuple[int, int]:
    """Whole lines of the metric that was written last."""
    contents = [path.read_bytes() for path in (Path(directory) / "store").glob(f"*/*/metrics/{NAMES[-1]}")]
    return sum(content.count(b"\n") for content in contents), sum(not content.endswith(b"\n") for content in contents)


@dataclass(frozen=True)
class Peer:
    """``make`` begins to write in a directory; ``count`` gives (whole steps, torn records) of what is there.

    modules: what must be installed; the first one's version is told.
    """

    make: Callable[[str], Made]
    count: Callable[[str], tuple[int, int]]
    modules: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(name) for name in self.modules)

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.modules[0]) if self.modules else ""


PEERS: dict[str, Peer] = {
    "trainvitals direct": Peer(lambda d: hook(d, "direct"), json_lines),
    "trainvitals queued": Peer(lambda d: hook(d, "queued"), json_lines),
    "json.dumps + write": Peer(plain_append, json_lines),
    "torch.utils.tensorboard": Peer(
        lambda d: summary_writer(d, "torch.utils.tensorboard"), event_file_steps, ("torch", "tensorboard")
    ),
    "tensorboard event writer": Peer(event_file_writer, event_file_steps, ("tensorboard",)),
    "tensorboardX": Peer(lambda d: summary_writer(d, "tensorboardX"), event_file_steps, ("tensorboardX",)),
    "wandb offline": Peer(wandb_offline, wandb_steps, ("wandb",)),
    "trackio": Peer(trackio, trackio_steps, ("trackio",)),
    "mlflow file store": Peer(mlflow_files, mlflow_steps, ("mlflow",)),
}
