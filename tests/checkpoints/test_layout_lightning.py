"""Lightning and NeMo: what names, keys and markers tell."""

import gzip

import checkpoint_makers
import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import CheckpointWatcher, inspect, tar_file
from trainvitals.checkpoints.files import opened
from trainvitals.clock import ManualClock

NAME = "megatron_gpt--val_loss=2.51-step=500-consumed_samples=4000.0-last"


def only(directory, parts):
    make.write(directory, parts)
    return inspect(str(directory / next(iter(parts))))


def test_what_is_in_a_lightning_file_is_told_from_its_keys(tmp_path):
    report = only(tmp_path, make.lightning())
    assert (report.has_optimizer, report.has_scheduler, report.has_data_position, report.has_rng) == (True, True, True, False)
    assert (str(report.state), report.step) == ("verified", 500)


def test_a_lightning_file_of_weights_only_has_no_optimizer_and_is_still_verified(tmp_path):
    report = only(tmp_path, make.lightning(optimizer=False))
    assert (str(report.state), report.has_optimizer) == ("verified", False)


@pytest.mark.parametrize("name", ["last.ckpt", "hpc_ckpt_3.ckpt", "last-v2.ckpt"])
def test_the_step_of_a_lightning_file_without_one_in_its_name_is_read_inside(tmp_path, name):
    report = only(tmp_path, {name: make.lightning_file(700)})
    assert (report.format, report.step, str(report.state)) == ("lightning", 700, "verified")


def test_a_step_that_differs_from_the_name_is_not_verified_and_says_both(tmp_path):
    report = only(tmp_path, {"epoch=1-step=500.ckpt": make.lightning_file(400)})
    assert (str(report.state), report.step) == ("complete", 400)
    assert "step 400" in report.reasons[0]
    assert "500" in report.reasons[0]


def test_a_lightning_file_without_weights_is_corrupt(tmp_path):
    state = {name: value for name, value in make.lightning_state(5).items() if name != "state_dict"}
    report = only(tmp_path, {"last.ckpt": checkpoint_makers.torch_zip_bytes(state)})
    assert str(report.state) == "corrupt"
    assert "no model weights" in report.reasons[0]


def test_a_file_of_another_maker_under_lightnings_name_is_not_accused(tmp_path):
    report = only(tmp_path, {"epoch=1-step=500.ckpt": checkpoint_makers.torch_zip_bytes({"weights": {}})})
    assert str(report.state) == "verified"
    assert "lacks the keys" in report.reasons[0]


@pytest.mark.parametrize("gone", ["meta.pt", ".metadata", "__1_0.distcp"])
def test_a_sharded_lightning_checkpoint_without_a_part_is_incomplete(tmp_path, gone):
    directory = make.write(tmp_path / "epoch=1-step=500.ckpt", make.lightning_sharded())
    assert str(inspect(str(directory)).state) == "verified"
    (directory / gone).unlink()
    report = inspect(str(directory))
    assert (report.format, str(report.state)) == ("lightning", "incomplete")
    assert gone in " ".join(report.reasons)


@pytest.mark.parametrize("name", [f"{NAME}.ckpt", "gpt.nemo", "last.ckpt"])
def test_nemos_marker_beside_a_file_means_unfinished(tmp_path, name):
    content = make.nemo_tar() if name.endswith(".nemo") else make.lightning_file(500)
    (tmp_path / name).write_bytes(content)
    marker = tmp_path / (name.rpartition(".")[0] + "-unfinished")
    assert str(inspect(str(tmp_path / name)).state) == "verified"
    marker.touch()
    report = inspect(str(tmp_path / name))
    assert (report.format, str(report.state)) == ("nemo", "incomplete")
    assert marker.name in report.reasons[0]


def test_the_watcher_calls_a_marked_checkpoint_writing_and_looks_again_when_the_marker_goes(tmp_path):
    make.write(tmp_path / NAME, make.nemo2())
    marker = tmp_path / f"{NAME}-unfinished"
    marker.touch()
    clock = ManualClock()
    watcher = CheckpointWatcher([str(tmp_path)], clock)

    def scan():
        clock.advance(10.0)
        watcher.scan()
        return [str(report.state) for report in watcher.reports]

    assert scan() == ["writing"]
    assert scan() == ["writing"]
    marker.unlink()
    assert scan() == ["complete"]
    assert scan() == ["verified"]
    # And set again before it is deleted.
    marker.touch()
    states = scan() + scan()
    for file in sorted((tmp_path / NAME).rglob("*")):
        if file.is_file():
            file.unlink()
            states += scan()
    assert not set(states) & {"corrupt", "incomplete"}


def test_the_marker_of_the_original_counts_for_its_averaged_copy(tmp_path):
    (tmp_path / f"{NAME}-EMA.ckpt").write_bytes(make.lightning_file(500))
    (tmp_path / f"{NAME}-unfinished").touch()
    assert str(inspect(str(tmp_path / f"{NAME}-EMA.ckpt")).state) == "incomplete"


def test_a_nemo_directory_needs_the_files_of_megatron_core(tmp_path):
    common = {"weights/common.pt": checkpoint_makers.torch_zip_bytes()}
    directory = make.write(tmp_path / NAME, make.nemo2() | common)
    assert str(inspect(str(directory)).state) == "verified"
    (directory / "weights" / "metadata.json").unlink()
    report = inspect(str(directory))
    assert (report.format, str(report.state)) == ("nemo", "incomplete")
    assert "weights/" in report.reasons[0]


def test_a_tar_file_is_checked_to_its_end(tmp_path):
    content = make.nemo_tar()
    end = -(-len(content.rstrip(b"\0")) // 512) * 512
    path = tmp_path / "a.nemo"
    for kept in (*range(0, len(content), 512), 1, 700):
        path.write_bytes(content[:kept])
        state = str(inspect(str(path)).state)
        # Python's tarfile fills up to 10,240 bytes; the first empty block ends it.
        assert state == ("verified" if kept > end else "corrupt"), kept
    path.write_bytes(content.replace(b"model_config", b"model_konfig", 1))
    assert "checksum" in inspect(str(path)).reasons[0]
    path.write_bytes(gzip.compress(content))
    assert str(inspect(str(path)).state) == "complete"


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=3000), at=st.integers(0, 3000), length=st.integers(0, 40))
def test_no_bytes_make_the_tar_reader_raise_anything_else(tmp_path_factory, data, at, length):
    path = tmp_path_factory.mktemp("tar") / "x"
    content = make.nemo_tar()
    for raw in (data, content[:at] + data[:length] + content[at + length :]):
        path.write_bytes(raw)
        with opened(str(path)) as reader:
            try:
                tar_file.check(reader)
            except tar_file.BadTar as error:
                assert str(error).isprintable()


def test_what_deepspeed_saved_for_lightning_is_checked_as_deepspeeds(tmp_path):
    files = {
        "checkpoint/mp_rank_00_model_states.pt": checkpoint_makers.torch_zip_bytes(),
        **{
            f"checkpoint/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt": checkpoint_makers.torch_zip_bytes()
            for rank in range(2)
        },
        "latest": b"checkpoint",
        "zero_to_fp32.py": b"",
    }
    directory = make.write(tmp_path / "epoch=1-step=500.ckpt", files)
    report = inspect(str(directory))
    assert (report.format, report.step, report.has_optimizer) == ("lightning", 500, True)
    assert str(report.state) == "verified", report.reasons
    for gone, told in (("checkpoint/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "checkpoint/"), ("latest", "latest")):
        (directory / gone).unlink()
        report = inspect(str(directory))
        assert (report.format, str(report.state)) == ("lightning", "incomplete")
        assert told in " ".join(report.reasons)


def test_files_of_ranks_that_say_how_many_there_are_must_all_be_there(tmp_path):
    """verl's FSDP checkpoints."""
    parts = {
        f"actor/{kind}_world_size_4_rank_{rank}.pt": checkpoint_makers.torch_zip_bytes()
        for kind in ("model", "optim", "extra_state")
        for rank in range(4)
    }
    directory = make.write(tmp_path / "global_step_50", parts)
    report = inspect(str(directory))
    assert (report.format, report.step, report.world_size, report.has_optimizer, str(report.state)) == (
        "torch",
        50,
        4,
        True,
        "verified",
    )
    (directory / "actor/optim_world_size_4_rank_2.pt").unlink()
    report = inspect(str(directory), "presence")
    assert (str(report.state), "optim_world_size_4_rank_2.pt" in report.reasons[0]) == ("incomplete", True)
