"""A file system of our own that stands still while its process is stopped, as a file server that went away does."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("stopping_fs.c")
PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def stopping_fs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of stopping_fs.c."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this machine has no /dev/fuse")
    if shutil.which("fusermount3") is None or not Path("/usr/include/fuse3/fuse.h").exists():
        # .ci/system-packages installs both.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs the Debian packages fuse3 and libfuse3-dev")
    program = tmp_path_factory.mktemp("fuse") / "stopping_fs"
    command = [os.environ.get("CC", "cc"), "-O1", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", str(SOURCE)]
    subprocess.run([*command, "-o", str(program), "-lfuse3", "-lpthread"], check=True, capture_output=True)
    return program


@contextlib.contextmanager
def mounted(stopping_fs: Path, behind: Path, mount: Path) -> Iterator[int]:
    """Process id of the server that shows directory ``behind`` at ``mount``; whatever was done to it, both are free afterwards."""
    server = subprocess.Popen([stopping_fs, behind, mount, "-f"], stderr=subprocess.PIPE)
    assert server.stderr is not None
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while str(mount) not in Path("/proc/self/mountinfo").read_text():
            if server.poll() is not None:
                pytest.skip(f"this machine mounts no FUSE file system: {server.stderr.read().decode(errors='replace')[-200:]}")
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        yield server.pid
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGCONT)
            subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=False, capture_output=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(5)
            server.kill()
        server.wait()
        server.stderr.close()
