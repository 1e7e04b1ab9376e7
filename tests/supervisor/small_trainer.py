"""A small real training for tests of the supervisor: standard library only, so that a hundred starts cost seconds.

Least squares by stochastic gradient descent. Checkpoints are ``checkpoint-N`` with safetensors, written in place like most trainers
do, so a kill may leave half of one. Its file of steps is in the hook's format. ``--faults KIND@STEP,…``: the k-th start breaks so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import time
from pathlib import Path

SIZE = 4
TEXTS = {
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
    "disk": 'Traceback (most recent call last):\n  File "train.py", line 3, in save\nOSError: [Errno 28] No space left on device',
    "nccl": "[rank3]: [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
    "config": "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --learning-rte 0.1",
    "hostile": "\x1b]0;owned\x07" + "(" * 5000 + "\ud7ff" + "A" * 200_000,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.001)
    parser.add_argument("--faults", default="")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--skip", default="")
    args = parser.parse_args()
    number = count_starts(args.run_dir)
    kind, _, at = (args.faults.split(",") + [""] * number)[number - 1].partition("@")
    if kind == "config":
        sys.stderr.write(TEXTS[kind] + "\n")
        return 2
    hook = (args.run_dir / "metrics.rank00000.jsonl").open("ab", buffering=0)

    def tell(record: dict) -> None:
        hook.write(json.dumps(record).encode() + b"\n")

    now = time.time_ns()
    tell(
        {
            "type": "header",
            "schema": 1,
            "run": "small",
            "pid": os.getpid(),
            "host": "h",
            "started_ns": now,
            "rank": 0,
            "world_size": 1,
        }
    )
    step, weights = 0, [0.0] * SIZE
    if args.resume is not None and kind != "behind":
        step, weights = load(args.resume)
        tell(
            {"type": "event", "kind": "resume", "time_ns": time.time_ns(), "step": step, "data": {"checkpoint": str(args.resume)}}
        )
    while step < args.steps:
        loss = one_step(weights, step)
        step += 1
        is_sick = kind == "nan" and step >= int(at)
        told = (
            {"values": {"tokens_per_s": 1000.0}, "nonfinite": {"loss": "nan"}}
            if is_sick
            else {"values": {"loss": loss, "tokens_per_s": 1000.0}}
        )
        tell({"type": "step", "step": step, "time_ns": time.time_ns(), **told})
        if step % args.every == 0 and not is_sick:
            save(args.checkpoints / f"checkpoint-{step}", step, weights)
        if at and step >= int(at) + (3 if is_sick else 0):
            broken(kind, args.checkpoints)
        time.sleep(args.step_s)
    tell({"type": "event", "kind": "attempt_end", "time_ns": time.time_ns(), "data": {"reason": "finished"}})
    return 0


def broken(kind: str, checkpoints: Path) -> None:
    if kind in TEXTS:
        sys.stderr.buffer.write(TEXTS[kind].encode("utf-8", "surrogatepass") + b"\n")
        sys.exit(1)
    if kind == "nan":
        raise FloatingPointError("loss is nan")
    if kind == "hang":
        time.sleep(600)
    if kind == "corrupt":
        newest = max(checkpoints.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
        weights = newest / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        os.kill(os.getpid(), 9)
    if kind == "park":
        sys.exit(75)
    if kind == "killed":
        os.kill(os.getpid(), 9)


def count_starts(run_dir: Path) -> int:
    path = run_dir / "starts"
    with path.open("ab") as file:
        file.write(b"x")
    return path.stat().st_size


def one_step(weights: list[float], step: int) -> float:
    generator = random.Random(step)
    sample = [generator.uniform(-1, 1) for _ in range(SIZE)]
    error = sum(w * x for w, x in zip(weights, sample, strict=True)) - sum((k + 1) * x for k, x in enumerate(sample))
    for k in range(SIZE):
        weights[k] -= 0.05 * error * sample[k]
    return error * error + 1.0


def save(path: Path, step: int, weights: list[float]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "F64", "shape": [SIZE], "data_offsets": [0, 8 * SIZE]}}).encode()
    header += b" " * (-len(header) % 8)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{SIZE}d", *weights))
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))


def load(path: Path) -> tuple[int, list[float]]:
    data = (path / "model.safetensors").read_bytes()
    step = json.loads((path / "trainer_state.json").read_text())["global_step"]
    return step, list(struct.unpack(f"<{SIZE}d", data[-8 * SIZE :]))


if __name__ == "__main__":
    sys.exit(main())
