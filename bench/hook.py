"""What the hook costs the trainer, beside TensorBoard's writers in the same run when they are installed.

    python bench/hook.py [--steps 5000] [--repeats 3] [--directory DIR]

Two loops per peer, each in a process of its own: back to back, and with about 0.5 ms of Python work between calls. A
"call" is everything the loop waits for in one step of 6 values. Then the loss of records when the process is killed with
SIGKILL at a random moment. Prints a table and one JSON line. Times depend on the machine: compare within one run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

NAMES = ("loss", "grad_norm", "lr", "tokens_per_s", "step_time_s", "mfu")
Log = Callable[[int, list[float]], None]


def hook(directory: str, mode: str) -> tuple[Log, Callable[[], None]]:
    """Our recorder."""
    from trainvitals.hook import Recorder

    recorder = Recorder(directory, run="bench", writer=mode)
    log = recorder.log

    def call(step: int, v: list[float]) -> None:
        log(step, loss=v[0], grad_norm=v[1], lr=v[2], tokens_per_s=v[3], step_time_s=v[4], mfu=v[5])

    return call, recorder.close


def plain_append(directory: str) -> tuple[Log, Callable[[], None]]:
    """The floor: json.dumps and one write per step, without any care."""
    descriptor = os.open(str(Path(directory) / "metrics.rank00000.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def call(step: int, v: list[float]) -> None:
        document = {"type": "step", "step": step, "time_ns": time.time_ns(), "values": dict(zip(NAMES, v, strict=True))}
        os.write(descriptor, (json.dumps(document) + "\n").encode())

    return call, lambda: os.close(descriptor)


def summary_writer(directory: str, module: str) -> tuple[Log, Callable[[], None]]:
    """A SummaryWriter with the TensorBoard interface."""
    writer = importlib.import_module(module).SummaryWriter(directory)

    def call(step: int, v: list[float]) -> None:
        for name, value in zip(NAMES, v, strict=True):
            writer.add_scalar(name, value, step)

    return call, writer.close


def event_file_writer(directory: str) -> tuple[Log, Callable[[], None]]:
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


PEERS: dict[str, tuple[str, Callable[[str], tuple[Log, Callable[[], None]]]]] = {
    "trainvitals direct": ("", lambda d: hook(d, "direct")),
    "trainvitals queued": ("", lambda d: hook(d, "queued")),
    "json.dumps + write": ("", plain_append),
    "torch.utils.tensorboard": ("torch", lambda d: summary_writer(d, "torch.utils.tensorboard")),
    "tensorboard event writer": ("tensorboard", event_file_writer),
    "tensorboardX": ("tensorboardX", lambda d: summary_writer(d, "tensorboardX")),
}


def work(seconds: float) -> float:
    """About so much Python work, holding the interpreter as a training loop's host code does."""
    end, total = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < end:
        total += sum(number * 0.5 for number in range(50))
    return total


def measure(peer: str, directory: str, steps: int, pause_s: float) -> dict[str, float]:
    """One loop in this process: microseconds per call, CPU microseconds per step of the whole process (with its work)."""
    log, close = PEERS[peer][1](directory)
    clock, times = time.perf_counter_ns, []
    for step in range(50):
        log(step, [2.5, 0.9, 3e-4, 1e5, 0.5, 0.4])
    before = resource.getrusage(resource.RUSAGE_SELF)
    for step in range(50, 50 + steps):
        values = [2.5 - step * 1e-5, 0.9 + step * 1e-7, 3e-4, 123_456.7 + step, 0.5012, 0.41]
        begun = clock()
        log(step, values)
        times.append(clock() - begun)
        if pause_s:
            work(pause_s)
    begun = clock()
    close()
    finish_s = (clock() - begun) / 1e9
    after = resource.getrusage(resource.RUSAGE_SELF)
    times.sort()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "p50_us": times[len(times) // 2] / 1e3,
        "p99_us": times[len(times) * 99 // 100] / 1e3,
        "max_us": times[-1] / 1e3,
        "cpu_us": cpu_s / steps * 1e6,
        "finish_s": finish_s,
    }


def run_forever(peer: str, directory: str) -> None:
    """Log and say so, until killed."""
    log, _ = PEERS[peer][1](directory)
    step = 0
    while True:
        log(step, [2.5, 0.9, 3e-4, 1e5, 0.5, 0.4])
        os.write(1, b"%d\n" % step)
        step += 1
        work(0.0002)


def lost_by_kill(peer: str, root: str, rounds: int) -> dict[str, int]:
    """Records that ``log`` had returned for and that are not in the file after SIGKILL, worst and sum over the rounds."""
    lost, logged, torn = [], 0, 0
    for number in range(rounds):
        directory = str(Path(root) / f"kill{number}")
        child = subprocess.Popen([sys.executable, __file__, "--forever", peer, "--directory", directory], stdout=subprocess.PIPE)
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(random.randint(500, 2500))]  # a moment it cannot expect
        child.send_signal(signal.SIGKILL)
        seen += child.stdout.read().split()
        child.wait()
        returned = int(seen[-1]) + 1
        found = 0
        for line in (Path(directory) / "metrics.rank00000.jsonl").read_bytes().split(b"\n"):
            try:
                found += bool(line) and json.loads(line)["type"] == "step"
            except ValueError:
                torn += 1
        logged += returned
        lost.append(max(0, returned - found))
    return {"rounds": rounds, "logged": logged, "lost": sum(lost), "lost_worst": max(lost), "torn": torn}


def child(arguments: list[str]) -> dict[str, float]:
    """One measurement in a fresh process."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run everything, best of the repeats by p50 (the others had more of the machine's noise)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--directory", default="", help="where to write; a local disk, not /tmp when that is in memory")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "PAUSE_S"), help=argparse.SUPPRESS)
    parser.add_argument("--forever", metavar="PEER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.directory:
        Path(options.directory).mkdir(parents=True, exist_ok=True)
    if options.forever:
        run_forever(options.forever, options.directory)
    if options.one:
        print(json.dumps(measure(options.one[0], options.directory, options.steps, float(options.one[1]))))
        return
    root = tempfile.mkdtemp(prefix="hook-bench-", dir=options.directory or None)
    try:
        report(options.steps, options.repeats, options.kills, root)
    finally:
        shutil.rmtree(root)


def report(steps: int, repeats: int, kills: int, root: str) -> None:
    """Measure all peers that are installed, print the table and the JSON line."""
    results: dict[str, dict[str, float]] = {}
    present = [peer for peer, (module, _) in PEERS.items() if not module or importlib.util.find_spec(module)]
    for missing in sorted(set(PEERS) - set(present)):
        print(f"# {missing}: not installed, left out")
    print(f"# {steps} steps of 6 values, best of {repeats}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| writer | p50 µs | p99 µs | max µs | CPU µs/step | with 0.5 ms of work: p50 | p99 | max | close s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for peer in present:
        best: dict[str, dict[str, float]] = {}
        for pause in ("0", "0.0005"):
            count = steps if pause == "0" else min(steps, 2000)
            tries = []
            for number in range(repeats):
                place = str(Path(root) / f"{peer.replace(' ', '_')}-{pause}-{number}")
                tries.append(child(["--one", peer, pause, "--steps", str(count), "--directory", place]))
            best[pause] = min(tries, key=lambda result: result["p50_us"])
            best[pause]["cpu_us"] = statistics.median(result["cpu_us"] for result in tries)
        burst, paced = best["0"], best["0.0005"]
        results[peer] = burst | {f"paced_{name}": paced[name] for name in ("p50_us", "p99_us", "max_us")}
        print(
            f"| {peer} | {burst['p50_us']:.1f} | {burst['p99_us']:.1f} | {burst['max_us']:.0f} | {burst['cpu_us']:.1f} "
            f"| {paced['p50_us']:.1f} | {paced['p99_us']:.1f} | {paced['max_us']:.0f} | {burst['finish_s']:.2f} |",
            flush=True,
        )
    killed = {}
    for peer in ("trainvitals direct", "trainvitals queued"):
        killed[peer] = lost_by_kill(peer, str(Path(root) / peer.replace(" ", "_")), kills)
        k = killed[peer]
        print(f"{peer}: {k['rounds']} times SIGKILL, {k['lost']} of {k['logged']} records lost (worst {k['lost_worst']}), "
              f"{k['torn']} torn lines")  # fmt: skip
    print(json.dumps({"bench": "hook", "steps": steps, "load": os.getloadavg()[0], "results": results, "killed": killed}))


if __name__ == "__main__":
    main()
