"""Stands between supervisor and trainer so that the exit code is never lost: starts the command, waits, writes how it ended.

Started by path with ``python -I -S``, so it imports the standard library only, and little of it. It ignores the signals that are
meant for the trainer; a kill -9 of the supervisor does not touch it, and the next supervisor reads what it wrote.
"""

import json
import os
import signal
import sys
import time

_FOR_THE_TRAINER = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """``FILE COMMAND…``; returns the command's own exit code, 128 + signal when a signal ended it, 127 when it cannot be started."""
    target, command = arguments[0], arguments[1:]
    for number in _FOR_THE_TRAINER:
        signal.signal(number, signal.SIG_IGN)
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=_FOR_THE_TRAINER)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"trainvitals run: cannot start {command[0]!r}: {error}\n")
        code = 127
    else:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _write(target, {"code": code, "ended_ns": time.time_ns()})
    return code if code >= 0 else 128 - code


def _write(target: str, document: dict[str, int]) -> None:
    temporary = f"{target}.tmp"
    try:
        if os.path.lexists(temporary):
            os.unlink(temporary)  # noqa: PTH108 (pathlib would cost every start of a trainer time)
        # A link that somebody put there is not followed.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)  # noqa: PTH105
    except OSError as error:  # a full disk: the supervisor that is our parent still sees our exit code
        sys.stderr.write(f"trainvitals run: cannot write {target!r}: {error}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
