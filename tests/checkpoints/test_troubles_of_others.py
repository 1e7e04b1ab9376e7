"""Troubles that others had, made anew: a save that was advertised before it was whole, a pointer that stayed behind, a full disk.

KempnerInstitute/KempnerForge issue 102, AI-Hypercomputer/maxtext pull request 5260; verl-project/verl issue 7952,
NVIDIA-NeMo/Automodel pull request 3390; ultralytics/ultralytics issue 5793, Lightning-AI/pytorch-lightning issue 688.
"""

import json
import os

import checkpoint_makers as make
import dcp_makers as dcp
import pytest

from trainvitals.__main__ import main
from trainvitals.checkpoints import CheckpointWatcher, inspect
from trainvitals.checkpoints.resume_choice import choose_all
from trainvitals.clock import ManualClock
from trainvitals.incidents.rollback import RollbackInputs, recommend
from trainvitals.records import CheckpointState


def looked_at(directory, seconds=120):
    """What a watcher knows after a while."""
    clock = ManualClock()
    watcher = CheckpointWatcher([str(directory)], clock)
    for _ in range(seconds // 10):
        clock.advance(10)
        watcher.scan()
    return watcher.reports


def died_in_its_save(directory):
    """A whole save, and one that ``latest`` names already although half of a shard is there."""
    dcp.torchtitan(directory, 100, modified_s=1_000)
    late = dcp.torchtitan(directory, 200, modified_s=2_000)
    (late / ".metadata").unlink()
    shard = late / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:40])
    os.utime(shard, (2_001, 2_001))
    (directory / "latest").symlink_to("step-200")


def test_a_save_that_was_advertised_before_it_was_whole_is_never_offered_and_its_pointer_is_a_problem(tmp_path):
    died_in_its_save(tmp_path)
    reports = looked_at(tmp_path)
    states = {report.step: report.state for report in reports}
    assert states == {100: CheckpointState.VERIFIED, 200: CheckpointState.INCOMPLETE}
    back = recommend(RollbackInputs(reports))
    assert back.checkpoint is not None and back.checkpoint.step == 100
    (choice,) = choose_all(reports)
    assert choice.step == 200 and "step 100" in choice.problem and "incomplete" in choice.problem


def test_the_command_tells_a_person_before_a_restart(tmp_path, capsys):
    died_in_its_save(tmp_path)
    assert main(["checkpoint", "verify", str(tmp_path), "--json"]) == 1
    told = {one["step"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (told[100]["state"], told[200]["state"]) == ("verified", "incomplete")
    main(["checkpoint", "list", str(tmp_path)])
    assert "newest complete is step 100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        (None, "so a restart would begin at step 0, although step 69,999 is complete here"),
        ("59999", "says step 59,999, newest complete is step 69,999"),
        ("", "step 69,999 is complete here"),
    ],
)
def test_a_pointer_that_is_behind_empty_or_not_there_is_told_with_both_steps(tmp_path, pointer, expected):
    for number, step in enumerate((59_999, 69_999)):
        place = tmp_path / f"global_step_{step}" / "actor"
        place.mkdir(parents=True)
        for rank in range(2):
            file = place / f"model_world_size_2_rank_{rank}.pt"
            file.write_bytes(make.torch_zip_bytes())
            os.utime(file, (1_000 + number, 1_000 + number))
    if pointer is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(pointer)
    (choice,) = choose_all(looked_at(tmp_path))
    assert expected in choice.problem
    assert len(looked_at(tmp_path)) == 2


def test_files_of_a_full_disk_are_corrupt_without_being_loaded_and_the_one_before_is_recommended(tmp_path):
    make.huggingface(tmp_path, 100, modified_s=1_000)
    late = make.huggingface(tmp_path, 200, modified_s=2_000)
    (late / "optimizer.pt").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 4)
    (late / "scheduler.pt").write_bytes(b"")
    report = inspect(str(late))
    assert report.state is CheckpointState.CORRUPT
    assert any("optimizer.pt: truncated" in reason for reason in report.reasons)
    assert any("scheduler.pt is empty" in reason for reason in report.reasons)
    back = recommend(RollbackInputs(looked_at(tmp_path)))
    assert back.checkpoint is not None and back.checkpoint.step == 100
