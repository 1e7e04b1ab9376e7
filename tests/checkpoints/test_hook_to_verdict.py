"""What the hook writes is what the verifier proves: one road from a save in the trainer to level content."""

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.checkpoints import inspect
from trainvitals.checkpoints.copy_check import compare
from trainvitals.checkpoints.hashes import Pace
from trainvitals.clock import SystemClock
from trainvitals.hook import Recorder


def saved(tmp_path, path, write):
    """Save once with the hook, and wait for the thread that hashes."""
    with Recorder(tmp_path / "run", run="r") as recorder:
        recorder.log(500, loss=2.5)
        with recorder.saving(path, 500, has_optimizer=True) as save:
            write()
        assert save.wait(30.0)


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_the_hook_saved_is_proven_by_its_manifest_and_a_changed_bit_is_not(tmp_path, kind):
    path = tmp_path / "c" / ("checkpoint-500" if kind == "directory" else "step_500.safetensors")
    path.parent.mkdir()
    if kind == "directory":
        saved(tmp_path, path, lambda: make.huggingface(path.parent, 500))
    else:
        saved(tmp_path, path, lambda: path.write_bytes(make.safetensors_bytes({"w": ("F32", (8, 4))})))
    report = inspect(str(path), "content")
    assert (report.state, report.level, report.proof) == ("verified", "content", "manifest"), report
    assert report.reasons == ()
    file = path / "model.safetensors" if kind == "directory" else path
    file.write_bytes(made.flipped(file.read_bytes(), file.stat().st_size - 1))
    assert inspect(str(path), "content").state == "corrupt"


def test_a_copy_of_what_the_hook_saved_is_compared_with_its_manifest(tmp_path):
    import shutil

    path = tmp_path / "local" / "checkpoint-500"
    path.parent.mkdir()
    saved(tmp_path, path, lambda: make.huggingface(path.parent, 500))
    shutil.copytree(path, tmp_path / "shared")
    result = compare(str(path), str(tmp_path / "shared"), Pace(SystemClock()))
    assert (result.is_equal, result.by) == (True, "manifest")
