"""Kills at every boundary of a save, forks during one, and ends after an exception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checkpoints.checkpoint_makers import huggingface
from tests.hook.save_readers import assert_true, events, states
from trainvitals import checkpoints, manifest
from trainvitals.records import CheckpointState, ContentProof, VerificationLevel

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0

KILLED = """
import os, signal, sys
from trainvitals.hook import Recorder
from trainvitals.hook.saves import Saves

checkpoint, countdown, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
main = sys.argv[4]


def armed(function):
    def acts(path, *arguments, **named):
        global countdown
        is_ours = "ckpt_manifest" in os.fsdecode(path) if isinstance(path, (str, bytes)) else True
        if armed.on and is_ours:
            countdown -= 1
            if countdown < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return function(path, *arguments, **named)
    return acts


armed.on = False
for name in ("open", "write", "fsync", "replace", "unlink", "utime", "close"):
    setattr(os, name, armed(getattr(os, name)))
recorder = Recorder(main, run="r", writer="queued", world_size=ranks)
others = [Saves("r", rank=rank, world_size=ranks) for rank in range(1, ranks)]
os.makedirs(checkpoint, exist_ok=True)
armed.on = True
theirs = [other.begin(checkpoint, 10) for other in others]
with recorder.saving(checkpoint, 10) as save:
    armed.on = False
    for rank in range(ranks):
        with open(f"{checkpoint}/__{rank}_0.distcp", "wb") as file:
            file.write(os.urandom(1000))
    armed.on = True
for one in theirs:
    one.persisted()
save.wait(60)
armed.on = False
print("done")
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_kill_anywhere_leaves_no_manifest_or_a_true_one(tmp_path, ranks):
    checkpoint = tmp_path / "step-10"
    outcomes = []
    for countdown in range(200):
        command = [sys.executable, "-c", KILLED, checkpoint, str(countdown), str(ranks), tmp_path / "run"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT)
        assert done.returncode in (0, -9), done.stderr
        names = sorted(os.listdir(checkpoint))
        if manifest.NAME in names:
            assert_true(checkpoint)
        for rank in range(ranks):
            part = checkpoint / manifest.rank_name(rank)
            if part.exists():
                for file in manifest.parse(part.read_bytes()).files:
                    assert (checkpoint / file.path).stat().st_size == file.size
        outcomes.append((done.returncode, manifest.NAME in names))
        if done.returncode == 0:
            break
    # The same checkpoint is saved again each time, so a kill before the old manifest is gone leaves that one, which is true.
    assert outcomes[-1] == (0, True) and len(outcomes) > 8 * ranks
    assert (-9, False) in outcomes
    assert not [name for name in os.listdir(checkpoint) if name.endswith(".tmp")]


def test_a_checkpoint_whose_hook_was_killed_anywhere_still_verifies(tmp_path):
    checkpoint = huggingface(tmp_path, 10)
    code = KILLED.replace("for rank in range(ranks):", "for rank in ():")
    proofs = set()
    for countdown in range(100):
        command = [sys.executable, "-c", code, checkpoint, str(countdown), "1", tmp_path / "run"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT)
        report = checkpoints.inspect(str(checkpoint), level=VerificationLevel.CONTENT)
        assert report.state not in (CheckpointState.CORRUPT, CheckpointState.INCOMPLETE), report.reasons
        proofs.add(report.proof)
        if done.returncode == 0:
            break
    assert report.proof is ContentProof.MANIFEST and len(proofs) > 1


FORKS = """
import json, os, sys
from trainvitals.hook import Recorder

checkpoint = sys.argv[1] + "/step-1"
recorder = Recorder(sys.argv[1], run="r", writer=sys.argv[2])
with recorder.saving(checkpoint, 1) as save:
    os.makedirs(checkpoint)
    open(checkpoint + "/a", "wb").write(b"a" * 50_000_000)
    child = os.fork()
    if child == 0:
        save.persisted()  # the parent's
        assert not os.path.exists(checkpoint + "/ckpt_manifest.json")
        with recorder.saving(sys.argv[1] + "/of-child", 1) as own:
            open(sys.argv[1] + "/of-child", "wb").write(b"c")
        assert own.wait(30)
        recorder.close()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
children = []
for _ in range(10):
    child = os.fork()  # while the thread hashes
    if child == 0:
        recorder.close()
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert save.wait(60)
recorder.close()
print(json.dumps([code, *codes]))
"""


@pytest.mark.parametrize("mode", ["direct", "queued"])
def test_forked_children_neither_finish_nor_disturb_a_save_of_their_parent(tmp_path, mode):
    command = [sys.executable, "-c", FORKS, str(tmp_path), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {0}
    assert_true(tmp_path / "step-1")
    assert states(tmp_path) == ["begun", "persisted", "manifest"]


FAILS = """
import os, sys, time
from trainvitals.hook import Recorder
recorder = Recorder(sys.argv[1], run="r", world_size=2)
with recorder.saving(sys.argv[1] + "/step-1", 1) as save:
    os.makedirs(sys.argv[1] + "/step-1")
    open(sys.argv[1] + "/step-1/a", "wb").write(b"a")
print(time.monotonic(), flush=True)
1 / 0
"""


def test_a_trainer_that_failed_does_not_wait_long_for_ranks_that_may_be_gone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FAILS, str(tmp_path)], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT
    )
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert time.monotonic() - float(done.stdout) < 12  # 2 s and the machine's own; without an exception it is 15 s
    assert "the trainer ended first" in events(tmp_path)[-1]["text"]
