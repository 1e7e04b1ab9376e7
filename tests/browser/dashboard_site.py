"""A dashboard process on a sample run, with a trainer and a watchdog that answer, for tests in a real browser."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "web"))

import checkpoint_night as checkpoint_night  # noqa: E402
import dead_run as dead_run  # noqa: E402
import sample_run as sample  # noqa: E402

from tests.services.backends import Backend  # noqa: E402
from trainvitals.errors import StoreUnavailable  # noqa: E402
from trainvitals.store.protocol import Store  # noqa: E402


@dataclass
class Site:
    """A dashboard process on a sample run, and a trainer that answers: the status file is kept fresh."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]
    store: Store
    backend: Backend
    state: str = "paused"
    seq: int = 1
    stopping: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    is_away: bool = False

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    def live(self) -> None:
        """What the watchdog and the trainer do every second."""
        step = 2390
        while not self.stopping.wait(1.0):
            now_ns = time.time_ns()
            moving = self.state == "running"
            step += moving
            if self.state != "gone":
                sample.write_status(
                    self.run_dir, sample.RUN, self.state, self.seq, now_ns - 120 * 10**9, now_ns, sample.PAUSED_AT
                )
            if self.is_away:
                continue
            points = [
                sample.beat(sample.RUN, now_ns),
                *sample.node_points(sample.RUN, now_ns),
                *([sample.step_now(sample.RUN, step, now_ns)] if moving else []),
            ]
            try:
                self.store.write(points)
            except StoreUnavailable:
                continue  # what a spool would send again; the next second's points say the same

    def close(self) -> None:
        self.stopping.set()
        if self.thread is not None:
            self.thread.join(10)
        self.process.terminate()
        self.process.wait(20)
        self.store.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_site(
    home: Path,
    backend: Backend,
    *,
    sick: bool = True,
    hostile: str = "",
    name: str = sample.RUN,
    fill: Callable[[Store, Path, int], None] | None = None,
    more: str = "",
    dashboard: str = "",
    base_path: str = "",
) -> Site:
    """more: tables of the settings; dashboard: keys of that one. base_path: below which it is served. fill: writes another run, one whose trainer is gone, in place of the bad night."""
    store = backend.open(home)
    if fill is not None:
        fill(store, home / "run", time.time_ns())
    else:
        sample.write_run(store, home / "run", time.time_ns(), sick=sick, hostile=hostile)
    settings = home / "trainvitals.toml"
    runs = f'[[runs]]\nname = {json.dumps(name)}\ndir = "run"\ncheckpoints = ["run/checkpoints"]\ngpus = 128\ntotal_steps = 12000\nbreaker = "armed"\nlog_timezone = "Asia/Shanghai"\n'
    if name != sample.RUN:
        runs = runs.replace('dir = "run"', 'dir = "other"') + runs.replace(json.dumps(name), json.dumps(sample.RUN))
    url, tables = backend.settings(home)
    more += "" if "[alerts" in more else "[alerts]\nbanner = false\n"
    settings.write_text(f'store = "{url}"\n{runs}[dashboard]\nrefresh_s = 1.0\n{dashboard}\n{tables}{more}', encoding="utf-8")
    port = free_port()
    environment = {**os.environ, "TRAINVITALS_CONFIG": str(settings), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.baseUrlPath", base_path]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, env=environment)
    state = "gone" if fill is not None else "paused" if sick else "running"
    site = Site(home, port, process, store, backend, state, 1 if sick else 0)
    site.thread = threading.Thread(target=site.live, daemon=True)
    site.thread.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                if answer.status == 200:
                    return site
        except OSError:
            site.stopping.wait(0.2)
    site.close()
    raise AssertionError((home / "log").read_text(encoding="utf-8"))
