"""A place to import into: a settings file, a store and a run directory; and made-up Megatron lines."""

from __future__ import annotations

import datetime
import json
import os
import random
import time
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.__main__ import main
from trainvitals.cli.watch import build
from trainvitals.clock import ManualClock
from trainvitals.store.open import open_store
from trainvitals.store.sqlite import SqliteStore

FOR_EVER = (0, 2**62)
BEGIN = datetime.datetime(2026, 1, 2, 3, 4, 5)


def megatron(first, count, *, timed=True, loss=3.0, seed=1, at=0):
    """Lines as Megatron writes them, two seconds a step."""
    noise = random.Random(seed)
    lines = []
    for n in range(first, first + count):
        moment = BEGIN + datetime.timedelta(seconds=2 * (n - first) + at)
        stamp = f"[{moment:%Y-%m-%d %H:%M:%S}] " if timed else ""
        lines.append(
            f" {stamp}iteration {n:8d}/ 20000 | consumed samples: {n * 8} | elapsed time per iteration (ms): 2000.0 | "
            f"learning rate: 3.0E-04 | lm loss: {loss + noise.gauss(0, 0.01):.6E} | grad norm: 0.300 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
    return "".join(lines)


class Place:
    """A settings file, a store and a run directory."""

    def __init__(self, folder: Path, store: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.run_dir = folder, folder / "run"
        self.config = folder / "trainvitals.toml"
        store = store or f'store = "sqlite://{folder}/store.db"\n'
        self.config.write_text(f'{store}[[runs]]\nname = "r"\ndir = "{self.run_dir}"\nlogs = ["{folder}/*.log"]\n')
        self.settings = settings_module.load(self.config, environ={})

    def file(self, name, text, written_s=None):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        moment = BEGIN.replace(tzinfo=datetime.UTC).timestamp() + 100_000 if written_s is None else written_s
        os.utime(path, (moment, moment))
        return path

    def run(self, *files, more=()):
        return main(["import", *map(str, files), "--run", "r", "--config", str(self.config), *more])

    def open(self):
        return open_store(self.settings.store, influxdb=self.settings.influxdb)

    def rows(self, *fields):
        """(attempt, step, time and the values) of every step."""
        store = self.open()
        try:
            frame = store.raw("train", ["step", "loss", "time_estimated", *fields], {"run": "r"}, *FOR_EVER)
        finally:
            store.close()
        columns = [frame[name].tolist() for name in ("attempt", "step", "time_ns", "loss", "time_estimated", *fields)]
        return sorted(
            (attempt, int(step), int(time_ns), *map(str, more)) for attempt, step, time_ns, *more in zip(*columns, strict=True)
        )

    def events(self, *kinds):
        store = self.open()
        try:
            return sorted(
                (e.kind, e.id, e.time_ns, e.attempt, e.text) for e in store.events("r", kinds, *FOR_EVER) if e.kind != "watch"
            )
        finally:
            store.close()

    def watch(self):
        """The watchdog reads everything that is there, once."""
        self.run_dir.mkdir(exist_ok=True)
        store = SqliteStore(self.folder / "store.db")
        clock = ManualClock(time.time_ns())
        watchdog = build(self.settings, self.settings.runs[0], store, clock, scan_in_thread=False)
        watchdog.restore()
        while watchdog.turn():
            pass
        watchdog.turn()
        store.close()


def said(capsys):
    out, err = capsys.readouterr()
    return json.loads(out), err
