"""``python -m trainvitals.demo.trainer``: the demo's trainer as a process of its own.

Exit codes: 0 finished or told to stop, 1 the loss is not a number any more, 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainvitals.errors import TrainvitalsError

#: One thread: the matrices are small, and the trainer shares the machine with everything that watches it.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Train; see ``--help``."""
    # NumPy's linear algebra reads these when it is imported, which is why the training is imported below and not above.
    os.environ.update(ONE_THREAD)
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return _train(args)
    except TrainvitalsError as error:
        sys.stderr.write(f"trainer: {error}\n")
        return error.exit_code


def _train(args: argparse.Namespace) -> int:
    from trainvitals.demo import faults
    from trainvitals.demo.training import Training, TrainingOptions
    from trainvitals.hook import ControlClient, Recorder

    for directory in (args.run_dir, args.checkpoints):
        directory.mkdir(parents=True, exist_ok=True)
    options = TrainingOptions(
        run_dir=args.run_dir, checkpoints=args.checkpoints, steps=args.steps, seed=args.seed, batch=args.batch,
        hidden=args.hidden, text_bytes=args.text_bytes, step_time_s=args.step_time_s,
        checkpoint_every=args.checkpoint_every, schedule=faults.load_schedule(args.schedule),
    )  # fmt: skip
    with Recorder(str(args.run_dir), run=args.run) as recorder:
        training = Training(options)
        control = ControlClient(str(args.run_dir), run=args.run, on_checkpoint=training.save, recorder=recorder)
        try:
            # What differs between two starts stands on the dashboard: here, which checkpoint the trainer went on from.
            recorder.describe(
                {
                    "steps": args.steps, "seed": args.seed, "batch": args.batch, "hidden": args.hidden, "text_bytes": args.text_bytes,
                    "step_time_s": args.step_time_s, "checkpoint_every": args.checkpoint_every, "faults": args.schedule,
                },
                layout={"tp": 1, "pp": 1, "dp": 1},
                precision="fp32",
                resume_from=str(args.resume_from or "nothing"),
            )  # fmt: skip
            refusal = control.refuses_start
            if refusal is not None:
                sys.stderr.write(f"trainer: {refusal}\n")
                return 0
            if args.resume_from is not None:
                training.resume(args.resume_from)
                recorder.resumed(training.step, checkpoint=str(args.resume_from), lr=training.planned_lr())
                sys.stdout.write(f"Resuming from {args.resume_from} at step {training.step}\n")
            recorder.finish(training.run(recorder, control))
        finally:
            control.close()
    return 0


def _terminated(_number: int, _frame: FrameType | None) -> None:
    # Raised wherever the trainer is, also while it waits in a pause.
    raise SystemExit(128 + signal.SIGTERM)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainvitals.demo.trainer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory: the hook's file, control, demo_faults.json")
    parser.add_argument("--checkpoints", type=Path, required=True, help="directory that holds checkpoint-N")
    parser.add_argument("--run", default="demo", help="name of the run")
    parser.add_argument("--resume-from", type=Path, help="checkpoint to continue from")
    parser.add_argument("--schedule", default="none", help="faults: default, none, or a JSON file with a list of faults")
    parser.add_argument("--steps", type=int, default=9_000, help="last step; the learning rate falls until there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1_024, help="characters predicted per step")
    parser.add_argument("--hidden", type=int, default=160, help="width of the model")
    parser.add_argument("--text-bytes", type=int, default=4_000_000, help="how much of the standard library is read")
    parser.add_argument("--step-time-s", type=float, default=0.08, help="pace; 0 = as fast as it goes")
    parser.add_argument("--checkpoint-every", type=int, default=300, help="steps between two checkpoints")
    return parser


if __name__ == "__main__":
    sys.exit(main())
