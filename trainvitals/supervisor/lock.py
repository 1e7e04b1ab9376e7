"""One supervisor a run: whoever holds ``supervisor.lock`` in the run directory. The lock goes with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import InputError, TrainvitalsError

LOCK_FILE = "supervisor.lock"


@contextmanager
def hold(run_dir: str) -> Iterator[None]:
    """Raises ``TrainvitalsError`` naming the process that holds it, ``InputError`` when the directory takes no file."""
    path = Path(run_dir) / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)
    except OSError as error:
        raise InputError(f"Cannot open {path}: {error.strerror or error}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise InputError(
                    f"The file system of {run_dir} locks no files ({error.strerror or error}), so two supervisors could start two "
                    "trainers; mount it with locks (Lustre: -o flock), or put dir on another one."
                ) from error
            holder = os.pread(descriptor, 200, 0).decode("ascii", "replace").strip()
            who = holder if holder.isprintable() and holder else "another process"
            raise TrainvitalsError(
                f"The run in {run_dir} is supervised by {who} already; two would start two trainers."
            ) from error
        with contextlib.suppress(OSError):  # for people only: the lock holds on a full disk, too
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode("ascii", "replace"), 0)
        yield
    finally:
        os.close(descriptor)
