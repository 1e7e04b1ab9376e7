"""The door to /proc: is a process there, and when did it begin."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BOOTED_NS = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_process(pid: int) -> tuple[bool, int | None]:
    """(is it there and no zombie, when it began in UTC ns or None when that cannot be told)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False, None
    except OSError:
        return True, None  # not ours to look at: it may well be alive
    # The command's name is in brackets and may hold anything; the fields after its last bracket are fixed (proc(5)).
    state, *rest = stat.rsplit(")", 1)[-1].split()
    if state == "Z":
        return False, None
    return True, _BOOTED_NS + int(rest[18]) * 1_000_000_000 // _TICKS_PER_S
