"""What Slurm's commands print, read into records. Pure; text, not JSON, whose form changes between versions and costs ten times as much.

Untrusted: a node's reason and a job's comment are free text of any user. Nothing here raises except ``expand``, which says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from trainvitals.errors import InputError

#: Nodes of one list; the largest machines have a tenth of it.
MAX_NODES = 100_000
MAX_LIST_CHARACTERS = 1 << 20
MAX_REASON = 300
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
JOB_ID = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_STEP = re.compile(r"[1-9][0-9]{0,17}\.[0-9]{1,10}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
#: A key begins at the line's beginning or behind a blank; values hold blanks and ``=`` themselves.
_KEY = re.compile(r"(?:^|(?<= ))([A-Z][A-Za-z0-9_/:]{0,40})=", re.ASCII)
_PARSABLE = re.compile(r"([1-9][0-9]{0,17})(?:;[^\s;]{1,200})?", re.ASCII)
#: Marks behind a node's state: not responding, power saving, powering, maintenance, reboot, planned.
_MARKS = "*~#!%$@^-"
#: States of a node that new work must not be put on. Not ``unknown``: a controller that was just started calls each node so.
BAD_STATES = frozenset({"down", "drained", "draining", "drain", "fail", "failing", "error", "future", "inval"})
#: A job in one of these is over; ``COMPLETING`` and ``STAGE_OUT`` are not among them: its processes may still run.
OVER = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED"}
)
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING"})


@dataclass(frozen=True, slots=True)
class Node:
    """state: lower case, without marks. is_responding: False where Slurm marks it with ``*``, as it also does for seconds after a
    start. reason: free text of whoever set the state."""

    name: str
    state: str
    is_responding: bool = True
    reason: str = ""

    @property
    def is_bad(self) -> bool:
        """By its state alone; silence counts from the second look on (``slurm_nodes.bad_nodes``)."""
        return self.state in BAD_STATES


@dataclass(frozen=True, slots=True)
class Job:
    """Of ``scontrol show job``. Times UTC ns, None = not known or unlimited. exit_code, exit_signal: of the batch script."""

    id: str
    state: str
    reason: str = ""
    node_list: str = ""
    node_count: int = 0
    excluded: str = ""
    partition: str = ""
    restarts: int = 0
    started_ns: int | None = None
    ends_at_ns: int | None = None
    exit_code: int = 0
    exit_signal: int = 0
    output: str = ""
    errors: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return nodes_of(self.node_list)

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


def expand(text: str) -> tuple[str, ...]:
    """``gpu[001,003-004],login1`` -> the names, as ``scontrol show hostnames`` gives them; "" and ``(null)`` -> none.

    Raises ``InputError`` for what is no such list, or one of more than ``MAX_NODES`` nodes.
    """
    if text in ("", "(null)", "None assigned"):
        return ()
    if len(text) > MAX_LIST_CHARACTERS:
        raise InputError(f"A list of nodes of {len(text):,} characters is none of Slurm's.")
    found: list[str] = []
    for part in _parts(text):
        found += _names(part, MAX_NODES - len(found))
    return tuple(found)


def _parts(text: str) -> list[str]:
    """Split at commas that stand outside of brackets."""
    parts: list[str] = []
    begin, is_inside = 0, False
    for at, character in enumerate(text):
        if character == "[" and not is_inside:
            is_inside = True
        elif character == "]" and is_inside:
            is_inside = False
        elif character in "[]":
            raise _no_list(text)
        elif character == "," and not is_inside:
            parts.append(text[begin:at])
            begin = at + 1
    if is_inside:
        raise _no_list(text)
    return [*parts, text[begin:]]


def _names(part: str, room: int) -> list[str]:
    names = [""]
    rest = part
    while rest:
        fixed, bracket, after = rest.partition("[")
        inside, _, rest = after.partition("]") if bracket else ("", "", "")
        numbers = _numbers(inside, room, part) if bracket else [""]
        if len(names) * len(numbers) > room:
            raise InputError(f"{part[:80]!r} names more than {MAX_NODES:,} nodes.")
        names = [f"{name}{fixed}{number}" for name in names for number in numbers]
    if any(NODE_NAME.fullmatch(name) is None for name in names):
        raise _no_list(part)
    return names


def _numbers(inside: str, room: int, part: str) -> list[str]:
    numbers: list[str] = []
    for one in inside.split(","):
        found = _RANGE.fullmatch(one)
        if found is None:
            raise _no_list(part)
        first, last = int(found[1]), int(found[2] if found[2] is not None else found[1])
        if last < first or last - first >= room - len(numbers):
            raise InputError(f"{part[:80]!r} names no nodes, or more than {MAX_NODES:,}.")
        numbers += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return numbers


def _no_list(text: str) -> InputError:
    return InputError(f"{text[:80]!r} is no list of nodes as Slurm writes it.")


def joined(names: Iterable[str]) -> str:
    """A list that every command of Slurm takes: sorted, each once."""
    return ",".join(sorted(set(names)))


def is_node(name: object) -> bool:
    """Whether a command may be given this as a node's name."""
    return isinstance(name, str) and NODE_NAME.fullmatch(name) is not None


def nodes(text: str) -> Mapping[str, Node]:
    """``sinfo -N -h -o '%N|%T|%E'``: name -> node, each once although a node of two partitions is listed twice."""
    found: dict[str, Node] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        state, _, reason = rest.partition("|")
        name, state = name.strip(), state.strip().lower()
        if is_node(name) and state.rstrip(_MARKS) and name not in found:
            found[name] = Node(
                name, state.rstrip(_MARKS), not _is_silent(state), "" if reason.strip() == "none" else reason.strip()[:MAX_REASON]
            )
    return MappingProxyType(found)


def _is_silent(state: str) -> bool:
    return "*" in state[len(state.rstrip(_MARKS)) :]


def fields(line: str) -> Mapping[str, str]:
    """One line of ``scontrol show … -o``: the first value of each key, so that a comment cannot put another state behind it."""
    found: dict[str, str] = {}
    marks = list(_KEY.finditer(line))
    for mark, after in zip(marks, [*marks[1:], None], strict=False):
        value = line[mark.end() : after.start() if after is not None else len(line)].strip()
        found.setdefault(mark[1], value)
    return MappingProxyType(found)


def node_details(text: str) -> Mapping[str, Node]:
    """``scontrol show node -o``: name -> node; its states are written ``DOWN+NOT_RESPONDING``."""
    found: dict[str, Node] = {}
    for line in text.splitlines():
        before, _, reason = line.partition(" Reason=")
        known = fields(before)
        name, states = known.get("NodeName", ""), known.get("State", "").lower().split("+")
        if not is_node(name) or not states[0]:
            continue
        drains = "drain" in states[1:]
        base = ("drained" if states[0] in ("idle", "down") else "draining") if drains else states[0]
        base = "failing" if "fail" in states[1:] and not drains else base
        is_responding = "not_responding" not in states and not states[0].endswith("*")
        found.setdefault(name, Node(name, base.rstrip(_MARKS), is_responding, reason.strip()[:MAX_REASON]))
    return MappingProxyType(found)


def job(text: str) -> Job | None:
    """``scontrol show job -o ID``, called with ``TZ=UTC``; None when it is none."""
    line = next((one for one in text.splitlines() if one.startswith("JobId=")), "")
    id = fields(line).get("JobId", "")
    # The job's name stands before all that Slurm says of it, and may hold anything.
    known = fields(line[max(0, line.rfind(" UserId=")) :])
    known = known if "JobState" in known else fields(line)
    state = known.get("JobState", "").split(" ")[0].upper()
    if JOB_ID.fullmatch(id) is None or not state:
        return None
    code, _, number = known.get("ExitCode", "").partition(":")
    return Job(
        id, state, known.get("Reason", "")[:MAX_REASON], _given(known.get("NodeList", "")), _count(known.get("NumNodes", "")),
        _given(known.get("ExcNodeList", "")), _given(known.get("Partition", "")), _count(known.get("Restarts", "")),
        time_ns(known.get("StartTime", "")), time_ns(known.get("EndTime", "")) if known.get("TimeLimit") != "UNLIMITED" else None,
        _count(code), _count(number), _given(known.get("StdOut", "")), _given(known.get("StdErr", "")),
    )  # fmt: skip


def steps(text: str, since_ns: int = 0) -> tuple[str, ...]:
    """``squeue -s -h -o '%i|%S'``: the steps that ``srun`` began (``77.3``) at ``since_ns`` or later; the batch script's is none."""
    found: list[str] = []
    for line in text.splitlines():
        id, _, began = line.strip().partition("|")
        began_ns = time_ns(began)
        if _STEP.fullmatch(id) and (began_ns is None or began_ns >= since_ns):
            found.append(id)
    return tuple(found)


def sruns(text: str) -> Mapping[str, tuple[str, int]]:
    """``scontrol show step -o``: step -> (host, process id) of the ``srun`` that began it; those of the batch script have none."""
    found: dict[str, tuple[str, int]] = {}
    for line in text.splitlines():
        id = fields(line).get("StepId", "")
        # A step's name stands before and may hold anything.
        host, _, pid = line.rpartition(" SrunHost:Pid=")[2].strip().rpartition(":")
        if _STEP.fullmatch(id) and is_node(host) and _count(pid):
            found[id] = (host, _count(pid))
    return MappingProxyType(found)


def with_comment(text: str, beginning: str) -> tuple[tuple[str, str], ...]:
    """``squeue -h -o '%i|%k'``: (id, comment) of the jobs whose comment begins so."""
    pairs = (line.strip().partition("|") for line in text.splitlines())
    return tuple((id, found) for id, _, found in pairs if found.startswith(beginning) and JOB_ID.fullmatch(id) is not None)


def submitted(text: str) -> str:
    """``sbatch --parsable``: the job's id, "" when it is none."""
    found = [match[1] for line in text.splitlines() if (match := _PARSABLE.fullmatch(line.strip())) is not None]
    return found[-1] if found else ""


def time_ns(text: str) -> int | None:
    """``2026-01-02T03:04:05`` in UTC; None for ``Unknown``, ``N/A`` and anything else."""
    if len(text) != 19:
        return None
    try:
        found = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(found.timestamp()) * 10**9


def nodes_of(text: str) -> tuple[str, ...]:
    """As ``expand``; none where it is no list, for what only tells people and narrows a search."""
    try:
        return expand(text)
    except InputError:
        return ()


def _given(text: str) -> str:
    return "" if text == "(null)" else text


def _count(text: str) -> int:
    digits = text.partition("-")[0]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else 0


def shown(names: Sequence[str], most: int = 8) -> str:
    """For people: ``n2, n3 and 5 more``."""
    known = sorted(set(names))
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
