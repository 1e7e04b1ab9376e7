"""The demo's faults: what happens when. Deciding is a pure function of the time and of what was done; keeping the books is apart.

Every fault changes what the trainer really computes (its data, its weights, its learning rate, its files, its pace); the curve
follows. Each happens once per run directory: ``demo_faults.json`` keeps that over restarts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainvitals.errors import InputError

BOOKS_NAME = "demo_faults.json"
KINDS: Mapping[str, str] = {
    "corrupt_data": "the batches hold random characters instead of text",
    "slow_down": "every step takes `factor` times as long",
    "truncate_checkpoint": "the next checkpoint loses the second half of its model.safetensors after it was saved",
    "poison_weights": "one weight becomes NaN; the trainer gives up after a few NaN losses and exits with code 1",
    "grow_learning_rate": "every step adds `factor` times the planned learning rate to it, up to `limit` times; until a restart",
}


@dataclass(frozen=True)
class Fault:
    """One fault. Times are seconds of running (pauses not counted) since the first start.

    ``duration_s`` inf: until the trainer's process ends. ``after``: name of a fault that must have begun ``after_s`` ago.
    """

    name: str
    kind: str
    at_s: float
    duration_s: float = math.inf
    factor: float = 1.0
    limit: float = math.inf
    after: str = ""
    after_s: float = 0.0


#: Checkpoints come every 25 s, so the one that is cut is still the newest when the NaN comes: a resume by name would pick it.
DEFAULT_SCHEDULE = (
    Fault("data", "corrupt_data", at_s=45, duration_s=1.5),
    Fault("slow-down", "slow_down", at_s=80, duration_s=40, factor=1.6),
    Fault("checkpoint", "truncate_checkpoint", at_s=130, duration_s=0),
    Fault("nan", "poison_weights", at_s=150, after="checkpoint", after_s=12),
    Fault("learning-rate", "grow_learning_rate", at_s=230, factor=2.0, limit=200.0),
)


def due(schedule: Sequence[Fault], elapsed_s: float, begun: Mapping[str, float]) -> list[Fault]:
    """Faults that begin now. ``begun``: name -> elapsed seconds when it began, in this or an earlier attempt."""
    found = []
    for fault in schedule:
        if fault.name in begun or elapsed_s < fault.at_s:
            continue
        if fault.after and (fault.after not in begun or elapsed_s < begun[fault.after] + fault.after_s):
            continue
        found.append(fault)
    return found


def active(schedule: Sequence[Fault], elapsed_s: float, begun_here: Mapping[str, float]) -> dict[str, Fault]:
    """kind -> fault of those that began in this process and still last."""
    return {
        fault.kind: fault
        for fault in schedule
        if fault.name in begun_here and elapsed_s < begun_here[fault.name] + fault.duration_s
    }


def load_schedule(text: str) -> tuple[Fault, ...]:
    """``default``, ``none``, or the path of a JSON list of faults. Raises ``InputError``."""
    if text == "default":
        return DEFAULT_SCHEDULE
    if text == "none":
        return ()
    try:
        faults = tuple(Fault(**entry) for entry in json.loads(Path(text).read_text(encoding="utf-8")))
        names = {fault.name for fault in faults}
        for fault in faults:
            if fault.kind not in KINDS:
                raise ValueError(f"unknown kind {fault.kind!r}; known: {', '.join(KINDS)}")
            if fault.after and fault.after not in names:
                raise ValueError(f"{fault.name!r} waits for {fault.after!r}, which is not in the schedule")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"The fault schedule {text} cannot be used: {error}.") from error
    return faults


@dataclass
class Books:
    """What was done so far, kept in the run directory: begun name -> {elapsed_s, step}."""

    started_at_ns: int
    paused_s: float = 0.0
    begun: dict[str, dict[str, float]] = field(default_factory=dict)

    def elapsed_s(self, now_ns: int) -> float:
        """Seconds since the first start without the pauses, so that faults do not pile up behind a pause."""
        return (now_ns - self.started_at_ns) / 1e9 - self.paused_s

    def times(self) -> dict[str, float]:
        """name -> elapsed seconds when it began."""
        return {name: entry["elapsed_s"] for name, entry in self.begun.items()}


def open_books(run_dir: Path, now_ns: int) -> Books:
    """The books of the run directory, fresh ones when there are none. Raises ``InputError`` when they are damaged."""
    path = run_dir / BOOKS_NAME
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        return Books(int(raw["started_at_ns"]), float(raw["paused_s"]), dict(raw["begun"]))
    except FileNotFoundError:
        return Books(now_ns)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it to let the demo's faults happen again.") from error


def write_books(run_dir: Path, books: Books) -> None:
    """Replace the file in one step, so that a kill leaves either the old books or the new ones."""
    path = run_dir / BOOKS_NAME
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(books), indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
