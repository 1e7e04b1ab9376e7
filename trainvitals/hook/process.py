"""Where a process id means something: written by the trainer, compared by who looks whether it still lives."""

from __future__ import annotations

import os
from pathlib import Path


def pid_namespace() -> str:
    """This boot of the machine and the namespace of this process's id; empty when that cannot be told. Never raises."""
    try:
        # UTF-8, whose codec is loaded always: a thread that writes the header must import none.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8", errors="replace").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 (it leads to no path)
    except OSError:
        return ""
