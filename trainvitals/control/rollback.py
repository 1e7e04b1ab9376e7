"""The way back to a checkpoint, as commands for a person: without a supervisor nothing else starts the trainer again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def rollback_commands(run_dir: str | Path, checkpoint: str | Path, by: str, reason: str) -> list[str]:
    """Commands to copy, in order: verify, stop, allow a start, start from ``checkpoint``. All names are quoted for a shell.

    A path with control characters gives one comment instead: pasted into a terminal, they act before any shell has seen a quote,
    and a line break would end the comment that it stands in.
    """
    me = "python -m trainvitals"
    signed = f"--by {shlex.quote(_one_line(by))} --reason {shlex.quote(_one_line(reason))}"
    target = Path(checkpoint).absolute()
    for path in (str(run_dir), str(target)):
        if not path.isprintable():
            return [f"# no commands to copy: a path holds control characters, {path!a}"]
    directory, path = shlex.quote(str(run_dir)), shlex.quote(str(target))
    parent, numbers = shlex.quote(str(target.parent)), re.findall(r"[0-9]{1,15}", target.name)
    step = str(int(numbers[0])) if len(numbers) == 1 else f"STEP_OF_{shlex.quote(target.name)}"
    return [
        f"{me} checkpoint verify {path} --level load",
        f"{me} control stop {directory} {signed} --wait 600",
        f"{me} control resume {directory} {signed} --wait 0",
        f"# start the trainer again from {path}, in its own way:",
        f"#   Megatron-LM:     --load {parent} --ckpt-step {step}",
        f"#   Hugging Face:    trainer.train(resume_from_checkpoint={str(target)!r})",
        f"#   torchtitan:      --checkpoint.load_step {step}",
    ]


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
