"""No thread of the hook imports: a process that is forked meanwhile would keep an import's lock for ever."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = """
import importlib.abc, json, sys, threading
from trainvitals.hook import ControlClient, Recorder

found = []


class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            found.append(f"{name} in {threading.current_thread().name}")
        return None


sys.meta_path.insert(0, Watch())
recorder = Recorder(sys.argv[1], run="r", writer=sys.argv[2])
control = ControlClient(sys.argv[1], run="r")
recorder.describe({"lr": 1})
threads = sorted(thread.name for thread in threading.enumerate())
control.at_step(1)
recorder.log(1, loss=1.0)
control.close()
recorder.close()
print(json.dumps({"imports": found, "threads": threads}))
"""


@pytest.mark.parametrize("writer", ["direct", "queued"])
def test_no_thread_of_the_hook_imports_a_module(tmp_path, writer):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), writer]
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(done.stdout)
    assert told["imports"] == []
    assert "trainvitals-metadata" in told["threads"] and "trainvitals-control" in told["threads"], done.stderr
    (path,) = tmp_path.glob("metrics.*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines() if '"metadata"' in line]
    assert {"packages", "software"} <= {event["data"]["section"] for event in events}
