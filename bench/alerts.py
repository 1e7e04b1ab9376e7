"""How long it takes from a line in a trainer's log to a message that a receiver has accepted, and from a notice to that.

    python bench/alerts.py [--runs N] [--notices N] [--directory DIR]

The first starts a real ``watch`` for each run on a log that is written as a trainer writes it; the loss becomes NaN, and the clock runs
from that line's write to the arrival of the critical message at a local webhook. The second adds notices to an outbox, in the process
of the sender and in another one, which has no way to wake it. Writes a table for people, then one JSON line. Exit code 1 when the 95th
percentile of the first is above 2 s, or a message is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainvitals.alerts.notice import Notice, NoticeKind, Verb
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Sender
from trainvitals.records import Severity
from trainvitals.settings import load

ROOT = Path(__file__).parents[1]
GOAL_S = 2.0
WAIT_S = 60.0
STEPS_BEFORE = 300


class Receiver:
    """Notes when each notice arrived, by its id, and when each run's first critical one did."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}
        self.critical_at_s: dict[str, float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["data"]
                now_s = time.monotonic()
                receiver.at_s.setdefault(data["id"], now_s)
                if data["severity"] == "critical":
                    receiver.critical_at_s.setdefault(data["run"], now_s)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"


def write_settings(directory: Path, url: str, runs: int) -> Path:
    """One target, so many runs with a log each."""
    tables = "".join(
        f'[[runs]]\nname = "run-{n}"\ndir = "{directory}/run-{n}"\nlogs = ["{directory}/run-{n}.log"]\ngpus = 8\n'
        for n in range(runs)
    )
    path = directory / "trainvitals.toml"
    path.write_text(
        f'store = "sqlite://{directory}/store.db"\n[alerts]\noutbox = "{directory}/alerts.db"\n'
        f'[alerts.targets.local]\nkind = "webhook"\nurl = "{url}"\nallow_private = true\n{tables}'
    )
    return path


def step_line(step: int, loss: str) -> str:
    return f"iter {step}: loss {loss}, time 500.00ms, mfu 30.00%\n"


def one_run(settings: Path, directory: Path, number: int, receiver: Receiver) -> float | None:
    """Seconds from the line with NaN to the message, None when none came."""
    name, log = f"run-{number}", directory / f"run-{number}.log"
    log.write_text("".join(step_line(step, f"{3.0 - step / 1000 + (step * 7 % 10) / 500:.4f}") for step in range(STEPS_BEFORE)))
    watch = subprocess.Popen(
        [sys.executable, "-m", "trainvitals", "watch", "--config", str(settings), "--run", name],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with log.open("a") as file:
            # The watchdog is at the end of the file when it has stored the steps; then the trainer goes on for some steps.
            wait_for_steps(directory / "store.db", name)
            for step in range(STEPS_BEFORE, STEPS_BEFORE + 4):
                file.write(step_line(step, "2.7000"))
                file.flush()
                time.sleep(0.5)
            began_s = time.monotonic()
            for step in range(STEPS_BEFORE + 4, STEPS_BEFORE + 20):
                file.write(step_line(step, "nan"))
                file.flush()
                time.sleep(0.25)
                if name in receiver.critical_at_s:
                    break
        while name not in receiver.critical_at_s and time.monotonic() - began_s < WAIT_S:
            time.sleep(0.05)
        arrived_s = receiver.critical_at_s.get(name)
        return arrived_s - began_s if arrived_s is not None else None
    finally:
        watch.terminate()
        watch.wait(30)


def wait_for_steps(store: Path, run: str) -> None:
    """Until the watchdog has stored the first steps."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        with contextlib.suppress(sqlite3.Error), sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            found = connection.execute(
                "SELECT max(t.step) FROM train t JOIN _series s ON s.id = t._series WHERE s.tags LIKE ?", (f'%"{run}"%',)
            ).fetchone()
            if found[0] == STEPS_BEFORE - 1:
                return
        time.sleep(0.05)
    raise SystemExit(f"The watchdog of {run} stored no steps within {WAIT_S:.0f} s.")


def notice(number: int) -> Notice:
    return Notice(
        id=f"n-{number}", kind=NoticeKind.OPENED, number=1, run="bench", incident_id=f"inc-{number}", family="loss",
        severity=Severity.CRITICAL, verb=Verb.TRAINING_SICK, rule="loss_divergence", rules=("loss_divergence",),
        what="loss 2.31 → 2.94", at_ns=time.time_ns(), opened_at_ns=time.time_ns(), step=48_210, value=2.94, expected=2.31,
    )  # fmt: skip


def of_notices(settings_path: Path, receiver: Receiver, count: int, *, is_woken: bool) -> list[float]:
    """Seconds from each addition to its arrival."""
    settings = load(settings_path, {})
    outbox = Outbox(settings.outbox_path)
    sender = Sender(settings, outbox)
    sender.start()
    taken: list[float] = []
    for number in range(count):
        told = replace(notice(number), id=f"{'woken' if is_woken else 'looked-for'}-{number}", incident_id=f"{is_woken}-{number}")
        began_s = time.monotonic()
        outbox.enqueue(told, "local")
        if is_woken:
            sender.wake()
        while told.id not in receiver.at_s and time.monotonic() - began_s < WAIT_S:
            time.sleep(0.001)
        taken.append(receiver.at_s.get(told.id, float("inf")) - began_s)
        time.sleep(0.21)  # below what a target is sent in a minute
    sender.stop()
    outbox.close()
    return taken


def summary(name: str, taken: list[float]) -> dict[str, Any]:
    ordered = sorted(taken)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    print(
        f"{name:<44} n {len(taken):>4}   median {statistics.median(taken):6.3f} s   p95 {p95:6.3f} s   worst {ordered[-1]:6.3f} s"
    )
    return {
        "n": len(taken),
        "median_s": round(statistics.median(taken), 3),
        "p95_s": round(p95, 3),
        "worst_s": round(ordered[-1], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--notices", type=int, default=100)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        directory = Path(temporary)
        receiver = Receiver()
        settings = write_settings(directory, receiver.url, options.runs)
        result = {
            "notice_woken": summary(
                "notice → accepted, same process", of_notices(settings, receiver, options.notices, is_woken=True)
            ),
            "notice_looked_for": summary(
                "notice → accepted, sender in another process", of_notices(settings, receiver, options.notices, is_woken=False)
            ),
        }
        taken = [one_run(settings, directory, number, receiver) for number in range(options.runs)]
        missing = sum(1 for each in taken if each is None)
        result["line"] = summary("line in the log → accepted", [each if each is not None else float("inf") for each in taken])
        receiver.server.shutdown()
    print(json.dumps({**result, "missing": missing, "goal_s": GOAL_S}))
    return 1 if missing or result["line"]["p95_s"] > GOAL_S else 0


if __name__ == "__main__":
    sys.exit(main())
