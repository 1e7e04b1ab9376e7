"""Python tracebacks and torchrun's "Root Cause" block, which take many lines and may stand between lines of other processes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_OPEN = 64
MAX_TRACEBACK_LINES = 400
MAX_BLOCK_LINES = 24
BEGIN, ROOT_CAUSE = "Traceback (most recent", "Root Cause (first"
#: Before a traceback: Python itself, or its logging, caught the exception and goes on, or it was ending anyway.
HARMLESS = ("Exception ignored in", "--- Logging error ---", "Error in atexit._run_exitfuncs")

_LAST_LINE = re.compile(r"([A-Za-z_][\w.]{0,150}?)(?:: |:?\s*$)", re.ASCII)
_SUFFIXES = (
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "Expired",
    "Failure",
    "Aborted",
    "Timeout",
    "Fault",
    "Iteration",
    "Empty",
    "Full",
)
#: Frames of argument checks: what fails there is a wrong setting, whatever it is called.
_ARGUMENTS = re.compile(
    r"arguments\.py|argparse\.py|validate_args|parse_args|check_arg|[\w/]{0,80}config\w{0,20}\.py|_config\(", re.ASCII
)
_CHECKS = frozenset(
    {"AssertionError", "ValueError", "TypeError", "KeyError", "AttributeError", "RuntimeError", "NotImplementedError"}
)
_CONFIG = frozenset(
    {
        "ModuleNotFoundError",
        "ImportError",
        "FileNotFoundError",
        "NotADirectoryError",
        "ArgumentError",
        "ScannerError",
        "ParserError",
    }
)
_PEERS = frozenset(
    {"BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "EOFError", "DistNetworkError",
     "DistStoreError", "DistBackendError"}
)  # fmt: skip
_LAUNCHERS = frozenset({"CalledProcessError", "SystemExit", "ProcessExitedException", "ProcessRaisedException", "RayActorError"})
_GLUED = re.compile(r"(?:\[(?:default|rank)\d{1,7}\]: ?){1,2}$", re.ASCII)
#: What a collector of logs writes before every line: a time (Kubernetes, ``ts``), or seconds and a line number (notebooks).
_STAMP = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[ \t](?:std(?:err|out) [FP] )?"
    r"|\d{1,9}\.\d{1,3}s\t\d{1,9}\t",
    re.ASCII,
)
#: The last line of a traceback inside an exception group; frames stand deeper.
_IN_GROUP = re.compile(r"[ ]{2,40}\| (?=[A-Za-z_])", re.ASCII)
_FIELD = re.compile(r"\b(time|host|rank|exitcode|error_file|traceback)\s{0,8}: (.{0,300})", re.ASCII)


def classify(exception: str, is_argument_check: bool) -> tuple[str, int]:
    """Class and level (see ``table``) of an uncaught exception's type."""
    name = exception.rsplit(".", 1)[-1]
    if name.endswith("MemoryError"):
        return "out_of_memory", 5
    if name == "KeyboardInterrupt":
        return "cancelled", 2
    if name in _PEERS:
        return "network", 2
    if name in _LAUNCHERS:
        return "process_failed", 2
    if name in _CONFIG or name.startswith(("Config", "Hydra", "Omega")) or (is_argument_check and name in _CHECKS):
        return "config_error", 4
    return "exception", 4


@dataclass(frozen=True)
class Uncaught:
    """The last line of a traceback. ``exception``: its type."""

    exception: str
    kind: str
    level: int


class Tracebacks:
    """State: per prefix the tracebacks that have no last line yet: [lines, how many, whether in an argument check, how many are
    harmless]; and the prefixes whose next traceback is harmless."""

    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}
        self._harmless: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def feed(self, line: str, prefix: str) -> Uncaught | None:
        """The exception that this line ends a traceback with."""
        at = line.find(BEGIN)
        # Glued to a progress bar, it has its prefix in the middle of the line; the next lines have it at their beginning.
        if at > 0 and (glued := _GLUED.search(line[max(0, at - 40) : at])):
            prefix = glued[0]
        known = self._open.get(prefix)
        if line.startswith(HARMLESS) and prefix not in self._harmless:
            self._harmless = [*self._harmless[-MAX_OPEN:], prefix]
        if at >= 0:
            is_harmless = prefix in self._harmless
            if is_harmless:
                self._harmless.remove(prefix)
            self._open[prefix] = [0, (known[1] if known else 0) + 1, 0, (known[3] if known else 0) + is_harmless]
            while len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
            return None
        if known is None:
            return None
        known[0] += 1
        if stamp := _STAMP.match(line):
            line = line[stamp.end() :]
        if grouped := _IN_GROUP.match(line):
            line = line[grouped.end() :]
        if line[:1] in " \t│╭╰|":
            known[2] = known[2] or int(_ARGUMENTS.search(line[:400]) is not None)
            return None
        found = _LAST_LINE.match(line)
        name = found[1] if found else ""
        is_group = name.endswith("ExceptionGroup")  # what is in it says more
        is_exception = is_group or name.endswith(_SUFFIXES) or ("." in name and name.rsplit(".", 1)[-1][:1].isupper())
        if not is_exception or name.endswith("Warning"):
            if known[0] > MAX_TRACEBACK_LINES:
                del self._open[prefix]
            return None
        known[1] -= 1
        if known[1] <= 0:
            del self._open[prefix]
        if known[3] > 0:
            known[3] -= 1
            return None
        if is_group:
            return None
        return Uncaught(name, *classify(name, bool(known[2])))

    def clear(self) -> None:
        """A step: training goes on."""
        self._open.clear()
        self._harmless = []

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"open": [[prefix, *state] for prefix, state in self._open.items()], "harmless": self._harmless}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._open = {str(prefix): [int(value) for value in values] for prefix, *values in state["open"]}
        self._harmless = [str(prefix) for prefix in state["harmless"]]


@dataclass
class _Block:
    lines: int = 0
    fields: dict[str, str] = field(default_factory=dict)


class RootCauses:
    """torchrun's block about the first process that failed. State: per prefix what was read of it."""

    def __init__(self) -> None:
        self._open: dict[str, _Block] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def feed(self, line: str, prefix: str) -> dict[str, str] | None:
        """The whole block (time, host, rank, exitcode, error_file, traceback) with its last line."""
        if ROOT_CAUSE in line:
            self._open[prefix] = _Block()
            while len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
            return None
        block = self._open.get(prefix)
        if block is None:
            return None
        block.lines += 1
        found = _FIELD.search(line)
        if found is not None:
            block.fields.setdefault(found[1], found[2].strip())
        if "traceback" in block.fields or "=====" in line or block.lines > MAX_BLOCK_LINES:
            del self._open[prefix]
            return block.fields or None
        return None

    def finish(self) -> list[dict[str, str]]:
        """What was read of blocks that the log breaks off in."""
        rest = [block.fields for block in self._open.values() if block.fields]
        self._open.clear()
        return rest

    def to_state(self) -> list[list[Any]]:
        """JSON values only."""
        return [[prefix, block.lines, block.fields] for prefix, block in self._open.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Continue where ``to_state`` was taken."""
        self._open = {str(prefix): _Block(int(lines), dict(fields)) for prefix, lines, fields in state}
