"""The trainer's command with the checkpoint filled in: an argument list from the beginning to the end, never a shell. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainvitals.errors import InputError

PLACEHOLDERS = ("{resume_from}", "{step}", "{skip_samples}", "{exclude}", "{nodes}")
RESUME_VARIABLE = "TRAINVITALS_RESUME_FROM"
STEP_VARIABLE = "TRAINVITALS_RESUME_STEP"
SKIP_VARIABLE = "TRAINVITALS_SKIP_SAMPLES"
EXCLUDE_VARIABLE = "TRAINVITALS_EXCLUDE_NODES"
NODES_VARIABLE = "TRAINVITALS_NODES"
_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_SKIP = re.compile(r"(\d{1,18}):(\d{1,18})", re.ASCII)


def filled(
    template: Sequence[str], resume_from: str | None, step: int | None, skip_samples: str = "", exclude: str = "", nodes: int = 0
) -> list[str]:
    """The arguments of one start. A value that there is none of takes its argument away, and an option before it that stands alone:
    ``--resume {resume_from}`` is left out whole by a start from scratch, ``--resume={resume_from}`` too.

    Raises ``InputError`` for a path that no argument can carry.
    """
    if resume_from is not None and ("\0" in resume_from or not resume_from):
        raise InputError("The checkpoint's path is empty or holds a NUL character; no program can be given it.")
    values = {
        "{resume_from}": resume_from, "{step}": None if step is None else str(step), "{skip_samples}": skip_samples or None,
        "{exclude}": exclude or None, "{nodes}": str(nodes) if nodes else None,
    }  # fmt: skip
    arguments: list[str] = []
    for one in template:
        names = _PLACEHOLDER.findall(one)
        if any(values[name] is None for name in names):
            if one in PLACEHOLDERS and arguments and arguments[-1].startswith("-") and "=" not in arguments[-1]:
                arguments.pop()
            continue
        arguments.append(_PLACEHOLDER.sub(lambda found: values[found[0]] or "", one))
    return arguments


def variables(
    resume_from: str | None, step: int | None, skip_samples: str = "", exclude: str = "", nodes: int = 0
) -> Mapping[str, str]:
    """What the trainer finds in its environment, whatever its command names."""
    told = {
        RESUME_VARIABLE: resume_from, STEP_VARIABLE: None if step is None else str(step), SKIP_VARIABLE: skip_samples,
        EXCLUDE_VARIABLE: exclude, NODES_VARIABLE: str(nodes) if nodes else "",
    }  # fmt: skip
    return {name: value for name, value in told.items() if value}


def can_be_told(template: Sequence[str]) -> bool:
    """Whether the command names the checkpoint; else the trainer has the environment, or chooses by itself."""
    return any(name in one for one in template for name in PLACEHOLDERS[:2])


def checked_skip(text: str) -> str:
    """``A:B``, samples from A up to B; raises ``InputError`` for anything else."""
    found = _SKIP.fullmatch(text)
    if found is None or int(found[1]) >= int(found[2]):
        raise InputError(f"--skip-samples takes A:B with A < B, two whole numbers, not {text!r}.")
    return text
