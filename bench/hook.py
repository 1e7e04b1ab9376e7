"""What the hook costs the trainer, beside the peers of ``bench/hook_peers.py`` in the same run (how to install them stands there).

    python bench/hook.py [--steps 5000] [--repeats 3] [--directory DIR]

Two loops per peer, each in a process of its own: back to back, and with about 0.5 ms of Python work between calls. A
"call" is everything the loop waits for in one step of 6 values. CPU is that of the process and of the helpers it started.
Then the loss of steps when the process is killed with SIGKILL at a random moment. Prints a table and one JSON line. Times depend on the machine: compare within one run.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.hook_peers import PEERS

#: After a kill: what a peer's own helper process still writes counts as written, when it is there within this time.
SETTLE_S = 3.0


def work(seconds: float) -> float:
    """About so much Python work, holding the interpreter as a training loop's host code does."""
    end, total = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < end:
        total += sum(number * 0.5 for number in range(50))
    return total


def measure(peer: str, directory: str, steps: int, pause_s: float) -> dict[str, float]:
    """One loop in this process: microseconds per call, CPU microseconds per step of the whole process (with its work)."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    log, close = PEERS[peer].make(directory)
    clock, times = time.perf_counter_ns, []
    for step in range(50):
        log(step, [2.5, 0.9, 3e-4, 1e5, 0.5, 0.4])
    before_s = helpers_cpu_s() + own_cpu_s()
    for step in range(50, 50 + steps):
        values = [2.5 - step * 1e-5, 0.9 + step * 1e-7, 3e-4, 123_456.7 + step, 0.5012, 0.41]
        begun = clock()
        log(step, values)
        times.append(clock() - begun)
        if pause_s:
            work(pause_s)
    used_s = own_cpu_s() - before_s
    if helpers():
        time.sleep(0.5)  # what they have not done yet belongs to these steps
    used_s += helpers_cpu_s() - own_cpu_s()
    begun = clock()
    close()
    finish_s = (clock() - begun) / 1e9
    used_s += own_cpu_s()
    times.sort()
    return {
        "p50_us": times[len(times) // 2] / 1e3,
        "p99_us": times[len(times) * 99 // 100] / 1e3,
        "max_us": times[-1] / 1e3,
        "cpu_us": used_s / steps * 1e6,
        "finish_s": finish_s,
    }


def helpers() -> list[int]:
    """Process ids of the programs that this process started, and of theirs."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process and child not in found]
    return found[1:]


def own_cpu_s() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def helpers_cpu_s() -> float:
    """CPU seconds of the helpers that run."""
    total = 0.0
    for process in helpers():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def run_forever(peer: str, directory: str) -> None:
    """Log and say so, until killed."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    out = os.dup(1)
    os.dup2(2, 1)  # what a peer prints is no step
    log, _ = PEERS[peer].make(directory)
    step = 0
    while True:
        log(step, [2.5, 0.9, 3e-4, 1e5, 0.5, 0.4])
        os.write(out, b"%d\n" % step)
        step += 1
        work(0.0002)


def lost_by_kill(peer: str, root: str, rounds: int) -> dict[str, int]:
    """Steps that ``log`` had returned for and that are not in the file after SIGKILL, worst and sum over the rounds."""
    lost, logged, torn = [], 0, 0
    for number in range(rounds):
        directory = str(Path(root) / f"kill{number}")
        child = subprocess.Popen(
            [sys.executable, __file__, "--forever", peer, "--directory", directory],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(random.randint(500, 2500))]  # a moment it cannot expect
        child.send_signal(signal.SIGKILL)
        os.set_blocking(child.stdout.fileno(), False)  # a helper may hold the pipe open
        child.wait()
        seen += (child.stdout.read() or b"").split()
        child.stdout.close()
        returned = int(seen[-1]) + 1
        found, broken = PEERS[peer].count(directory)
        deadline_s = time.monotonic() + (SETTLE_S if PEERS[peer].modules else 0)
        while found < returned and time.monotonic() < deadline_s:
            time.sleep(0.2)
            found, broken = PEERS[peer].count(directory)
        torn += broken
        logged += returned
        lost.append(max(0, returned - found))
    return {"rounds": rounds, "logged": logged, "lost": sum(lost), "lost_worst": max(lost), "torn": torn}


def hung(root: str) -> dict[str, float] | str:
    """``log`` of the queued writer while the file server stands still: a stopped FUSE process, beyond the queue's bound."""
    folder = Path(root) / "hung"
    program, behind, mount = folder / "stopping_fs", folder / "behind", folder / "mount"
    for made in (behind, mount):
        made.mkdir(parents=True)
    source = Path(__file__).resolve().parent.parent / "tests" / "hook" / "stopping_fs.c"
    command = ["cc", "-O1", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", str(source), "-o", str(program)]
    try:
        subprocess.run([*command, "-lfuse3", "-lpthread"], check=True, capture_output=True)
        server = subprocess.Popen([program, behind, mount, "-f"], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return "needs a C compiler and the packages fuse3 and libfuse3-dev"
    try:
        time.sleep(1.0)
        if server.poll() is not None or not mount.is_mount():
            return "this machine mounts no FUSE file system"
        return child(["--stopped", str(server.pid), "--steps", "50000", "--directory", str(mount / "run")])
    finally:
        server.send_signal(signal.SIGCONT)
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=False, capture_output=True)
        server.kill()
        server.wait()


def measure_stopped(server: int, directory: str, steps: int) -> dict[str, float]:
    """One loop with about 0.1 ms of work while the process ``server`` is stopped; then it goes on and all is counted."""
    from trainvitals.hook import Recorder

    recorder = Recorder(directory, run="bench")
    recorder.log(0, loss=1.0)
    recorder.flush()
    os.kill(server, signal.SIGSTOP)
    clock, times = time.perf_counter_ns, []
    for step in range(1, steps + 1):
        begun = clock()
        recorder.log(step, loss=2.5, grad_norm=0.9, lr=3e-4, tokens_per_s=1e5, step_time_s=0.5, mfu=0.4)
        times.append(clock() - begun)
        work(0.0001)
    os.kill(server, signal.SIGCONT)
    recorder.flush(60)
    recorder.close()
    times.sort()
    return {
        "p50_us": times[steps // 2] / 1e3,
        "p99_us": times[steps * 99 // 100] / 1e3,
        "max_us": times[-1] / 1e3,
        "steps": steps,
        "lost": recorder.lost,
    }


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
    parser.add_argument("--stopped", type=int, metavar="PID", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stopped:
        print(json.dumps(measure_stopped(options.stopped, options.directory, options.steps)))
        return
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
    present = [name for name, peer in PEERS.items() if peer.is_installed]
    for missing in sorted(set(PEERS) - set(present)):
        print(f"# {missing}: not installed, left out")
    versions = {PEERS[name].modules[0]: PEERS[name].version for name in present if PEERS[name].modules}
    print("# " + ", ".join([f"Python {sys.version.split()[0]}", *(f"{name} {version}" for name, version in versions.items())]))
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
    stood = hung(root)
    if isinstance(stood, str):
        print(f"trainvitals queued, file server stopped: not measured, {stood}")
    else:
        print(f"trainvitals queued, file server stopped: p50 {stood['p50_us']:.1f} µs, p99 {stood['p99_us']:.1f} µs, "
              f"max {stood['max_us']:.0f} µs; {stood['lost']} of {stood['steps']} records dropped and counted", flush=True)  # fmt: skip
    killed = {}
    for peer in present:
        killed[peer] = lost_by_kill(peer, str(Path(root) / peer.replace(" ", "_")), kills)
        k = killed[peer]
        print(f"{peer}: {k['rounds']} times SIGKILL, {k['lost']} of {k['logged']} steps lost (worst {k['lost_worst']}), "
              f"{k['torn']} torn records", flush=True)  # fmt: skip
    print(
        json.dumps(
            {
                "bench": "hook",
                "steps": steps,
                "versions": versions,
                "load": os.getloadavg()[0],
                "results": results,
                "killed": killed,
            }
        )
    )


if __name__ == "__main__":
    main()
