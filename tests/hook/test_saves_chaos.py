"""What happens around a save: full and read-only disks, deletions meanwhile, very many files, clocks that jump."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.hook.save_readers import WAIT_S, assert_true, events, states, write
from trainvitals import manifest
from trainvitals.clock import ManualClock
from trainvitals.hook import Recorder, hashing, manifest_job, saves

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(manifest_job, "TRY_AGAIN_S", 0.0)


def test_a_full_disk_leaves_the_checkpoint_as_it_was_and_is_told(tmp_path, small_disk, impatient):
    checkpoint = small_disk / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
            with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
        assert save.wait(WAIT_S)
        assert recorder.errors == 1
    assert os.listdir(checkpoint) == ["a"]
    told = events(tmp_path)[-1]["data"]
    assert (told["state"], told["is_written"]) == ("manifest", False) and "No space left" in told["reason"]


def test_a_full_disk_that_is_emptied_gets_its_manifest(tmp_path, small_disk, monkeypatch):
    checkpoint = small_disk / "step-1"
    full = threading.Event()
    real = manifest_job.durable.write_whole

    def tells(*arguments):
        try:
            return real(*arguments)
        except OSError:
            full.set()
            raise

    monkeypatch.setattr(manifest_job.durable, "write_whole", tells)
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
            with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
        assert full.wait(WAIT_S)
        (small_disk / "filler").unlink()
        assert save.wait(WAIT_S)
    assert_true(checkpoint)


def test_a_checkpoint_on_a_read_only_file_system_is_told_at_once(tmp_path, small_disk):
    checkpoint = small_disk / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
            assert subprocess.run(["mount", "-o", "remount,ro", small_disk], capture_output=True, check=False).returncode == 0
        assert save.wait(WAIT_S)
    assert "Read-only file system" in events(tmp_path)[-1]["data"]["reason"]


@pytest.fixture
def held_hash(monkeypatch):
    """(begun, go on): the thread stands still where it hashes its first file."""
    begun, go_on = threading.Event(), threading.Event()
    real = hashing.hash_file

    def holds(*arguments):
        begun.set()
        assert go_on.wait(WAIT_S)
        return real(*arguments)

    monkeypatch.setattr(manifest_job, "hash_file", holds)
    yield begun, go_on
    go_on.set()


def test_the_loop_goes_on_while_the_thread_hashes(tmp_path, held_hash):
    begun, go_on = held_hash
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(tmp_path / "step-1", 1) as first:
            write(tmp_path / "step-1", a=b"a")
        assert begun.wait(WAIT_S)
        for step in range(1000):
            recorder.log(step, loss=1.0)
        with recorder.saving(tmp_path / "step-2", 2) as second:
            write(tmp_path / "step-2", a=b"b")
        recorder.resumed(1, path=tmp_path / "step-1")
        recorder.copied(tmp_path / "step-1", tmp_path / "step-2")
        assert not first.wait(0) and not second.wait(0)
        go_on.set()
        assert first.wait(WAIT_S) and second.wait(WAIT_S)
    assert_true(tmp_path / "step-1")
    assert_true(tmp_path / "step-2")


def test_a_checkpoint_that_is_deleted_while_it_is_hashed_is_given_up(tmp_path, held_hash):
    begun, go_on = held_hash
    checkpoint = tmp_path / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a", b=b"b")
        assert begun.wait(WAIT_S)
        shutil.rmtree(checkpoint)
        go_on.set()
        assert save.wait(WAIT_S)
        assert recorder.errors == 0
    assert not checkpoint.exists()
    assert states(tmp_path) == ["begun", "persisted", "deleted"]


def test_nothing_is_put_into_a_directory_whose_files_are_going_away(tmp_path, held_hash):
    begun, go_on = held_hash
    checkpoint = tmp_path / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a", b=b"b")
        assert begun.wait(WAIT_S)
        (checkpoint / "b").unlink()
        go_on.set()
        assert save.wait(WAIT_S)
    assert os.listdir(checkpoint) == ["a"]
    assert "being deleted" in events(tmp_path)[-1]["text"]


def test_a_trainer_that_says_what_it_deletes_is_not_disturbed(tmp_path, held_hash):
    begun, go_on = held_hash
    checkpoint = tmp_path / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
        assert begun.wait(WAIT_S)
        recorder.deleted(checkpoint)
        go_on.set()
        assert save.wait(WAIT_S)
    assert os.listdir(checkpoint) == ["a"]
    assert states(tmp_path) == ["begun", "persisted", "deleted"]


def test_a_save_of_the_same_checkpoint_again_drops_what_was_under_way(tmp_path, held_hash):
    begun, go_on = held_hash
    checkpoint = tmp_path / "step-1"
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as first:
            write(checkpoint, a=b"a")
        assert begun.wait(WAIT_S)
        with recorder.saving(checkpoint, 1) as second:
            go_on.set()
            assert first.wait(WAIT_S)
            assert os.listdir(checkpoint) == ["a"]
            write(checkpoint, a=b"other")
        assert second.wait(WAIT_S)
    assert_true(checkpoint)


def test_a_save_that_begins_anew_while_the_manifest_is_renamed_leaves_no_old_one(tmp_path, monkeypatch):
    checkpoint = tmp_path / "step-1"
    renaming, go_on = threading.Event(), threading.Event()
    real = os.replace

    def holds(*arguments):
        renaming.set()
        assert go_on.wait(WAIT_S)
        return real(*arguments)

    monkeypatch.setattr(manifest_job.durable.os, "replace", holds)
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as first:
            write(checkpoint, a=b"a")
        assert renaming.wait(WAIT_S)
        second = recorder.saving(checkpoint, 1)
        go_on.set()
        assert first.wait(WAIT_S)
        assert os.listdir(checkpoint) == ["a"]
        write(checkpoint, a=b"other")
        second.persisted()
        assert second.wait(WAIT_S)
    assert_true(checkpoint)
    assert states(tmp_path) == ["begun", "persisted", "begun", "persisted", "manifest"]


def test_a_file_that_still_changes_is_hashed_again(tmp_path, monkeypatch):
    checkpoint = tmp_path / "step-1"
    real, rounds = hashing.hash_file, []

    def changes(path, *arguments):
        rounds.append(path)
        if len(rounds) == 1:
            raise hashing.Changed(path)
        return real(path, *arguments)

    monkeypatch.setattr(manifest_job, "hash_file", changes)
    with Recorder(tmp_path, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
        assert save.wait(WAIT_S)
    assert len(rounds) == 2
    assert_true(checkpoint)


def test_a_file_that_never_stands_still_is_named(tmp_path, monkeypatch, impatient):
    def changes(path, *arguments):
        raise hashing.Changed(path)

    monkeypatch.setattr(manifest_job, "hash_file", changes)
    with Recorder(tmp_path, run="r") as recorder, recorder.saving(tmp_path / "step-1", 1):
        write(tmp_path / "step-1", a=b"a")
    assert "step-1/a changes after it was said to be written" in events(tmp_path)[-1]["data"]["reason"]


def test_a_file_that_grows_while_it_is_read_has_changed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a" * 100)
    looks = []

    def grows():
        looks.append(1)
        with path.open("ab") as file:
            file.write(b"b")
        return False

    with pytest.raises(hashing.Changed):
        hashing.hash_file(str(path), hashing.of_name("sha256"), grows, bytearray(50))


def test_an_end_while_the_disk_does_not_answer_waits_for_seconds_only_and_is_told(tmp_path, held_hash, monkeypatch):
    monkeypatch.setattr(saves, "CLOSE_WAIT_S", 0.1)
    begun, _ = held_hash
    recorder = Recorder(tmp_path, run="r")
    with recorder.saving(tmp_path / "step-1", 1) as save:
        write(tmp_path / "step-1", a=b"a")
    assert begun.wait(WAIT_S)
    recorder._saves.close(0.1)
    recorder.close()
    assert save.wait(0)
    assert "the trainer ended first" in events(tmp_path)[-1]["text"]


def test_a_checkpoint_of_very_many_files_gets_its_manifest(tmp_path):
    checkpoint = tmp_path / "step-1"
    checkpoint.mkdir()
    for number in range(5000):
        (checkpoint / f"layer_{number}.bin").write_bytes(b"%d" % number)
    with Recorder(tmp_path / "run", run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            pass
        assert save.wait(TIMEOUT_S)
    assert len(assert_true(checkpoint).files) == 5000


def test_more_files_than_are_hashed_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("trainvitals.hook.checkpoint_files.MAX_FILES", 3)
    with Recorder(tmp_path / "run", run="r") as recorder, recorder.saving(tmp_path / "step-1", 1):
        write(tmp_path / "step-1", a=b"", b=b"", c=b"", d=b"")
    assert events(tmp_path / "run")[-1]["data"]["reason"] == "more than 3 files"


def test_a_clock_that_is_set_meanwhile_changes_no_duration(tmp_path):
    clock = ManualClock()
    with Recorder(tmp_path / "run", run="r", clock=clock) as recorder, recorder.saving(tmp_path / "step-1", 1):
        write(tmp_path / "step-1", a=b"a")
        clock.advance(-7 * 86400, wall_only=True)
        clock.advance(3)
    assert assert_true(tmp_path / "step-1").timing.persisted_s == 3
    assert events(tmp_path / "run")[1]["data"]["persisted_s"] == 3


def test_saves_that_nobody_has_time_to_hash_do_not_pile_up(tmp_path, held_hash, monkeypatch):
    monkeypatch.setattr("trainvitals.hook.save_worker.MAX_JOBS", 3)
    begun, go_on = held_hash
    with Recorder(tmp_path / "run", run="r") as recorder:
        made = []
        for step in range(6):
            with recorder.saving(tmp_path / f"step-{step}", step) as save:
                write(tmp_path / f"step-{step}", a=b"a")
            made.append(save)
            assert begun.wait(WAIT_S)
        go_on.set()
        assert all(save.wait(WAIT_S) for save in made)
    reasons = [event["data"]["reason"] for event in events(tmp_path / "run") if not event["data"].get("is_written", True)]
    assert reasons == ["later saves overtook it"] * 3
    assert (tmp_path / "step-5" / manifest.NAME).exists()


NO_IMPORTS = """
import importlib.abc, json, os, sys, threading
from trainvitals.hook import Recorder

found = []


class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            found.append(f"{name} in {threading.current_thread().name}")
        return None


sys.meta_path.insert(0, Watch())
with Recorder(sys.argv[1], run="r") as recorder:
    with recorder.saving(sys.argv[1] + "/step-1", 1) as save:
        os.makedirs(sys.argv[1] + "/step-1")
        open(sys.argv[1] + "/step-1/a", "wb").write(b"a")
    assert save.wait(60)
    recorder.resumed(1, path=sys.argv[1] + "/step-1")
    recorder.copied(sys.argv[1] + "/step-1", sys.argv[1] + "/step-1")
print(json.dumps(found))
"""


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_thread_imports_nothing(tmp_path, is_fast):
    code = NO_IMPORTS if is_fast else "import sys; sys.modules['xxhash'] = None\n" + NO_IMPORTS
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert_true(tmp_path / "step-1")
