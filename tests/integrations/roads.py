"""A training watched on two roads: by the callback's file and by what the trainer prints or writes itself."""

import math
import os
import subprocess
import sys
from pathlib import Path

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 240


def environment():
    """For a trainer's process: quiet, offline, one thread, and this checkout importable."""
    return os.environ | {
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": "/tmp/none", "NO_COLOR": "1",
    }  # fmt: skip


def train(script, *arguments, launcher=(), code=0):
    """stdout and stderr of the script in one stream, as a job's log holds them."""
    done = subprocess.run(
        [sys.executable, *launcher, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, env=environment(),
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stdout.decode(errors="replace")[-3000:]
    return done.stdout


def read(data, format="auto"):
    """(steps, events) of bytes or of a file."""
    parser = Parser(format=format)
    content = data if isinstance(data, bytes) else Path(data).read_bytes()
    records = parser.feed(content) + parser.finish()
    assert parser.counters["bad_records"] == 0
    return [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def assert_agree(one, other, names=("loss", "grad_norm", "lr"), step_offset=0, tolerance=2e-3):
    """The same steps in the same attempts, with the same values and the same non-finite ones."""
    assert [(s.attempt, s.step) for s in one] == [(s.attempt, s.step + step_offset) for s in other]
    for a, b in zip(one, other, strict=True):
        for name in names:
            assert a.nonfinite.get(name) == b.nonfinite.get(name), (name, a, b)
            if name not in a.nonfinite:
                assert math.isclose(a.values[name], b.values[name], rel_tol=tolerance, abs_tol=1e-9), (name, a, b)
