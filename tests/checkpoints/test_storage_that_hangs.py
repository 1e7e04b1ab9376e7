"""A file system below the checkpoints that answers nothing: detection goes on and says so; the command ends with a sentence."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import checkpoint_makers as make
import pytest

from tests.services.hung_storage import mounted
from trainvitals.checkpoints import CheckpointWatcher
from trainvitals.clock import ManualClock
from trainvitals.errors import StoreUnavailable
from trainvitals.hook import Recorder
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.checkpoint_scan import HUNG_S, CheckpointScanner

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


def until(what, then=None):
    deadline_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline_s, then() if then else "it did not come"
        time.sleep(0.02)


@pytest.fixture
def storage(stopping_fs, tmp_path):
    """(mount point with a checkpoint in it, process id of its server)."""
    behind, mount = tmp_path / "behind", tmp_path / "mount"
    mount.mkdir()
    make.huggingface(behind, 100)
    with mounted(stopping_fs, behind, mount) as server:
        yield mount, server


class Hangs:
    """A watcher whose scan comes back when it is let go."""

    where = "/data/run/step-500"
    reports = ()

    def __init__(self):
        self.go_on = threading.Event()

    def scan(self):
        self.go_on.wait(PATIENCE_S)
        return []

    def advise(self, wanted, step_s): ...

    def to_state(self):
        return {}

    def restore(self, state): ...


def test_a_look_that_does_not_come_back_is_told_in_the_same_words_until_it_does():
    clock, watcher = ManualClock(), Hangs()
    scanner = CheckpointScanner(watcher, clock, 10.0)
    assert scanner.poll() is None
    clock.advance(HUNG_S - 1.0)
    assert scanner.poll() is None
    clock.advance(1.0)
    first = scanner.poll()
    clock.advance(3600.0)
    assert scanner.poll() == first
    assert "/data/run/step-500 has not come back" in first.error
    assert (first.reports, first.state) == ((), None)
    watcher.go_on.set()
    ended = []
    until(lambda: ended.extend(one for one in [scanner.poll()] if one and not one.error) or ended)
    assert ended[-1].state == {}


def test_the_real_watcher_says_where_it_waits(storage, tmp_path):
    mount, server = storage
    clock = ManualClock()
    watcher = CheckpointWatcher([str(mount)], clock)
    scanner = CheckpointScanner(watcher, clock, 10.0)
    seen = []
    until(lambda: seen.extend(filter(None, [scanner.poll()])) or seen)
    assert [report.step for report in seen[0].known] == [100]
    os.kill(server, signal.SIGSTOP)
    try:
        clock.advance(20.0)
        scanner.poll()
        clock.advance(HUNG_S)
        scan = scanner.poll()
        assert str(mount) in scan.error
        assert "has not come back for 2 minutes" in scan.error
    finally:
        os.kill(server, signal.SIGCONT)
    seen.clear()
    until(lambda: seen.extend(one for one in [scanner.poll()] if one and not one.error) or seen)


def events(directory, kind):
    try:
        with closing(SqliteStore(directory / "store.db", read_only=True)) as store:
            return store.events("r", [kind], 0, 2**62)
    except StoreUnavailable:
        return []  # it is being made


def test_watch_goes_on_detecting_while_the_storage_of_the_checkpoints_hangs(storage, tmp_path):
    mount, server = storage
    run_dir, errors, chance = tmp_path / "run", tmp_path / "errors", random.Random(3)
    run_dir.mkdir()
    (tmp_path / "trainvitals.toml").write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[[runs]]\nname = "r"\ndir = "{run_dir}"\ncheckpoints = ["{mount}"]\n[watch]\npoll_s = 0.05\n'
        "checkpoint_scan_s = 1\n"
    )
    code = (
        "import sys; from trainvitals.watch import checkpoint_scan; checkpoint_scan.HUNG_S = 1.0\n"
        "from trainvitals.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "watch", "--run", "r", "--config", str(tmp_path / "trainvitals.toml")]
    with Recorder(str(run_dir), run="r") as recorder, errors.open("wb") as said:
        watch = subprocess.Popen(command, stderr=said, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            for step in range(150):
                recorder.log(step, loss=2.0 + chance.gauss(0, 0.01))
            until(lambda: (tmp_path / "store.db").exists() and events(tmp_path, "checkpoint"), errors.read_text)
            os.kill(server, signal.SIGSTOP)
            until(lambda: any("has not come back" in event.text for event in events(tmp_path, "watch")), errors.read_text)
            for step in range(150, 160):
                recorder.log(step, loss=float("nan"))
            until(
                lambda: any(event.data.get("rule") == "loss_nonfinite" for event in events(tmp_path, "finding")), errors.read_text
            )
        finally:
            os.kill(server, signal.SIGCONT)
            watch.terminate()
            assert watch.wait(30) == 0


class TestTheCommand:
    def run(self, *arguments, deadline="1"):
        command = [sys.executable, "-m", "trainvitals", "checkpoint", *map(str, arguments), "--deadline", deadline]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        return process.returncode, out, err

    @pytest.mark.parametrize(
        "arguments", [["verify"], ["list", "--json"], ["verify", "--quick"], ["verify", "--level", "content"]]
    )
    def test_it_ends_with_a_sentence_and_code_2(self, storage, arguments):
        mount, server = storage
        os.kill(server, signal.SIGSTOP)
        try:
            code, _, err = self.run(arguments[0], mount, *arguments[1:])
        finally:
            os.kill(server, signal.SIGCONT)
        assert code == 2, err
        assert f"{mount}: the file system does not answer for 1 s" in err

    def test_so_does_a_comparison(self, storage, tmp_path):
        mount, server = storage
        os.kill(server, signal.SIGSTOP)
        try:
            code, _, err = self.run("compare", tmp_path / "behind" / "checkpoint-100", mount / "checkpoint-100")
        finally:
            os.kill(server, signal.SIGCONT)
        assert (code, "does not answer" in err) == (2, True)

    def test_what_was_seen_before_it_hung_is_printed(self, storage, tmp_path, capfd):
        """A checkpoint on the local disk beside a link to one on the file server: the directory itself answers."""
        mount, server = storage
        local = tmp_path / "runs"
        make.huggingface(local, 50)
        (local / "checkpoint-60").mkdir()
        (local / "checkpoint-60" / "model.safetensors").symlink_to(mount / "checkpoint-100" / "model.safetensors")
        os.kill(server, signal.SIGSTOP)
        try:
            code, out, err = self.run("verify", local)
        finally:
            os.kill(server, signal.SIGCONT)
        assert code == 2
        assert "checkpoint-50" in out
        assert "checkpoint-60: the file system does not answer" in err

    def test_a_look_that_works_or_waits_for_its_child_is_never_ended(self, tmp_path):
        path = make.huggingface(tmp_path, 100)
        (path / "big.bin").write_bytes(bytes(300 * 1024 * 1024))
        _, out, err = self.run("verify", tmp_path, "--level", "content", "--mb-per-s", "60", deadline="3")
        assert "does not answer" not in err
        assert "checkpoint-100" in out
