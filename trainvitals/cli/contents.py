"""What a file without a training step holds instead: the columns of a table, the tags of event files, the keys of JSON lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from trainvitals.cli.parse import text_chunks
from trainvitals.errors import InputError
from trainvitals.logs.grammars.tensorboard_records import lines_of_directory

MAX_NAMES = 20
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_][\w ./%()\[\]-]{0,60}", re.ASCII)


def names_instead(file: str) -> str:
    """A sentence for people, or "" where the file is no table or was standard input. Never raises."""
    if file == "-":
        return ""
    try:
        with ExitStack() as stack:
            path = Path(file)
            chunks: Iterable[bytes] = (
                lines_of_directory(path) if path.is_dir() else text_chunks(stack.enter_context(path.open("rb")), stack, file)
            )
            lines = _first_lines(chunks)
    except (OSError, EOFError, InputError):  # told already by whoever read it in earnest
        return ""
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    if first.startswith('{"tfevents":1'):
        tags = dict.fromkeys(str(row["tag"]) for line in lines if "tag" in (row := _object(line)))
        return f"Its tags are {_listed(tags)}; none is known for a loss. Write one as train/loss." if tags else ""
    if first.startswith("{"):
        keys = _object(first)
        return f"Its keys are {_listed(keys)}; a step's line needs step and a metric such as loss." if keys else ""
    columns = _columns(first)
    if not columns:
        return ""
    return f"Its columns are {_listed(columns)}: none of them is known for the step. Rename them: step for the step's, loss for the loss's."


def _first_lines(chunks: Iterable[bytes]) -> list[str]:
    held = b""
    for chunk in chunks:
        held += chunk
        if len(held) >= _MAX_BYTES:
            break
    return held[:_MAX_BYTES].decode("utf-8-sig", "replace").splitlines()


def _object(line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # a line that is cut, or no JSON: it has no names
        return {}
    return row if isinstance(row, dict) else {}


def _columns(line: str) -> list[str]:
    for separator in (",", ";", "\t"):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line[:8192]], delimiter=separator), [])]
        except csv.Error:  # no table
            continue
        if len(cells) > 1 and all(_NAME.fullmatch(cell) for cell in cells):
            return cells
    return []


def _listed(names: Iterable[str]) -> str:
    # What a file says goes to a terminal.
    printable = ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:80]) for name in names]
    return ", ".join(printable[:MAX_NAMES]) + (f" and {len(printable) - MAX_NAMES:,} more" if len(printable) > MAX_NAMES else "")
