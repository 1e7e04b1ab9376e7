"""The files ``metadata/attempt-00003.json`` that ``watch`` keeps in the run directory: they know which start each setting is of,
also where a log tells no times. Where the run directory is on another machine, the events of the store are all there is."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainvitals.web.view import Configuration

SCHEMA = 1
MAX_FILE_BYTES = 8 << 20
#: In this order; sections that are not named here follow by name.
ORDER = ("config", "training", "layout", "arguments", "git", "script", "packages", "software", "environment", "job", "ranks")


@dataclass
class ConfigurationFiles:
    """Reads a file again only when it changed. ``of`` never raises: what cannot be read is left to the store."""

    #: Run directory -> attempt -> (time and size of the file when it was read, what it told).
    _held: dict[str, dict[int, tuple[tuple[int, int], Configuration | None]]] = field(default_factory=dict)

    def of(self, run_dir: str, attempts: Iterable[int]) -> dict[int, Configuration]:
        """Attempt -> what it told, as far as there is a file."""
        before = self._held.get(run_dir, {})
        now: dict[int, tuple[tuple[int, int], Configuration | None]] = {}
        self._held[run_dir] = now
        for number in attempts:
            path = Path(run_dir) / "metadata" / f"attempt-{number:05d}.json"
            try:
                about = path.lstat()
                mark = (about.st_mtime_ns, about.st_size)
                held = before.get(number)
                now[number] = held if held is not None and held[0] == mark else (mark, _read(path, number))
            except (OSError, ValueError, RecursionError):
                continue
        return {number: told for number, (_, told) in now.items() if told is not None}


def _read(path: Path, attempt: int) -> Configuration | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
            return None
        content = json.loads(file.read(MAX_FILE_BYTES))
    sections = content.get("sections") if isinstance(content, dict) and content.get("schema") == SCHEMA else None
    if not isinstance(sections, dict) or not sections:
        return None
    incomplete = content.get("incomplete")
    told = {str(name): values for name, values in sections.items() if isinstance(values, dict)}
    return made(attempt, told, tuple(map(str, incomplete)) if isinstance(incomplete, dict) else ())


def made(attempt: int, sections: Mapping[str, Mapping[Any, Any]], incomplete: Iterable[str]) -> Configuration:
    """All values as text, the sections in the order in which a person asks for them."""
    names = [*(name for name in ORDER if name in sections), *sorted(set(sections) - set(ORDER))]
    shown = {name: {str(key): as_text(value) for key, value in sections[name].items()} for name in names}
    return Configuration(attempt, shown, tuple(incomplete))


def as_text(value: Any) -> str:
    """As what changed is told: ``3e-4`` for a small number, not ``0.0003``."""
    if isinstance(value, str):
        return value
    text = repr(value)
    if isinstance(value, float) and 0 < abs(value) < 1e-3 and "e" not in text:
        text = next(short for digits in range(18) if float(short := f"{value:.{digits}e}") == value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if isinstance(value, float) and e else text
