"""Take the calling thread behind everything else on the machine: verifying must never slow a trainer or the watchdog."""

from __future__ import annotations

import ctypes
import os
import platform
import threading

#: Number of the ioprio_set call by machine (Linux has no wrapper for it in libc).
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IDLE_CLASS = 3 << 13
_OF_A_THREAD = 1


def lower() -> str:
    """Lowest CPU priority and idle disk priority for this thread (Linux); returns what the system refused, "" = all was taken."""
    refused = []
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    except OSError as error:
        refused.append(f"nice ({error.strerror})")
    number = _IOPRIO_SET.get(platform.machine())
    if number is None or ctypes.CDLL(None, use_errno=True).syscall(number, _OF_A_THREAD, 0, _IDLE_CLASS) != 0:
        refused.append("ionice")
    return ", ".join(refused)
