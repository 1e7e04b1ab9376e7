"""The demo's trainer as a command for whoever starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def trainer_command(run_dir: Path, checkpoint_directory: Path, run: str, schedule: str, more: Sequence[str] = ()) -> list[str]:
    """argv of the trainer, without ``--resume-from``."""
    return [
        sys.executable, "-m", "trainvitals.demo.trainer", "--run-dir", str(run_dir), "--checkpoints", str(checkpoint_directory),
        "--run", run, "--schedule", schedule, *more,
    ]  # fmt: skip
