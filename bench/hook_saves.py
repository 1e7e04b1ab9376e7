"""What the manifest of a checkpoint costs the trainer: calls in the loop, the hashing thread's CPU, and steps meanwhile.

    python bench/hook_saves.py [--mib 1024] [--files 4] [--directory DIR]

A loop with about 0.5 ms of Python work a step runs before the save and while the thread hashes; once with xxhash, once without.
Prints a table and one JSON line. Times depend on the machine: compare within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

BLOCK = os.urandom(1 << 20)
WORK_S = 0.0005
STEPS = 1000


def work(seconds: float) -> None:
    """Python work that holds the interpreter, as a training loop's host code does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(number * 0.5 for number in range(50))


def cpu_s() -> float:
    """Of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def own_cpu_s() -> float:
    """Of this thread."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


def measure(algorithm: str, mib: int, files: int, directory: str) -> dict[str, float]:
    """One save in this process."""
    if algorithm == "sha256":
        sys.modules["xxhash"] = None  # type: ignore[assignment]
    from trainvitals.hook import Recorder

    checkpoint = Path(directory) / "checkpoint-1"
    recorder = Recorder(Path(directory) / "run", run="bench", writer="direct")

    def steps(goes_on: object, first: int) -> list[float]:
        times = []
        while len(times) < STEPS if goes_on is None else not goes_on.wait(0):  # type: ignore[attr-defined]
            begun = time.perf_counter_ns()
            work(WORK_S)
            recorder.log(first + len(times), loss=2.0, grad_norm=0.5, lr=3e-4)
            times.append((time.perf_counter_ns() - begun) / 1e3)
        return sorted(times)

    before = steps(None, 0)
    begun_s = time.perf_counter()
    save = recorder.saving(checkpoint, 1, has_optimizer=True)
    begin_us = (time.perf_counter() - begun_s) * 1e6
    checkpoint.mkdir()
    for number in range(files):
        with (checkpoint / f"shard-{number}.bin").open("wb") as file:
            for _ in range(mib // files):
                file.write(BLOCK)
    cpu_before_s, own_before_s = cpu_s(), own_cpu_s()
    begun_s = time.perf_counter()
    save.persisted()
    persisted_us = (time.perf_counter() - begun_s) * 1e6
    during = steps(save, STEPS)
    hashed_s = time.perf_counter() - begun_s
    thread_s = cpu_s() - cpu_before_s - (own_cpu_s() - own_before_s)
    recorder.close()
    assert (checkpoint / "ckpt_manifest.json").exists()
    return {
        "begin_us": begin_us, "persisted_us": persisted_us, "thread_cpu_s": thread_s, "hashed_s": hashed_s,
        "before_p50_us": before[len(before) // 2], "before_p99_us": before[len(before) * 99 // 100],
        "during_p50_us": during[len(during) // 2], "during_p99_us": during[len(during) * 99 // 100], "steps": len(during),
    }  # fmt: skip


def main() -> None:
    """Both algorithms, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--directory", default="", help="where to write; a local disk")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.mib, options.files, options.directory)))
        return
    print(f"# {options.mib} MiB in {options.files} files, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        "| hash | saving() µs | persisted() µs | thread CPU s | manifest after s | step p50 µs before | during | p99 before | during |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    results = {}
    for algorithm in ("xxh3_128", "sha256"):
        place = tempfile.mkdtemp(prefix="hook-saves-", dir=options.directory or None)
        try:
            command = [sys.executable, __file__, "--one", algorithm, "--mib", str(options.mib), "--files", str(options.files)]
            done = subprocess.run([*command, "--directory", place], capture_output=True, text=True, check=True, timeout=600)
        finally:
            shutil.rmtree(place)
        r = results[algorithm] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {algorithm} | {r['begin_us']:.0f} | {r['persisted_us']:.0f} | {r['thread_cpu_s']:.2f} | {r['hashed_s']:.2f} "
            f"| {r['before_p50_us']:.0f} | {r['during_p50_us']:.0f} | {r['before_p99_us']:.0f} | {r['during_p99_us']:.0f} |",
            flush=True,
        )
    print(json.dumps({"bench": "hook_saves", "mib": options.mib, "load": os.getloadavg()[0], "results": results}))


if __name__ == "__main__":
    main()
