"""How long a post-mortem of all logs of a large run takes: ``python bench/postmortem.py [--files 5120] [--kib 256]``.

Makes up one stderr file a rank (start-up noise, warnings, then the death: one rank out of memory, all others in NCCL timeouts with a
traceback), reads their ends as ``watch`` does, and prints the answer, the seconds and the largest resident memory.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from trainvitals.clock import SystemClock
from trainvitals.settings import LogSettings, RunSettings
from trainvitals.watch.postmortem import BUDGET_S, Death, look_into

NOISE = "[rank{rank}]:[W102 03:04:05.123456789 Utils.hpp:{n}] Warning: something that every start prints, option {n} (function operator())\n"
STEP = " [2026-01-02 03:04:05.123456] iteration {n:8d}/ 500000 | consumed samples: {n:12d} | elapsed time per iteration (ms): 900.5 | lm loss: 2.5E+00 | grad norm: 1.750 |\n"
OOM = (
    '[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/x/pretrain.py", line 3, in <module>\n[rank{rank}]:     main()\n'
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 4 has a total capacity of 79.11 GiB\n"
)
TIMEOUT = (
    "[rank{rank}]:[E102 03:34:06.123456789 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out.\n"
    "[rank{rank}]:[E102 03:34:06.133456789 ProcessGroupNCCL.cpp:621] [Rank {rank}] Some NCCL operations have failed or timed out.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    + "".join(
        f"frame #{n}: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x{n:04x} (0x7f in /x/libtorch_cuda.so)\n" for n in range(30)
    )
)


def make(directory: Path, files: int, kib: int, stacks: int) -> None:
    """One file a rank, ``node00017/rank_137.err`` at eight a host."""
    step_lines = "".join(STEP.format(n=n) for n in range(kib * 1024 // len(STEP.format(n=1))))
    for rank in range(files):
        host = directory / f"node{rank // 8:05d}"
        host.mkdir(exist_ok=True)
        start = "".join(NOISE.format(rank=rank, n=n) for n in range(40))
        death = OOM.format(rank=rank) if rank == 12 else TIMEOUT.format(rank=rank) * stacks
        (host / f"rank_{rank}.err").write_text(start + (step_lines + death)[-kib * 1024 :])


def main() -> int:
    """Print one line a number."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=5120)
    options.add_argument("--kib", type=int, default=256, help="size of each file")
    options.add_argument(
        "--stacks", type=int, default=1, help="how often each rank prints its death: 70 fill 256 KiB, the worst case"
    )
    chosen = options.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="trainvitals-postmortem-"))
    try:
        make(directory, chosen.files, chosen.kib, chosen.stacks)
        run_dir = directory / "run"
        run_dir.mkdir()
        run = RunSettings(name="bench", dir=str(run_dir), rank_logs=(f"{directory}/node*/*.err",))
        began_s = time.monotonic()
        done = look_into(run, LogSettings(), Death(1, time.time_ns(), None), SystemClock(), BUDGET_S, lambda _chosen: None)
        seconds = time.monotonic() - began_s
        kept = sum(path.stat().st_size for path in Path(done.postmortem.tails).iterdir()) if done.postmortem.tails else 0
        print(f"files                  {chosen.files:,} of {chosen.kib} KiB")
        print(f"answer                 {done.postmortem.message}")
        print(f"read, left             {done.postmortem.reading.read:,}, {done.postmortem.reading.left:,}")
        print(f"reading and judging    {done.postmortem.reading.seconds:.1f} s")
        print(f"with keeping the ends  {seconds:.1f} s, {kept / 1e6:.1f} MB kept")
        print(f"largest resident       {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
