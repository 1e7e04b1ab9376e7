"""The command that starts a trainer again from a checkpoint, from the template that the run's settings give. Pure.

Paths are hostile input: whatever a file is called, the command that a person copies must do nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

PLACEHOLDERS = ("{checkpoint}", "{step}")
NOT_SET = 'not set: write resume_command = "… {checkpoint} …" under [[runs]] in trainvitals.toml, and it stands here to copy'
_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS)))


@dataclass(frozen=True)
class ResumeCommand:
    """text: to copy into a shell; "" with the reason in ``problem``."""

    text: str = ""
    problem: str = ""


def resume_command(template: str, checkpoint: str, step: int | None) -> ResumeCommand:
    """``template`` with ``{checkpoint}`` and ``{step}`` filled in, quoted for a POSIX shell; anything else in it stays as it is."""
    if not template:
        return ResumeCommand(problem=NOT_SET)
    problem = template_problem(template)
    if problem:
        return ResumeCommand(problem=problem)
    if not checkpoint.isprintable():
        # Pasted into a terminal, an escape sequence acts before any shell has seen the quotes around it.
        return ResumeCommand(problem="the checkpoint's path holds control characters; type the command by hand")
    if "{step}" in template and step is None:
        return ResumeCommand(problem="the step of the checkpoint is not known, and resume_command needs it")
    values: Mapping[str, str] = {"{checkpoint}": shlex.quote(checkpoint), "{step}": str(step)}
    return ResumeCommand(_PLACEHOLDER.sub(lambda found: values[found[0]], template))


def template_problem(template: str) -> str:
    """Why a template cannot be filled in safely, as a sentence; "" when it can."""
    if not template.isprintable():
        return "resume_command holds control characters; write it on one line"
    if "{checkpoint}" not in template and "{step}" not in template:
        return "resume_command names neither {checkpoint} nor {step}, so it would not go back to one"
    for found in _PLACEHOLDER.finditer(template):
        if not _is_bare(template[: found.start()]):
            return f"resume_command has {found[0]} inside quotes or after a backslash; write it bare, it is quoted by itself"
    return ""


def _is_bare(before: str) -> bool:
    """Whether what follows ``before`` in a shell command stands outside all quotes and comments."""
    quote, is_escaped, previous = "", False, " "
    for character in before:
        if is_escaped:
            is_escaped = False
        elif quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            is_escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character == "#" and previous.isspace():
            return False
        previous = character
    return not quote and not is_escaped
