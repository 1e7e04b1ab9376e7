"""kill -9 of the real watch process while it has something to tell: a real receiver hears of it, always under one id."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alerts"))

from receivers import Receiver

from trainvitals.hook import Recorder

ROOT = Path(__file__).resolve().parents[2]
KILLS = 8
PATIENCE_S = 60.0


def start(tmp_path: Path, errors) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trainvitals", "watch", "--run", "r", "--config", str(tmp_path / "trainvitals.toml")]
    return subprocess.Popen(command, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)})


def watches(run_dir: Path, process: subprocess.Popen[bytes]) -> bool:
    told = run_dir / "control" / "requests" / "watcher.json"
    return told.exists() and json.loads(told.read_text())["pid"] == process.pid


def test_whenever_the_watch_is_killed_the_page_arrives_and_is_one(tmp_path):
    chance = random.Random(7)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with Receiver() as receiver, Recorder(str(run_dir), run="r") as recorder, (tmp_path / "errors").open("wb") as errors:
        (tmp_path / "trainvitals.toml").write_text(
            f'store = "sqlite://{tmp_path}/store.db"\n[[runs]]\nname = "r"\ndir = "{run_dir}"\n[alerts]\noutbox = "{tmp_path}/alerts.db"\n'
            f'[alerts.targets.pager]\nkind = "webhook"\nurl = "{receiver.url}"\nallow_private = true\n[watch]\npoll_s = 0.05\n'
        )
        for step in range(200):
            recorder.log(step, loss=2.0 + chance.gauss(0, 0.01))
        for step in range(200, 220):
            recorder.log(step, loss=float("nan"))
        for _ in range(KILLS):
            process = start(tmp_path, errors)
            # Some are killed before they have read anything, some in the middle of telling it, some after.
            time.sleep(chance.uniform(0.3, 3.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
        process = start(tmp_path, errors)
        try:
            deadline = time.monotonic() + PATIENCE_S
            # One that was killed may have told it; the last one is to be there, too, before it is asked to end.
            while not (receiver.received and watches(run_dir, process)) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(2.0)  # time for a second one, which must not come
        finally:
            process.terminate()
            assert process.wait(30) == 0
    assert receiver.received, (tmp_path / "errors").read_text()
    ids = {value for one in receiver.received for name, value in one.headers.items() if name.lower() == "webhook-id"}
    assert len(ids) == 1, "told twice under two ids"
    assert len(receiver.received) <= 1 + KILLS
    assert receiver.received[0].json["data"]["severity"] == "critical"
