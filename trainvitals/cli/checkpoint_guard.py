"""Ends a command whose file system hangs: a read from a dead server gives no error, it gives nothing, and Ctrl-C may not help either.

A thread looks every second whether any other thread did anything: ran, waited for something else, was woken. A long look does all of it;
a thread inside one call to a file system does none. Needs ``/proc``; without it nobody is ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from trainvitals.checkpoints.files import printable

_WAKES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
PERIOD_S = 1.0


class Guard:
    """``with`` it. directory: what was asked for; at: what is being looked at, kept up to date. deadline_s: 0 = wait for ever.

    told: prints what is known until then; called once, before the end.
    """

    def __init__(self, directory: str, deadline_s: float, told: Callable[[], None] = lambda: None) -> None:
        self.at = directory
        self._deadline_s = deadline_s
        self._told = told
        self._is_over = threading.Event()

    def __enter__(self) -> Guard:
        if self._deadline_s > 0:
            threading.Thread(target=self._watch, name="checkpoint-guard", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        before, since_s = signs_of_life(), time.monotonic()
        while not self._is_over.wait(min(PERIOD_S, self._deadline_s)):
            now = signs_of_life()
            if not now or now != before:
                before, since_s = now, time.monotonic()
            elif time.monotonic() - since_s >= self._deadline_s and not self._is_over.is_set():
                self._end()

    def _end(self) -> None:
        with suppress(Exception):  # whatever is half printed must not keep the process
            self._told()
            sys.stdout.flush()
        print(  # noqa: T201
            f"{printable(self.at, 500)}: the file system does not answer for {self._deadline_s:g} s: it hangs, or is very slow. Nothing more is "
            "known of what lies there. Look whether it answers (ls, df), then run this again; --deadline 0 waits for ever.",
            file=sys.stderr,
            flush=True,
        )
        # The thread that hangs cannot be asked to end.
        os._exit(2)


def signs_of_life() -> dict[str, str]:
    """Of each thread of this process but the calling one: how often it was woken or put aside. Empty without ``/proc``."""
    own = str(threading.get_native_id())
    found: dict[str, str] = {}
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
            if thread == own:
                continue
            with suppress(OSError), open(f"/proc/self/task/{thread}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                found[thread] = "".join(line for line in file if line.startswith(_WAKES))
            with suppress(OSError), open(f"/proc/self/task/{thread}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
                # Time of its own, in user and in kernel mode: what runs alone on a core is never put aside. What could run and is not let
                # (a busy machine) does not wait for a file either.
                found[thread] = f"{found.get(thread, '')}{time.monotonic() if fields[0] == 'R' else fields[11:13]}"
    return found
