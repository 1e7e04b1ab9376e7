"""kill -9 of any part of a running demo, twenty times: the others go on, the killed part comes back, nothing is lost or told twice."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainvitals import control
from trainvitals.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
FOR_EVER = (0, 2**62)
DEADLINE_S = 60.0
#: How a part is known by its command line.
PARTS = {
    "trainer": "-m trainvitals.demo.trainer",
    "watch": "-m trainvitals watch",
    "dashboard": "-m streamlit run",
    "gpu collector": "-m collectors gpu --config",
    "simulated nodes": "-m trainvitals.demo.simulated_nodes",
}
KILLS = {"trainer": 4, "watch": 4, "dashboard": 4, "gpu collector": 4, "simulated nodes": 4}
#: So that there is something that could be found twice.
SCHEDULE = [
    {"name": "checkpoint", "kind": "truncate_checkpoint", "at_s": 5, "duration_s": 0},
    {"name": "data", "kind": "corrupt_data", "at_s": 14, "duration_s": 1.5},
]

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the demo's processes in /proc"),
    pytest.mark.timeout(280),
]


def processes_of(home: Path) -> dict[int, str]:
    """Processes whose command line or environment names the demo's home: pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if command and str(home).encode() in command + environment:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def pids_of(home: Path) -> dict[str, int]:
    """Part -> pid of those that run now."""
    found: dict[str, dict[int, int]] = {}
    for pid, command in processes_of(home).items():
        if "keeper.py" in command or "-m trainvitals run" in command:
            continue  # both have the trainer's command in their own
        for part in (part for part, words in PARTS.items() if words in command):
            try:
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            found.setdefault(part, {})[pid] = parent
    # A child that was just forked still shows its parent's command line.
    return {part: pid for part, parents in found.items() for pid, parent in parents.items() if parent not in parents}


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
    pause, end = threading.Event(), time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            pytest.fail(f"Waited {seconds:g} s in vain for: {what}")
        pause.wait(0.1)


def healthz(port: int) -> int:
    """The HTTP status of /healthz, 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def steps_written(run_dir: Path) -> collections.Counter[tuple[int, int]]:
    """(start, step) of every whole line in the hook's file; starts are counted from 1 where they took a step."""
    found: collections.Counter[tuple[int, int]] = collections.Counter()
    start, has_step = 0, True
    path = run_dir / "metrics.rank00000.jsonl"
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
        if not line.endswith(b"\n"):
            continue
        record = json.loads(line)
        if record["type"] == "header":
            start, has_step = start + has_step, False
        elif record["type"] == "step":
            has_step = True
            found[(start, record["step"])] += 1
    return found


def steps_stored(store: SqliteStore) -> collections.Counter[tuple[int, int]]:
    """The same from the store; attempts are counted by those that took a step."""
    rows = store.raw("train", ["step"], {"run": "demo"}, *FOR_EVER)
    attempts = [int(attempt) for attempt in rows["attempt"]]
    number = {attempt: place for place, attempt in enumerate(sorted(set(attempts)), 1)}
    return collections.Counter((number[a], int(s)) for a, s in zip(attempts, rows["step"], strict=True))


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[Path, int, subprocess.Popen[bytes]]]:
    """(home, port, process) of a demo in which two things go wrong while parts are killed."""
    (tmp_path / "schedule.json").write_text(json.dumps(SCHEDULE))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    home = tmp_path / "home"
    command = [
        sys.executable, "-m", "trainvitals", "demo", "--no-browser", "--port", str(port), "--home", str(home),
        "--schedule", str(tmp_path / "schedule.json"), "--checkpoint-every", "50",
    ]  # fmt: skip
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield home, port, process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in processes_of(home):
            os.kill(pid, signal.SIGKILL)
        sys.stdout.write((tmp_path / "said").read_text())


def test_twenty_kills_of_any_part_stop_nothing_else_and_lose_nothing(
    demo: tuple[Path, int, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    home, port, process = demo
    wait_until(lambda: len(pids_of(home)) == len(PARTS) and healthz(port) == 200, "all parts")
    chance = random.Random(7)
    plan = [part for part, kills in KILLS.items() for _ in range(kills)]
    chance.shuffle(plan)
    for number, part in enumerate(plan):
        # Some kills meet a part as it starts, some at work.
        threading.Event().wait(chance.random() * 1.5)
        before = pids_of(home)
        assert set(before) == set(PARTS), f"before kill {number}"
        written = sum(steps_written(home / "run").values())
        os.kill(before[part], signal.SIGKILL)
        wait_until(lambda old=before[part], of=part: pids_of(home).get(of, old) != old, f"a new {part}")
        after = pids_of(home)
        assert {name: pid for name, pid in after.items() if name != part} == {
            name: pid for name, pid in before.items() if name != part
        }, f"kill {number} of the {part} took another part with it"
        if part != "trainer":
            wait_until(lambda least=written: sum(steps_written(home / "run").values()) > least, "more steps")
    assert process.poll() is None
    wait_until(lambda: healthz(port) == 200, "a dashboard that is well again")
    control.submit(home / "run", "demo", action="stop", by="a person", source="cli", reason="the test ends")
    wait_until(lambda: "trainer" not in pids_of(home), "the trainer's end")
    written_steps = steps_written(home / "run")
    assert len({start for start, _ in written_steps}) >= 2
    with_store(home, written_steps)
    assert healthz(port) == 200
    process.terminate()
    assert process.wait(40) == 0
    wait_until(lambda: processes_of(home) == {}, "the end of every process", 15)
    for log in (home / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(errors="replace"), log.name


def with_store(home: Path, written: collections.Counter[tuple[int, int]]) -> None:
    """Everything that was written is stored, once, and nothing was found twice."""
    store = SqliteStore(home / "trainvitals.db", read_only=True)
    try:
        wait_until(lambda: len(steps_stored(store)) >= len(written), "every step in the store")
        stored = steps_stored(store)
        assert stored == written
        assert max(stored.values()) == 1
        findings = store.events("demo", ["finding"], *FOR_EVER)
        keys = [(e.data["rule"], e.attempt, e.data["first_step"], e.data["data"].get("path")) for e in findings]
        sys.stdout.write("".join(f"found: {event.id}\n" for event in findings))
        assert {"checkpoint_corrupt"} <= {event.data["rule"] for event in findings}
        assert len({event.id for event in findings}) == len(set(keys)) == len(findings)
    finally:
        store.close()


def test_a_trainer_whose_supervisor_is_killed_goes_on_and_ends_with_the_demo(
    demo: tuple[Path, int, subprocess.Popen[bytes]],
) -> None:
    home, _, process = demo
    wait_until(lambda: sum(steps_written(home / "run").values()) > 3, "the first steps")
    (loop,) = (
        pid for pid, command in processes_of(home).items() if "-m trainvitals run" in command and "keeper.py" not in command
    )
    trainer = pids_of(home)["trainer"]
    os.kill(loop, signal.SIGKILL)
    wait_until(lambda: loop not in processes_of(home), "the loop's end")
    written = sum(steps_written(home / "run").values())
    wait_until(lambda: sum(steps_written(home / "run").values()) > written + 5, "more steps")
    assert pids_of(home)["trainer"] == trainer
    process.send_signal(signal.SIGINT)
    assert process.wait(40) == 0
    wait_until(lambda: processes_of(home) == {}, "the end of every process", 15)
