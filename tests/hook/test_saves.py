"""A save as the trainer tells it, and the manifest that a thread writes after it."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import threading

import pytest

from tests.hook.save_readers import WAIT_S, assert_true, events, read, states, write
from trainvitals import manifest
from trainvitals.clock import ManualClock
from trainvitals.hook import Recorder


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint-10"


def test_a_save_is_begun_persisted_and_gets_a_manifest_that_is_true(run_dir, checkpoint):
    with Recorder(run_dir, run="llama") as recorder:
        recorder.log(10, loss=2.0, lr=3e-4, grad_norm=0.5)
        recorder.data(10, source="web", sample_first=7)
        with recorder.saving(checkpoint, has_optimizer=True, has_rng=False, trainer="loop", parallel={"tp": 2}) as save:
            write(checkpoint, weights__bin=b"w" * 100_000, optimizer__pt=b"o", empty=b"")
        assert save.wait(WAIT_S)
    found = assert_true(checkpoint)
    assert (found.run, found.step, found.attempt) == ("llama", 10, None)
    assert (found.loss, found.loss_ema, found.lr, found.grad_norm) == (2.0, 2.0, 3e-4, 0.5)
    assert (found.has_optimizer, found.has_rng, found.has_scheduler) == (True, False, None)
    assert (found.parallel, found.data_position) == ({"tp": 2}, {"source": "web", "sample_first": 7})
    assert found.timing.is_async is False and found.timing.blocked_s == pytest.approx(found.timing.persisted_s, abs=0.1)
    assert states(run_dir) == ["begun", "persisted", "manifest"]
    told = events(run_dir)[-1]
    assert told["step"] == 10 and told["data"]["is_written"] and (told["data"]["files"], told["data"]["bytes"]) == (3, 100_001)
    text = (checkpoint / manifest.NAME).read_bytes()
    assert told["data"]["manifest_sha256"] == hashlib.sha256(text).hexdigest()
    assert [event["data"]["state"] for event in events(run_dir, "phase")] == ["begin", "end"]


def test_no_secret_travels_with_the_weights(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        recorder.data(
            10,
            source="https://user:hunter2pass@host/x",
            shards=["s3://AKIAABCDEFGHIJKLMNOP:geheim99@b/x"],
            api_key="sk-abcdefghijkl",
            sample_last=9,
        )
        with recorder.saving(
            checkpoint, 10, git="https://x:ghp_abcdefghijklmnopqrstuvwxyz0123456789@github.com/a", trainer="loop"
        ) as save:
            write(checkpoint, a=b"a")
        assert save.wait(WAIT_S)
    found, text = read(checkpoint), (checkpoint / manifest.NAME).read_text()
    assert not [secret for secret in ("hunter2", "geheim99", "sk-abc", "ghp_") if secret in text]
    assert (found.trainer, found.data_position["sample_last"]) == ("loop", 9)


@pytest.mark.parametrize("git", ["0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567-dirty"])
def test_a_commit_and_hashes_of_configuration_and_script_are_no_secrets(run_dir, checkpoint, git):
    with Recorder(run_dir, run="r") as recorder, recorder.saving(checkpoint, 10, git=git, config_sha256="ab" * 32) as save:
        write(checkpoint, a=b"a")
    save.wait(WAIT_S)
    assert (read(checkpoint).git, read(checkpoint).config_sha256) == (git, "ab" * 32)


def test_an_empty_path_is_not_the_current_directory(run_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / manifest.NAME).write_text("of another")
    with Recorder(run_dir, run="r") as recorder, recorder.saving("", 10):
        pass
    assert (tmp_path / manifest.NAME).read_text() == "of another"
    assert recorder.errors


@pytest.mark.parametrize("mode", ["direct", "queued"])
def test_values_of_the_manifest_are_those_that_were_logged_last(run_dir, checkpoint, mode):
    with Recorder(run_dir, run="r", writer=mode) as recorder:
        for step, loss in ((1, 4.0), (2, float("nan")), (3, 3.0)):
            recorder.log(step, loss=loss, lr=1e-3, grad_norm=float("inf"), tokens=step * 1000)
        with recorder.saving(checkpoint, 3):
            write(checkpoint, a=b"a")
    found = read(checkpoint)
    assert (found.loss, found.lr, found.grad_norm, found.tokens) == (3.0, 1e-3, None, 3000)
    assert found.loss_ema == pytest.approx(4.0 - 0.02)


def test_the_manifest_names_the_configuration_and_the_code_of_this_start(run_dir, checkpoint, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print()")
    with Recorder(run_dir, run="r") as recorder:
        recorder.describe({"lr": 1}, script=script)
        recorder._metadata.close()  # the look-ups are done
        with recorder.saving(checkpoint, 1):
            write(checkpoint, a=b"a")
    found = read(checkpoint)
    assert found.script_sha256 == hashlib.sha256(b"print()").hexdigest()
    configs = [event["data"]["values"] for event in events(run_dir, "metadata") if event["data"]["section"] == "config"]
    assert found.config_sha256 == configs[0]["config_sha256"]


def test_a_save_that_raises_has_failed_and_the_exception_passes(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with pytest.raises(ZeroDivisionError), recorder.saving(checkpoint, 1) as save:
            write(checkpoint, half=b"h")
            raise ZeroDivisionError("disk full")
        assert save.has_ended and save.wait(0)
    assert states(run_dir) == ["begun", "failed"]
    assert events(run_dir)[-1]["data"]["reason"] == "ZeroDivisionError: disk full"
    assert sorted(os.listdir(checkpoint)) == ["half"]


def test_an_async_save_lets_training_go_on_and_is_persisted_from_another_thread(run_dir, checkpoint):
    clock = ManualClock()
    with Recorder(run_dir, run="r", clock=clock) as recorder:
        with recorder.saving(checkpoint, 1, is_async=True) as save:
            clock.advance(2)
        clock.advance(1)
        save.staged()
        assert not (checkpoint / manifest.NAME).exists()
        write(checkpoint, a=b"a")
        clock.advance(4)
        thread = threading.Thread(target=save.persisted)
        thread.start()
        thread.join()
        save.persisted()  # once is enough
        assert save.wait(WAIT_S)
    assert states(run_dir) == ["begun", "staged", "persisted", "manifest"]
    timing = assert_true(checkpoint).timing
    assert (timing.blocked_s, timing.staged_s, timing.persisted_s, timing.is_async) == (2, 3, 7, True)


@pytest.mark.parametrize(("outcome", "last"), [(None, "manifest"), (OSError("gone"), "failed"), ("cancel", "failed")])
def test_a_save_follows_a_future(run_dir, checkpoint, outcome, last):
    with Recorder(run_dir, run="r") as recorder:
        future = concurrent.futures.Future()
        with recorder.saving(checkpoint, 1) as save:
            save.follow(future)
        assert states(run_dir) == ["begun", "staged"]
        write(checkpoint, a=b"a")
        if outcome is None:
            future.set_result(None)
        elif outcome == "cancel":
            future.cancel()
        else:
            future.set_exception(outcome)
        assert save.wait(WAIT_S)
    assert states(run_dir)[-1] == last


class Late(concurrent.futures.Future):
    """Done, and its callbacks have not run yet: whoever waits for a future is woken before they do."""

    def add_done_callback(self, function):
        pass


def test_a_future_that_is_done_counts_before_its_callbacks_have_run(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        futures = [Late(), Late()]
        for step, future in enumerate(futures):
            with recorder.saving(f"{checkpoint}-{step}", step) as save:
                save.follow(future)
                write(checkpoint.with_name(f"{checkpoint.name}-{step}"), a=b"a")
            future.set_result(None)
        assert save.wait(WAIT_S)  # the other one is seen at the end
    assert states(run_dir).count("manifest") == 2 and "failed" not in states(run_dir)


class Response:
    """What dcp.async_save returns with an asynchronous stager."""

    def __init__(self):
        self.staging_completion = concurrent.futures.Future()
        self.upload_completion = concurrent.futures.Future()


def test_a_save_follows_both_futures_of_an_asynchronous_stager(run_dir, checkpoint):
    response = Response()
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            save.follow(response)
        assert states(run_dir) == ["begun"]
        response.staging_completion.set_result(None)
        assert states(run_dir) == ["begun", "staged"]
        write(checkpoint, a=b"a")
        response.upload_completion.set_result(None)
        assert save.wait(WAIT_S)
    assert states(run_dir) == ["begun", "staged", "persisted", "manifest"]


def test_an_async_save_that_is_never_finished_is_told_at_the_end(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 1, is_async=True) as save:
            write(checkpoint, a=b"a")
        save.staged()
    assert states(run_dir) == ["begun", "staged", "failed"]
    assert "not finished when the trainer ended" in events(run_dir)[-1]["text"]
    assert os.listdir(checkpoint) == ["a"]


def test_a_manifest_of_an_earlier_save_goes_away_before_the_first_byte_is_written(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
        assert save.wait(WAIT_S)
        (checkpoint / manifest.rank_name(5)).write_text("{}")  # of a larger world
        with recorder.saving(checkpoint, 1) as save:
            assert os.listdir(checkpoint) == ["a"]
            write(checkpoint, a=b"b")
        assert save.wait(WAIT_S)
    assert_true(checkpoint)


def test_a_checkpoint_that_is_one_file_has_its_manifest_beside_it(run_dir, tmp_path):
    path = tmp_path / "last.ckpt"
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(path, 1) as save:
            path.write_bytes(b"x" * 5000)
        assert save.wait(WAIT_S)
        assert [file.path for file in assert_true(path).files] == ["last.ckpt"]
        with recorder.saving(path, 2):
            assert not (tmp_path / "last.ckpt.ckpt_manifest.json").exists()
            path.write_bytes(b"y" * 5000)
    assert assert_true(path).step == 2


def test_two_saves_at_once_get_a_manifest_each(run_dir, tmp_path):
    with Recorder(run_dir, run="r") as recorder:
        first = recorder.saving(tmp_path / "one", 1, is_async=True)
        second = recorder.saving(tmp_path / "two", 2, is_async=True)
        write(tmp_path / "two", b=b"2")
        second.persisted()
        write(tmp_path / "one", a=b"1")
        first.persisted()
        assert first.wait(WAIT_S) and second.wait(WAIT_S)
    assert (assert_true(tmp_path / "one").step, assert_true(tmp_path / "two").step) == (1, 2)


def test_unfinished_growing_and_foreign_files_are_in_no_manifest(run_dir, checkpoint, tmp_path):
    (tmp_path.parent / "secret").write_bytes(b"s")
    (tmp_path / "blob").write_bytes(b"shared")
    with Recorder(run_dir, run="r") as recorder, recorder.saving(checkpoint, 1):
        write(checkpoint, a=b"a", x__tmp=b"t", train__log=b"l")
        (checkpoint / ".tmpabc").write_bytes(b"t")
        os.mkfifo(checkpoint / "fifo")
        (checkpoint / "out").symlink_to(tmp_path.parent / "secret")
        (checkpoint / "in").symlink_to(tmp_path / "blob")
        (checkpoint / "gone").symlink_to(tmp_path / "nothing")
        (checkpoint / "deep").mkdir()
        (checkpoint / "deep" / "b").write_bytes(b"b")
    assert [file.path for file in read(checkpoint).files] == ["a", "deep/b", "in"]


HOSTILE = [b"a\xff.bin", "ü.bin".encode(), b"new\nline", b'quo"te', b"-rf", b" ", b"a" * 250]


def test_names_of_any_bytes_come_through(run_dir, tmp_path):
    checkpoint = tmp_path / os.fsdecode(b"ckpt\xff-10")
    with Recorder(run_dir, run="r") as recorder, recorder.saving(checkpoint, 1):
        checkpoint.mkdir()
        for name in HOSTILE:
            (checkpoint / os.fsdecode(name)).write_bytes(name)
    assert {file.path for file in assert_true(checkpoint).files} == {os.fsdecode(name) for name in HOSTILE}
    assert events(run_dir)[0]["data"]["path"] == str(tmp_path / "ckpt\\udcff-10")


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    __fspath__ = __float__ = __iter__ = __bool__ = __eq__ = __str__
    __hash__ = None


@pytest.mark.parametrize("path", [None, 5, "", b"\xff", "a\0b", Hostile(), [], "x" * 5000, "/proc/self/nothing", "s3://bucket/x"])
def test_whatever_is_given_as_a_path_nothing_raises(run_dir, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(path, Hostile(), is_async=Hostile(), ranks=Hostile(), files=Hostile()):
            pass
        with recorder.saving(path, 1) as save:
            pass
        save.staged()
        save.persisted()
        save.failed(Hostile())
        save.follow(Hostile())
        assert save.wait(WAIT_S)
        recorder.deleted(path)
        recorder.copied(path, path, Hostile())
        recorder.resumed(1, path=path)
    assert (run_dir / "metrics.rank00000.jsonl").exists()


def test_facts_that_cannot_be_used_are_counted_and_the_manifest_comes_without_them(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        facts = {"has_rng": "yes", "parallel": {"tp": Hostile(), "pp": 2}, "nonsense": 1, "keep": Hostile(), "trainer": 5}
        with recorder.saving(checkpoint, 1, has_optimizer=True, **facts):
            write(checkpoint, a=b"a")
        assert recorder.errors == 2
    found = read(checkpoint)
    assert (found.has_optimizer, found.has_rng, found.parallel, found.trainer) == (True, None, {"pp": 2}, "5")


def test_a_checkpoint_that_is_not_there_gets_no_manifest_and_that_is_told(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            pass
        assert save.wait(WAIT_S)
    assert states(run_dir) == ["begun", "persisted", "deleted"]


def test_an_empty_directory_gets_no_manifest_and_that_is_told(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder, recorder.saving(checkpoint, 1):
        checkpoint.mkdir()
    assert os.listdir(checkpoint) == []
    assert events(run_dir)[-1]["data"]["reason"] == "there are no files in it"


def test_the_directory_keeps_its_own_time_because_trainers_rotate_by_it(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 1) as save:
            write(checkpoint, a=b"a")
            os.utime(checkpoint, ns=(10**18, 10**18))
        assert save.wait(WAIT_S)
    assert (checkpoint / manifest.NAME).exists() and checkpoint.stat().st_mtime_ns == 10**18


def test_without_xxhash_the_standard_library_hashes(run_dir, checkpoint, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    with Recorder(run_dir, run="r") as recorder, recorder.saving(checkpoint, 1):
        write(checkpoint, a=b"a")
    assert read(checkpoint).algorithm == "sha256"
    assert_true(checkpoint)


def test_a_step_that_nobody_told_gets_no_manifest(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint):
            write(checkpoint, a=b"a")
        assert recorder.errors == 1
    assert os.listdir(checkpoint) == ["a"]


def test_saves_after_close_are_counted_and_write_nothing(run_dir, checkpoint):
    recorder = Recorder(run_dir, run="r")
    recorder.close()
    with recorder.saving(checkpoint, 1):
        write(checkpoint, a=b"a")
    assert recorder.errors >= 1 and os.listdir(checkpoint) == ["a"]


def test_a_manifest_beside_a_file_that_was_deleted_goes_with_the_next_save(run_dir, tmp_path):
    with Recorder(run_dir, run="r") as recorder:
        for step in (1, 2):
            path = tmp_path / f"step={step}.ckpt"
            with recorder.saving(path, step) as save:
                path.write_bytes(b"x")
            assert save.wait(WAIT_S)
        (tmp_path / "step=1.ckpt").unlink()
        with recorder.saving(tmp_path / "step=3.ckpt", 3):
            (tmp_path / "step=3.ckpt").write_bytes(b"x")
    names = sorted(path.name for path in tmp_path.iterdir() if "step" in path.name)
    assert names == [f"step={step}.ckpt{more}" for step in (2, 3) for more in ("", ".ckpt_manifest.json")]
    assert_true(tmp_path / "step=2.ckpt")


def test_numbers_of_the_manifest_are_those_of_its_step_also_when_later_steps_were_logged(run_dir, checkpoint):
    with Recorder(run_dir, run="r") as recorder:
        recorder.log(1, loss=5.0)
        save = recorder.saving(checkpoint, 2, is_async=True)
        recorder.log(2, loss=4.0, lr=0.1)  # a step that waited for the device
        write(checkpoint, a=b"a")
        for step in range(3, 30):
            recorder.log(step, loss=1.0)
        save.persisted()
    found = read(checkpoint)
    assert (found.loss, found.lr) == (4.0, 0.1)
    assert found.loss_ema == pytest.approx(5.0 - 0.02)
