"""Work as another user, in a child process. Needs root."""

import contextlib
import json
import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
#: Numbers that nobody has here.
TRAINER, DASHBOARD, STRANGER, GROUP, OTHER_GROUP = 54_001, 54_002, 54_003, 54_100, 54_200


def as_user(uid, work, *groups):
    """A child process that is this user; returns a function that waits for what ``work`` returned (JSON) or raised."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(receive)
            os.setgroups(list(groups))
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o077)
            try:
                said = {"is": work()}
            except BaseException as error:  # noqa: BLE001 - told to the parent
                said = {"raised": f"{type(error).__name__}: {error}"}
            os.write(send, json.dumps(said).encode())
        os._exit(0)
    os.close(send)

    def wait():
        with os.fdopen(receive, "rb") as pipe:
            said = json.loads(pipe.read())
        os.waitpid(child, 0)
        return said

    return wait
