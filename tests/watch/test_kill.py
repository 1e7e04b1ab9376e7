"""kill -9 of the real watchdog and the real trainer, again and again: nothing lost, nothing twice."""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.services.influx_server import INFLUXD, InfluxServer
from trainvitals import settings as settings_module
from trainvitals.errors import StoreUnavailable
from trainvitals.settings import Settings
from trainvitals.store.open import open_store

ROOT = Path(__file__).resolve().parents[2]
FOR_EVER = (0, 2**62)
KILLS = 20

TRAINER = """
import random, sys
from trainvitals.hook import Recorder
run_dir, first, count, nan_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
noise = random.Random(first)
recorder = Recorder(run_dir, run="r")
for step in range(first, first + count):
    loss = float("nan") if step == nan_at else 2.0 + noise.gauss(0, 0.01)
    recorder.log(step, loss=loss, grad_norm=1.0 + noise.random() / 10)
    print(step, flush=True)
    if sys.stdin.readline() == "":
        break
"""


class Trainer:
    """A trainer that takes one step each time it is told to, and says when the step is recorded."""

    def __init__(self, run_dir: Path, first: int, nan_at: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(run_dir), str(first), "100000", str(nan_at)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.last = self._read()

    def _read(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def step(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.last = self._read()
        return self.last

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return


def start_watch(tmp_path: Path, errors) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "trainvitals", "watch", "--run", "r", "--config", str(tmp_path / "trainvitals.toml")],
        stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def wait_until(condition, seconds: float) -> bool:
    pause, end = threading.Event(), time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        pause.wait(0.05)
    return condition()


def is_made(settings: Settings) -> bool:
    """Whether a watchdog lived long enough to make the store: on a busy machine all of them may be killed before."""
    store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    try:
        store.raw("train", ["step"], {"run": "r"}, *FOR_EVER)
    except StoreUnavailable:
        return False
    finally:
        store.close()
    return True


@pytest.fixture(params=["sqlite", "influxdb"])
def store_settings(request, tmp_path):
    """The lines of a settings file that name a store: the embedded one, or a real server behind a spool."""
    if request.param == "sqlite":
        yield f'store = "sqlite://{tmp_path}/store.db"\n'
        return
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path / "influxd").start()
    hardware, long = server.make_databases()
    yield (
        f'store = "influxdb+{server.url}"\n[influxdb]\ndatabase = "{hardware}"\ndatabase_long = "{long}"\n'
        f'[spool]\ndir = "{tmp_path}/spool"\n'
    )
    server.stop()


def test_twenty_kills_of_the_watchdog_and_the_trainer_lose_nothing_and_repeat_nothing(tmp_path, store_settings):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'{store_settings}[watch]\npoll_s = 0.02\nheartbeat_s = 0.5\n[[runs]]\nname = "r"\ndir = "{run_dir}"\n')
    settings = settings_module.load(config, environ={})
    chance = random.Random(5)
    written: list[tuple[int, int]] = []
    attempt, nan_at = 1, 150
    with (tmp_path / "errors").open("wb") as errors:
        watch = start_watch(tmp_path, errors)
        trainer = Trainer(run_dir, 0, nan_at)
        written.append((attempt, trainer.last))
        for kill in range(KILLS):
            # Far enough apart that some kills meet the start, some a commit, some an idle moment.
            written.extend((attempt, trainer.step()) for _ in range(chance.randrange(5, 60)))
            if kill % 4 == 3:
                resume_at = max(0, trainer.last - 10)
                trainer.kill()
                attempt += 1
                trainer = Trainer(run_dir, resume_at, nan_at if kill < 4 else -1)
                written.append((attempt, trainer.last))
            else:
                threading.Event().wait(chance.random() * 2.5)
                watch.kill()
                watch.wait()
                watch = start_watch(tmp_path, errors)
        if store_settings.startswith('store = "sqlite'):
            assert wait_until(lambda: is_made(settings), 60)
        store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
        try:
            done = wait_until(lambda: len(store.raw("train", ["step"], {"run": "r"}, *FOR_EVER)) >= len(set(written)), 60)
            rows = store.raw("train", ["step"], {"run": "r"}, *FOR_EVER)
            stored = collections.Counter((int(a), int(s)) for a, s in zip(rows["attempt"], rows["step"], strict=True))
            assert done, f"{len(set(written)) - len(stored)} points are missing"
            assert set(stored) == set(written)
            assert max(stored.values()) == 1
            findings = [event for event in store.events("r", ["finding"], *FOR_EVER) if event.data["rule"] == "loss_nonfinite"]
            # One for each attempt that met the NaN, whatever was killed meanwhile.
            assert len(findings) == len({event.attempt for event in findings}) >= 1
        finally:
            trainer.kill()
            watch.terminate()
            watch.wait(20)
            store.close()
    said = (tmp_path / "errors").read_text()
    assert "Traceback" not in said
    told = [line for line in said.splitlines() if "loss_nonfinite" in line]
    assert len(told) <= len(findings)
