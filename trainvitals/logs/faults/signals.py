"""How a process ended, from what launchers, shells and PyTorch's data loader say of it: a code, or a signal as a negative number. Pure.

Texts: torchrun, ``torch.multiprocessing.spawn``, ``torch/utils/data/_utils/signal_handling.py`` (``strsignal``), ``subprocess``, Open MPI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

#: Signals by which a program ends itself: illegal instruction, abort, bus error, floating point, segmentation fault.
CRASH_SIGNALS = frozenset({4, 6, 7, 8, 11})
_NUMBERS: Mapping[str, int] = MappingProxyType(
    {
        "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11, "SIGTERM": 15,
        "Interrupt": 2, "Illegal instruction": 4, "Aborted": 6, "Bus error": 7, "Floating point exception": 8, "Killed": 9,
        "Segmentation fault": 11, "Terminated": 15,
    }
)  # fmt: skip
_CODE = re.compile(r"(?:exitcode *: |exit code:? |return code = |exit status )(-?\d{1,4})\b", re.ASCII)
_SIGNAL = re.compile(
    r"(?:(?:on|by|with) signal:? |<Signals\.)(\d{1,2}\b|SIG[A-Z]{2,4}\b|[A-Z][a-z]{3,12}(?: [a-z]{4,11}){0,2})", re.ASCII
)


def exit_code(text: str) -> int | None:
    """0 to 255, or minus the signal's number; None when the text says neither."""
    if found := _SIGNAL.search(text):
        number = int(found[1]) if found[1].isdigit() else _NUMBERS.get(found[1])
        if number:
            return -number
    found = _CODE.search(text)
    return int(found[1]) if found else None


def signal_of(code: int) -> int:
    """The signal's number in an exit code, 0 = none. A shell says 128 + the number; its own codes end at 128."""
    return -code if code < 0 else code - 128 if 129 <= code <= 159 else 0
