"""Saves of several ranks, copies of checkpoints, and starts from one: what is compared with a manifest."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hook.save_readers import WAIT_S, assert_true, events, read, states, write
from trainvitals import manifest
from trainvitals.hook import Recorder, manifest_job
from trainvitals.hook.checkpoint_files import named, rank_of
from trainvitals.hook.saves import Saves


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint-10"


def ranks_of(run_dir, count, **more):
    return [Recorder(run_dir, run="r", rank=rank, world_size=count, **more) for rank in range(count)]


def test_each_rank_hashes_what_it_wrote_and_rank_0_the_rest(run_dir, checkpoint):
    recorders = ranks_of(run_dir, 3)
    saves = [recorder.saving(checkpoint, 10) for recorder in recorders]
    for rank in (2, 0, 1):
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / f"__{rank}_0.distcp").write_bytes(b"%d" % rank)
        if rank == 0:
            (checkpoint / ".metadata").write_bytes(b"m")
    for save in saves:
        save.persisted()
    assert all(save.wait(WAIT_S) for save in saves)
    for recorder in recorders:
        recorder.close()
    found = assert_true(checkpoint)
    assert {file.path: file.rank for file in found.files} == {
        ".metadata": 0, "__0_0.distcp": 0, "__1_0.distcp": 1, "__2_0.distcp": 2,
    }  # fmt: skip
    assert (found.ranks, found.world_size, found.is_whole) == ((0, 1, 2), 3, True)
    assert states(run_dir) == ["begun", "persisted", "manifest"]
    assert states(run_dir, rank=1) == states(run_dir, rank=2) == []


def test_ranks_may_say_which_files_are_theirs(run_dir, checkpoint):
    recorders = ranks_of(run_dir, 2)
    one = recorders[1].saving(checkpoint, 10, files=["b.bin", checkpoint / "sub" / "c.bin", "../outside", "/etc/passwd"])
    zero = recorders[0].saving(checkpoint, 10)
    write(checkpoint, a__bin=b"a", b__bin=b"b")
    (checkpoint / "sub").mkdir()
    (checkpoint / "sub" / "c.bin").write_bytes(b"c")
    one.persisted()
    zero.persisted()
    assert zero.wait(WAIT_S)
    for recorder in recorders:
        recorder.close()
    assert {file.path: file.rank for file in assert_true(checkpoint).files} == {"a.bin": 0, "b.bin": 1, "sub/c.bin": 1}


def test_a_rank_that_never_comes_is_named_and_no_merged_manifest_is_written(run_dir, checkpoint, monkeypatch):
    monkeypatch.setattr(manifest_job, "PARTS_WAIT_S", 0.0)
    recorders = ranks_of(run_dir, 3)
    saves = [recorder.saving(checkpoint, 10) for recorder in recorders[:2]]
    write(checkpoint, a=b"a")
    saves[1].persisted()
    saves[1].wait(WAIT_S)
    saves[0].persisted()
    assert saves[0].wait(WAIT_S)
    for recorder in recorders:
        recorder.close()
    told = events(run_dir)[-1]["data"]
    assert (told["state"], told["is_written"], told["ranks_missing"]) == ("manifest", False, [2])
    assert sorted(os.listdir(checkpoint)) == ["a", manifest.rank_name(0), manifest.rank_name(1)]


def test_a_part_of_an_earlier_launch_is_not_taken(run_dir, checkpoint, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    checkpoint.mkdir()
    (checkpoint / "__1_0.distcp").write_bytes(b"old")
    before = Recorder(run_dir, run="r", rank=1, world_size=2)
    with before.saving(checkpoint, 10) as save:
        pass
    save.wait(WAIT_S)
    before.close()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setattr(manifest_job, "PARTS_WAIT_S", 0.0)
    with Recorder(run_dir, run="r", world_size=2) as recorder, recorder.saving(checkpoint, 10):
        (checkpoint / "__0_0.distcp").write_bytes(b"new")
    assert events(run_dir)[-1]["data"]["ranks_missing"] == [1]


def test_ranks_with_other_hashes_are_hashed_again_by_rank_0(run_dir, checkpoint, monkeypatch):
    recorders = ranks_of(run_dir, 2)
    one = recorders[1].saving(checkpoint, 10)
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    zero = recorders[0].saving(checkpoint, 10)
    checkpoint.mkdir()
    (checkpoint / "__1_0.distcp").write_bytes(b"1")
    one.persisted()
    zero.persisted()
    assert zero.wait(WAIT_S)
    for recorder in recorders:
        recorder.close()
    assert {file.path: file.rank for file in assert_true(checkpoint).files} == {"__1_0.distcp": 0}


def test_a_rank_without_a_file_of_its_own_writes_its_part(run_dir, checkpoint):
    other = Saves("r", rank=1, world_size=2)
    with Recorder(run_dir, run="r", world_size=2) as recorder:
        theirs = other.begin(checkpoint, 10)
        with recorder.saving(checkpoint, 10) as save:
            write(checkpoint, a=b"a")
            (checkpoint / "rng_state_1.pth").write_bytes(b"r")
        theirs.persisted()
        assert save.wait(WAIT_S)
    other.close()
    assert {file.path: file.rank for file in assert_true(checkpoint).files} == {"a": 0, "rng_state_1.pth": 1}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("__3_0.distcp", 3), ("optimizer_0/__3_1.distcp", 3), ("rng_state_3.pth", 3), ("rng_state.pth", None),
        ("random_states_3.pkl", 3), ("train/rank3.pt", 3), ("ep0-ba10-rank3.pt", 3), ("state_00000010_00003.bin", 3),
        ("items/ocdbt.process_3/d/abc", 3), ("zero_pp_rank_3_mp_rank_00_optim_states.pt", 3), ("mp_rank_03_model_states.pt", None),
        ("zero_pp_rank_3_mp_rank_01_optim_states.pt", None), ("__9_0.distcp", None), ("model.safetensors", None),
    ],
)  # fmt: skip
def test_names_tell_the_rank_that_wrote_a_file(name, rank):
    assert rank_of(name, 8) == rank


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_any_name_has_a_rank_or_none_and_stays_inside(name):
    rank = rank_of(name, 8)
    assert rank is None or 0 <= rank < 8
    if "\0" not in name:
        assert all(not one.startswith("../") for one in named("/checkpoint", [name]))


def test_copies_are_compared_with_the_manifest_of_their_source(run_dir, checkpoint, tmp_path):
    shared, broken = tmp_path / "shared", tmp_path / "broken"
    with Recorder(run_dir, run="r") as recorder:
        with recorder.saving(checkpoint, 10):
            write(checkpoint, a=b"a", b=b"b")
        write(shared, a=b"a", b=b"b")
        write(broken, a=b"a", b=b"B")
        recorder.copied(checkpoint, shared, seconds=1.5)
        recorder.copied(checkpoint, broken)
        recorder.copied(tmp_path / "nothing", shared)
    assert assert_true(shared).timing.copied_to_shared_s == 1.5
    assert sorted(os.listdir(broken)) == ["a", "b"]
    good, bad, none = events(run_dir)[-3:]
    assert good["data"] == {
        "state": "persisted", "path": str(shared), "copy_of": str(checkpoint), "is_equal": True, "files": 2, "bytes": 2,
        "copied_to_shared_s": 1.5,
    }  # fmt: skip
    assert (bad["data"]["state"], bad["data"]["is_equal"], bad["data"]["reasons"]) == ("failed", False, ["b has other bytes"])
    assert (none["data"]["state"], none["data"]["is_written"]) == ("manifest", False) and "no manifest" in none["text"]


def test_a_resume_tells_what_is_as_it_was_when_the_checkpoint_was_saved(run_dir, checkpoint, monkeypatch):
    monkeypatch.setattr(sys, "argv", [__file__])
    with Recorder(run_dir, run="r") as recorder:
        recorder.describe({"lr": 1})
        recorder._metadata.close()
        recorder.log(10, loss=2.5)
        with recorder.saving(checkpoint, 10, has_optimizer=False):
            write(checkpoint, a=b"a", b=b"b")
    (checkpoint / "b").write_bytes(b"longer")
    with Recorder(run_dir, run="r") as recorder:
        recorder.resumed(11, path=checkpoint)
        recorder.describe({"lr": 2})
        recorder._metadata.close()
        with recorder.saving(checkpoint.with_name("checkpoint-20"), 20):
            write(checkpoint.with_name("checkpoint-20"), a=b"a")
    (told,) = [event for event in events(run_dir, "message") if "resume_check" in event["data"]]
    check = told["data"]["resume_check"]
    assert check["step"] == 10 and check["step_is_equal"] is False and check["loss_before"] == 2.5
    assert (check["config_is_equal"], check["script_is_equal"], check["has_optimizer"]) == (False, True, False)
    assert (check["files_missing"], check["files_of_other_size"]) == ([], ["b"])
    assert "no optimizer state" in told["text"] and "the config changed" in told["text"]
    origin = read(checkpoint.with_name("checkpoint-20")).resumed_from
    assert origin == {"step": 11, "path": str(checkpoint), "manifest_sha256": check["manifest_sha256"]}


def test_a_resume_from_a_checkpoint_without_a_manifest_is_told_as_it_was(run_dir, checkpoint):
    write(checkpoint, a=b"a")
    with Recorder(run_dir, run="r") as recorder:
        recorder.resumed(10, checkpoint=checkpoint)
    assert [event["step"] for event in events(run_dir, "resume")] == [10] and events(run_dir, "message") == []


def test_a_manifest_that_cannot_be_used_is_told_at_the_resume(run_dir, checkpoint):
    write(checkpoint, a=b"a")
    (checkpoint / manifest.NAME).write_text('{"schema":99}')
    with Recorder(run_dir, run="r") as recorder:
        recorder.resumed(10, path=checkpoint)
    assert "cannot be used: schema '99'" in events(run_dir, "message")[-1]["text"]
