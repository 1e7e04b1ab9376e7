"""A number in a name is a step only where the name says so; and a loop may count otherwise than its trainer."""

import checkpoint_makers as make
import content_makers as made
import dcp_makers as dcp
import pytest

from trainvitals.checkpoints import inspect
from trainvitals.checkpoints.parts import likely_step, said_step

NO_STEPS = ["epoch_3.pt", "checkpoint_epoch_10.pth", "epoch=3.ckpt", "ckpt-3.pt", "iter_99.pt", "2024-01-05.pt", "model_7.bin"]


@pytest.mark.parametrize("name", NO_STEPS)
@pytest.mark.parametrize("state", [{"state": {}}, {"epoch": 3}, {"step": 3000}])
def test_a_file_named_by_an_epoch_a_counter_or_a_date_is_as_good_as_its_manifest_says(tmp_path, name, state):
    path = tmp_path / name
    path.write_bytes(make.torch_zip_bytes(state))
    made.write_manifest(path, 3000)
    structure, content = inspect(str(path)), inspect(str(path), "content")
    assert (structure.state, structure.step) == ("verified", 3000)
    assert (content.state, content.level, content.proof, content.step) == ("verified", "content", "manifest", 3000)


@pytest.mark.parametrize("name", ["epoch-5", "epoch_3", "ckpt-4"])
def test_so_is_a_directory(tmp_path, name):
    directory = dcp.write(tmp_path / name, dcp.parts({"model.w": 64}))
    made.write_manifest(directory, 3000)
    assert (inspect(str(directory)).state, inspect(str(directory), "content").level) == ("verified", "content")
    assert inspect(str(directory)).step == 3000


def test_a_loop_that_counts_one_more_than_its_trainer_is_told_and_no_damage(tmp_path):
    directory = make.huggingface(tmp_path, 2999)
    made.write_manifest(directory, 3000)
    report = inspect(str(directory))
    assert (report.state, report.step) == ("verified", 2999)
    assert report.reasons == ("ckpt_manifest.json is of step 3000, the checkpoint is of step 2999",)


def test_a_manifest_of_quite_another_step_needs_its_hashes(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    made.write_manifest(directory, 8000)
    structure, content = inspect(str(directory)), inspect(str(directory), "content")
    assert (structure.state, content.state, content.proof) == ("complete", "verified", "manifest")
    assert "ckpt_manifest.json is of step 8000, the checkpoint is of step 500" in content.reasons
    file = directory / "model.safetensors"
    file.write_bytes(made.flipped(file.read_bytes(), file.stat().st_size - 1))
    assert inspect(str(directory), "content").state == "corrupt"


def test_a_copy_under_the_name_of_another_step_is_told(tmp_path):
    path = tmp_path / "step_500.pt"
    path.write_bytes(make.torch_zip_bytes({"step": 300}))
    report = inspect(str(path))
    assert (report.state, report.step) == ("verified", 500)
    assert "its state holds step 300, its name says 500" in report.reasons[0]


@pytest.mark.parametrize(
    ("name", "likely", "said"),
    [("step_500.pt", 500, 500), ("iter_0000500", 500, 500), ("checkpoint-500", 500, None), ("epoch=1-step=500.ckpt", 500, 500),
     ("epoch_3.pt", None, None), ("ep1-ba500-rank0.pt", 500, 500), ("2024-01-05", None, None), ("model_500.pt", 500, None),
     ("deep-3", 3, None)],
)  # fmt: skip
def test_numbers_of_names(name, likely, said):
    assert likely_step(name) == likely
    assert said_step(name) == said
