"""What the supervisor remembers over its own death: ``supervisor.json`` in the run directory, replaced atomically."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from trainvitals.attempts import AttemptBook
from trainvitals.control import files
from trainvitals.errors import InputError

STATE_FILE = "supervisor.json"
SCHEMA = 1
#: Starts that are remembered; a day's restarts and the usual times of the phases come from them.
MAX_STARTS = 300
MAX_CURVE = 200
LOGS_DIR = "logs"
_LOG = re.compile(r"attempt-([0-9]{1,9})\.log", re.ASCII)


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the trainer. Times UTC ns, steps of the run, None = not (yet) known.

    resume_from, resume_step: the checkpoint that it was told, None = from scratch. pid, began: its keeper. hook_offset: bytes that
    the hook's file had before. safe_step: newest checkpoint that was safe when it ended. kind, sentence: how it ended, "" = it has
    not. loaded_ns: it told that it resumed. caught_up_ns: it passed the highest step before. recovered_ns: see ``recovery``.
    road: how it was started under Slurm, "" = not; running_ns: its job left the queue; nodes: how many it had; bad_nodes: names that
    its end was put down to, joined by commas.
    """

    number: int
    started_ns: int
    resume_from: str | None = None
    resume_step: int | None = None
    skip_samples: str = ""
    pid: int = 0
    began: int = 0
    host: str = ""
    hook_offset: int = 0
    ended_by_us: str = ""
    first_step: int | None = None
    last_step: int | None = None
    opened_ns: int | None = None
    loaded_ns: int | None = None
    first_step_ns: int | None = None
    caught_up_ns: int | None = None
    recovered_ns: int | None = None
    ended_ns: int | None = None
    code: int | None = None
    kind: str = ""
    sentence: str = ""
    safe_step: int | None = None
    nonfinite_step: int | None = None
    road: str = ""
    running_ns: int | None = None
    nodes: int = 0
    bad_nodes: str = ""

    @property
    def is_over(self) -> bool:
        return self.ended_ns is not None

    @property
    def resumed_from_step(self) -> int | None:
        """As ``incidents.suspect.Attempt`` wants it: 0 for a start from scratch."""
        return 0 if self.resume_from is None else self.resume_step


@dataclass(frozen=True, slots=True)
class Wish:
    """A way back that a person asked for; ``id``: of the request. taken_ns: when the supervisor took it, UTC; 0 = not known."""

    id: str
    by: str
    reason: str
    to: str
    skip_samples: str = ""
    taken_ns: int = 0


@dataclass(frozen=True)
class History:
    """starts: oldest first. held: why nothing is started until a person resumes, "" = nothing. hold_seq: number of the control
    request that says so, None = it could not be written yet; also that of a person's stop, with nothing in ``held``. released: number of the last start that a person had seen when one let
    it go on (a number, as clocks are set back and those of other hosts are ahead); forgiven: the same after a hold, so that what
    it was held for may be tried again. is_over: the supervisor came to its end by itself. peak_step: highest step ever. curve: newest (step, loss) before the last death; usual_rate: throughput then."""

    starts: tuple[Start, ...] = ()
    held: str = ""
    held_rule: str = ""
    hold_seq: int | None = None
    released: int = 0
    forgiven: int = 0
    peak_step: int | None = None
    curve: tuple[tuple[int, float], ...] = ()
    usual_rate: float | None = None
    wish: Wish | None = None
    is_over: bool = False

    @property
    def last(self) -> Start | None:
        return self.starts[-1] if self.starts else None

    @property
    def is_kept(self) -> bool:
        """Nothing is started until a person resumes the run: it holds, or a person stopped it."""
        last = self.last
        is_stopped = last is not None and last.kind == "stopped" and last.number > self.released
        return bool(self.held) or self.hold_seq is not None or is_stopped

    @property
    def has_steps(self) -> bool:
        return any(one.first_step is not None for one in self.starts)

    @property
    def had_checkpoint(self) -> bool:
        return any(one.safe_step is not None or one.resume_from is not None for one in self.starts)

    def with_start(self, start: Start) -> History:
        """The same with a start added, or put in the place of the one with its number."""
        kept = tuple(one for one in self.starts if one.number != start.number)
        return replace(self, starts=(*kept, start)[-MAX_STARTS:])

    def not_ahead_of(self, now_ns: int) -> History:
        """The same without an end in the future: a clock that was set back must not make a wait as long as its jump."""
        if all(one.ended_ns is None or one.ended_ns <= now_ns for one in self.starts):
            return self
        kept = (one if one.ended_ns is None else replace(one, ended_ns=min(one.ended_ns, now_ns)) for one in self.starts)
        return replace(self, starts=tuple(kept))

    def seen_by_a_person(self, *, is_hold: bool = False) -> History:
        """The same, with all ends so far known to somebody who lets the run go on."""
        last = self.last.number if self.last is not None else 0
        return replace(self, released=last, forgiven=last if is_hold else self.forgiven)


def load(run_dir: str) -> History:
    """Empty when there is no file. Raises ``InputError`` when it is none of ours: then a person looks, nothing is started twice."""
    path = Path(run_dir) / STATE_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return History()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(4 << 20)
    try:
        return from_document(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"{path} is no state of a supervisor ({error}); move it away and look what runs before starting anew."
        ) from error


def save(run_dir: str, history: History) -> None:
    """Raises ``ControlError`` or ``OSError``; the file before stays whole."""
    text = json.dumps(to_document(history), separators=(",", ":")) + "\n"
    files.replace(Path(run_dir) / STATE_FILE, text.encode(), files.STATUS_MODE)


def next_number(run_dir: str, history: History) -> int:
    """Of the next start: beyond those that anybody counted."""
    try:
        known = max((entry.attempt for entry in AttemptBook(run_dir).all()), default=0)
    except InputError:
        known = 0  # it only makes the numbers alike; the watchdog says what is wrong with its file
    # Also where the state was moved away: a log of an earlier start would be read as this one's.
    logs = Path(run_dir, LOGS_DIR).glob("attempt-*.log")
    numbers = [int(found[1]) for log in logs if (found := _LOG.fullmatch(log.name)) is not None]
    return max(known, *numbers, history.last.number if history.last is not None else 0) + 1


def to_document(history: History) -> dict[str, Any]:
    """JSON values."""
    return {"schema": SCHEMA, **asdict(history)}


def from_document(raw: Mapping[str, Any]) -> History:
    """Raises ``ValueError``, ``TypeError`` or ``KeyError``."""
    if raw["schema"] != SCHEMA:
        raise ValueError(f"schema {raw['schema']!r} instead of {SCHEMA}")
    known = {one.name for one in fields(Start)}
    starts = tuple(Start(**{name: value for name, value in one.items() if name in known}) for one in raw["starts"])
    own = {one.name for one in fields(History)} - {"starts", "curve", "wish"}
    wish, of_wish = raw.get("wish"), {one.name for one in fields(Wish)}
    return History(
        starts=starts,
        curve=tuple((int(step), float(loss)) for step, loss in raw.get("curve", ())),
        wish=Wish(**{name: value for name, value in wish.items() if name in of_wish}) if wish else None,
        **{name: raw[name] for name in own if name in raw},
    )
