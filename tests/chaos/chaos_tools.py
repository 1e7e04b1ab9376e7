"""What the chaos tests share: writers in processes of their own, waiting, and counting on both sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.services.influx_server import InfluxServer
from trainvitals.store.spool_file import SpoolFile

ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    pause, end = threading.Event(), time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        pause.wait(0.1)
    return bool(condition())


class Writer:
    """A writer process; ``acknowledged`` is the highest number whose append returned."""

    def __init__(self, spec: dict[str, Any], errors: Path) -> None:
        self.acknowledged = -1
        self.memory: list[int] = []
        self.is_done = threading.Event()
        with errors.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("chaos_writer.py")), json.dumps(spec)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                continue  # torn by a kill
            if line == "done\n":
                self.is_done.set()
            elif line.startswith("memory "):
                self.memory.append(int(line.split()[1]))
            else:
                self.acknowledged = int(line)

    def kill(self) -> None:
        self.process.kill()
        self._close()

    def end(self) -> None:
        """Close its stdin: it delivers what it can at once, and ends."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._close()

    def _close(self) -> None:
        self.process.wait(20)
        self._reader.join(20)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


def stored_steps(server: InfluxServer, database: str, run: str) -> list[int]:
    """Every row's step, as the server itself tells it; a step stored twice stands here twice."""
    (result,) = server.query(f'SELECT "step" FROM "train" WHERE "run" = \'{run}\'', database)
    return [int(row[1]) for series in result.get("series", []) for row in series["values"]]


def spool_counters(path: Path) -> dict[str, int]:
    file = SpoolFile(path)
    try:
        return file.counters()
    finally:
        file.close()
