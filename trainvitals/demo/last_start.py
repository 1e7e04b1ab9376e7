"""With which arguments the demo's trainer was started last, so that a start by hand goes on with the same settings."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainvitals.errors import InputError

NAME = "demo_start.json"


@dataclass(frozen=True)
class LastStart:
    """schedule: default, none, or the path of a JSON file. trainer_arguments: what the trainer is given besides its directories."""

    schedule: str = "default"
    trainer_arguments: tuple[str, ...] = ()


def read_last_start(run_dir: Path) -> LastStart:
    """What the run directory keeps; the defaults when there was no start yet. Raises ``InputError`` when it is damaged."""
    path = run_dir / NAME
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        return LastStart(str(raw["schedule"]), tuple(str(argument) for argument in raw["trainer_arguments"]))
    except FileNotFoundError:
        return LastStart()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); delete it, and give --schedule and the trainer's arguments."
        ) from error


def write_last_start(run_dir: Path, start: LastStart) -> None:
    """Replace the file in one step. Raises OSError."""
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / NAME
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(start), indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
