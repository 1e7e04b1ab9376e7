import dcp_makers
import large_run_makers as make
import pytest

from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.files import listing
from trainvitals.checkpoints.layouts import layout_of


def states(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("sharded", [True, False])
def test_a_whole_checkpoint_of_accelerate_is_verified(tmp_path, sharded):
    directory = dcp_makers.write(tmp_path / "checkpoint_3", make.accelerate(sharded=sharded))
    assert find(str(tmp_path)) == [str(directory)]
    report = inspect(str(directory))
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "accelerate", None)
    assert (report.has_optimizer, report.has_rng, report.has_scheduler, report.has_data_position) == (True, True, True, True)
    assert (report.world_size, report.reasons) == (2, ())
    assert inspect(str(dcp_makers.write(tmp_path / "step_500", make.accelerate()))).step == 500


@pytest.mark.parametrize("made", ["accelerate", "huggingface_fsdp", "huggingface_deepspeed"])
def test_each_file_that_is_missing_or_cut_short_is_noticed(tmp_path, made):
    files = getattr(make, made)()
    name = "checkpoint_1" if made == "accelerate" else "checkpoint-500"
    whole = inspect(str(dcp_makers.write(tmp_path / name, files)))
    assert (whole.state, whole.has_optimizer, whole.reasons) == ("verified", True, ())
    # Not every run has one, or (the last two) DeepSpeed's directory holds the same.
    spare = ("scheduler.bin", "sampler.bin", "latest", "config.json", "training_args.bin", "model.safetensors", "scheduler.pt")
    for number, (file, content) in enumerate(files.items()):
        if file not in spare:
            left = {other: kept for other, kept in files.items() if other != file}
            assert states(dcp_makers.write(tmp_path / f"{number}" / name, left))[0] == "incomplete", file
        if file != "latest":
            cut = files | {file: content[: len(content) // 2]}
            assert states(dcp_makers.write(tmp_path / f"{number}cut" / name, cut))[0] == "corrupt", file


@pytest.mark.parametrize(("made", "ranks"), [("huggingface_fsdp", 2), ("huggingface_deepspeed", 4)])
def test_what_fsdp_and_deepspeed_put_into_a_checkpoint_of_the_trainer_is_looked_into(tmp_path, made, ranks):
    (path,) = find(str(dcp_makers.write(tmp_path / "checkpoint-500", getattr(make, made)()).parent))
    report = inspect(path)
    assert (report.format, report.state, report.step, report.world_size) == ("huggingface", "verified", 500, ranks)
    assert (report.has_optimizer, report.has_rng, report.has_scheduler) == (True, True, True)
    layout = layout_of(listing(path))
    assert layout is not None
    assert bool(layout.ranges(listing(path))) is (made == "huggingface_fsdp")
