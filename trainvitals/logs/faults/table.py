"""Classes of what breaks, and the search of a line for the texts that tell of them (``rows``).

``level`` says what is cause and what only follows: 5 = the surroundings ended the run, 4 = the program itself failed, 3 = killed by
somebody unknown, 2 = what a launcher or a peer says when a process has died, 1 = what is said to processes that are still alive,
0 = stands for itself.

``python -m trainvitals.logs.faults.table`` rewrites the generated table of docs/faults.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainvitals.logs.faults.rows import ROWS, Row
from trainvitals.records import Severity


@dataclass(frozen=True)
class FaultClass:
    """``is_deadly``: no trainer goes on after it. ``action``: what to look at first."""

    severity: Severity
    is_deadly: bool
    meaning: str
    action: str


def _deadly(meaning: str, action: str) -> FaultClass:
    return FaultClass(Severity.CRITICAL, True, meaning, action)


def _soft(meaning: str, action: str, *, is_deadly: bool) -> FaultClass:
    return FaultClass(Severity.WARNING, is_deadly, meaning, action)


CLASSES: Mapping[str, FaultClass] = MappingProxyType(
    {
        "out_of_memory": _deadly("GPU memory (data.memory = gpu) or the host's (host) was used up", "batch size, sequence length, fragmentation; on the host: data loader workers, checkpoint staging"),
        "gpu_error": _deadly("a GPU failed: uncorrectable ECC error, lost from the bus, not there, or it computed what another run does not", "drain the node, reset or replace the GPU"),
        "disk_full": _deadly("no space or no quota left", "space of the checkpoint directory, the log directory and /tmp"),
        "storage_error": _deadly("the file system failed: input/output error, stale handle, read-only, cut off", "mount, servers and quota of the path that the line names; other runs on it"),
        "numerics": _deadly("the loss scale fell to its floor, or the trainer gave up on NaN; as a warning: five or more halvings in a row", "learning rate, data, precision; see the loss before it"),
        "node_failure": _deadly("the scheduler lost a node", "the scheduler's log of that node"),
        "time_limit": _soft("the allocation ended", "submit again; the newest checkpoint counts", is_deadly=True),
        "preempted": _soft("the scheduler took the nodes for another job, or queued the job again", "wait, or submit again", is_deadly=True),
        "nccl_timeout": _deadly("a collective did not end: ranks_seen waited, ranks_missing said nothing", "the missing ranks' hosts and logs"),
        "cuda_error": _deadly("a CUDA call failed: illegal access, device-side assert, launch failure", "the first traceback; then the GPU's health"),
        "crashed": _deadly("a process ended by a signal of its own: segmentation fault, bus error, abort", "the core dump; libraries that changed"),
        "config_error": _deadly("the program could not start: a module, an argument or a file is missing or wrong", "the last line of the traceback; what changed since the last start"),
        "exception": _deadly("a Python exception of any other kind that nobody caught", "the traceback"),
        "killed": _deadly("a process was killed (data.signal), by whom is not said", "the host's kernel log (out of memory?), the scheduler, people; signal 1: a terminal was closed (tmux, nohup)"),
        "network": _soft("a connection between ranks, or to the rendezvous, broke", "the link, the switch, and whether the peer died first", is_deadly=False),
        "process_failed": _deadly("the launcher saw a process end with an error", "that rank's own log"),
        "cancelled": _soft("somebody cancelled the job or interrupted the program", "ask who", is_deadly=True),
        "xid": _soft("the NVIDIA driver reported an Xid (data.xid, data.pci)", "the Xid's number in NVIDIA's table", is_deadly=False),
        "io_hang": _soft("the kernel saw a task blocked for minutes, mostly on storage", "the file system it waits for", is_deadly=False),
    }
)  # fmt: skip
DEADLY_CLASSES = frozenset(name for name, known in CLASSES.items() if known.is_deadly)


_BY_LITERAL: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {literal: tuple(row for row in ROWS if row.literal == literal) for literal in dict.fromkeys(row.literal for row in ROWS)}
)
#: One of these, letter by letter, is in every line in which ``sightings`` finds anything. Without digits none may be common.
LITERALS = tuple(_BY_LITERAL)

#: How a line of a program's text begins; a message that a program would print stands in it, but nothing happened.
_CODE = re.compile(
    r"\s{0,200}(?:#(?!#)|//|\"\"\"|@\w|(?:if|elif|for|while|with|def|class|except|try|else)\b.{0,300}:\s{0,9}(?:#.{0,300})?$|raise \w[\w.]{0,80}(?:\(|$)|[rfb][\"']|[\"'][^\"']{0,300}[\"'],?\s{0,9}\)?$"
    r"|print\(|assert |return (?!code)|import \w|from [\w.]{1,80} import |(?:logg?er|logging|log)\.(?:info|error|warn|exception|debug|critical)|self\.\w"
    r"|[A-Za-z_][\w.\[\]]{0,80}(?:, [A-Za-z_]\w{0,40}){0,6} [+|]?= ?\S)",
    re.ASCII,
)
_QUOTES = frozenset("\"'`")
_BEFORE, _AFTER, _PLACES = 400, 600, 4


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row found in a line. ``text``: the line around it."""

    kind: str
    level: int
    text: str
    detail: Mapping[str, str]


def sightings(line: str) -> list[Sighting]:
    """Every class that the line names, each once with its strongest row; nothing for a line of program text."""
    found: dict[str, Sighting] = {}
    for literal, rows in _BY_LITERAL.items():
        if literal in line:
            for row in rows:
                text, is_found = _look(row, line)
                known = found.get(row.kind)
                if is_found and (known is None or row.level > known.level):
                    found[row.kind] = Sighting(row.kind, row.level, text, row.detail)
    if "xid" in found:
        return [found["xid"]]  # the rest of that line is the driver's own explanation of the number
    if "cancelled" in found and any(kind in found for kind in ("time_limit", "node_failure", "preempted")):
        del found["cancelled"]
    return list(found.values())


def _look(row: Row, line: str) -> tuple[str, bool]:
    """The text around the row's literal, and whether its pattern is there: looked for in a few places of an endless line."""
    at = line.find(row.literal)
    for _ in range(_PLACES):
        if at < 0:
            break
        text = line[max(0, at - _BEFORE) : at + _AFTER]
        match = row.pattern.search(text)
        if match is not None and not _is_program_text(line, text, match.start()):
            return text, True
        at = line.find(row.literal, at + _AFTER)
    return "", False


def _is_program_text(line: str, text: str, start: int) -> bool:
    if _CODE.match(line):
        return True
    if start == 0 or text[start - 1] not in _QUOTES or text[start] in _QUOTES:
        return False
    # An exception's repr, C++ ("an instance of 'terminate called ...") and loggers that write JSON or logfmt quote what did happen.
    is_told = text.startswith(("terminate called", "instance of"), start) or text.endswith(("Error(", "Exception("), 0, start - 1)
    return not (is_told or line.lstrip().startswith("{") or "level=" in line or "msg=" in line)


def table() -> str:
    """Markdown."""
    rows = [
        f"| `{name}` | {known.severity.value} | {'yes' if known.is_deadly else 'no'} | {known.meaning} | {known.action} |"
        for name, known in CLASSES.items()
    ]
    return "\n".join(["| class | severity | deadly | meaning | look at |", "|---|---|---|---|---|", *rows])


def with_table(text: str) -> str:
    """The document with what stands between its generated marks made anew. Raises ``ValueError`` when they are missing."""
    begin, end = "<!-- generated: faults -->\n", "<!-- end: faults -->"
    head, found, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found and found_end):
        raise ValueError("The document lacks the marks of the generated table 'faults'.")
    return head + begin + table() + "\n" + end + tail


def main() -> int:
    """Rewrite docs/faults.md of this checkout."""
    path = Path(__file__).parents[3] / "docs" / "faults.md"
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
