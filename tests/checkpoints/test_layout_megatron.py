import dcp_makers
import large_run_makers as make
import pytest

from trainvitals.checkpoints import find, inspect


def written(tmp_path, files, name="iter_0000500"):
    return dcp_makers.write(tmp_path / name, files)


def states(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("common", [True, False])
def test_a_whole_torch_dist_checkpoint_is_verified_with_all_that_is_in_it(tmp_path, common):
    directory = written(tmp_path, make.megatron_dist(common=common, integrity=True))
    assert find(str(tmp_path)) == [str(directory)]
    report = inspect(str(directory))
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "megatron_dist", 500)
    assert (report.has_optimizer, report.has_rng, report.world_size, report.reasons) == (True, True, 2, ())
    assert report.has_scheduler is (True if common else None)
    assert report.parallel == ({"tp": 2, "pp": 1, "ep": 1} if common else {})


def test_without_its_last_file_a_torch_dist_save_was_not_finalised(tmp_path):
    directory = written(tmp_path, make.megatron_dist())
    (directory / "metadata.json").unlink()
    state, reasons = states(directory)
    assert state == "incomplete"
    assert "metadata.json is missing" in reasons


def test_fsdp_dtensor_needs_no_metadata_json(tmp_path):
    report = inspect(str(written(tmp_path, make.fsdp_dtensor())))
    assert (report.state, report.format, report.has_optimizer, report.has_rng) == ("verified", "megatron_dist", True, True)
    assert "fsdp_dtensor" in report.reasons[0]


def test_each_file_of_a_torch_dist_checkpoint_cut_short_or_gone_is_noticed(tmp_path):
    for name, content in make.megatron_dist().items():
        for number, kept in enumerate((0, len(content) // 2, len(content) - 1)):
            directory = written(tmp_path / f"{name}{number}", make.megatron_dist())
            (directory / name).write_bytes(content[:kept])
            assert states(directory)[0] == "corrupt", (name, kept)
        directory = written(tmp_path / f"{name}-gone", make.megatron_dist())
        (directory / name).unlink()
        assert states(directory)[0] == ("verified" if name == "common.pt" else "incomplete"), name


def test_an_iteration_inside_that_differs_from_the_directory_is_corrupt(tmp_path):
    state, reasons = states(written(tmp_path, make.megatron_dist(iteration=400)))
    assert state == "corrupt"
    assert "iteration 400" in reasons
    state, reasons = states(written(tmp_path / "old", make.megatron_legacy(iteration=400)))
    assert state == "corrupt"
    assert "iteration 400" in reasons


def test_a_release_directory_is_read_too(tmp_path):
    report = inspect(str(written(tmp_path, make.megatron_dist(iteration=0), "release")))
    assert (report.state, report.format, report.step) == ("verified", "megatron_dist", 0)


@pytest.mark.parametrize("grid", [(1, 1, 1), (4, 1, 1), (2, 3, 1), (2, 1, 2), (2, 2, 2)])
@pytest.mark.parametrize("optimizer", ["distributed", "inside", "layer-wise", "none"])
def test_a_whole_legacy_checkpoint_is_verified_with_all_that_is_in_it(tmp_path, grid, optimizer):
    directory = written(tmp_path, make.megatron_legacy(500, *grid, optimizer))
    assert find(str(tmp_path)) == [str(directory)]
    report = inspect(str(directory))
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "megatron", 500)
    assert report.has_optimizer is (optimizer != "none")
    assert (report.has_rng, report.has_scheduler, report.has_data_position, report.reasons) == (True, True, True, ())
    assert report.parallel == dict(zip(("tp", "pp", "ep"), grid, strict=True))
    assert report.world_size == 2 * grid[0] * grid[1] * grid[2]


@pytest.mark.parametrize("grid", [(1, 1, 1), (4, 1, 1), (2, 3, 1), (2, 1, 2), (2, 2, 2)])
@pytest.mark.parametrize("arguments", [True, False])
def test_the_files_of_any_rank_missing_make_it_incomplete(tmp_path, grid, arguments):
    files = make.megatron_legacy(500, *grid, "distributed", arguments)
    directories = sorted({name.partition("/")[0] for name in files})
    for gone in directories:
        left = {name: content for name, content in files.items() if not name.startswith(gone)}
        if not left or (not arguments and gone == directories[-1] and sum(size > 1 for size in grid) == 1):
            continue  # in a row that names alone describe, the last one is not missed
        state, reasons = states(written(tmp_path / gone, left))
        assert state == "incomplete", gone
        assert "missing" in reasons
    for name in files:
        left = {other: content for other, content in files.items() if other != name}
        if name.endswith("distrib_optim.pt") and len(directories) == 1:
            continue  # without any it is a checkpoint without an optimizer
        expected = {"complete", "incomplete"} if name.endswith("distrib_optim.pt") and grid[2] > 1 else {"incomplete"}
        assert states(written(tmp_path / f"{name}-gone", left))[0] in expected, name


def test_a_grid_of_experts_need_not_be_full_where_tensor_ranks_have_equally_many(tmp_path):
    files = make.megatron_legacy(500, 2, 1, 2, "inside")
    kept = {name: files[name] for name in files if name.startswith(("mp_rank_00_000", "mp_rank_01_001"))}
    directory = written(tmp_path, kept)
    assert states(directory)[0] == "verified"
    assert inspect(str(directory), "presence").state == "complete"


def test_two_saves_mixed_in_one_directory_are_noticed(tmp_path):
    files = make.megatron_legacy() | {
        name: content for name, content in make.megatron_legacy(iteration=400).items() if name.startswith("mp_rank_01_001")
    }
    state, reasons = states(written(tmp_path, files))
    assert state == "corrupt"
    assert "of iteration 400" in reasons
    files = make.megatron_legacy() | make.megatron_legacy(pipeline=1)
    assert states(written(tmp_path / "other", files))[0] == "incomplete"


def test_each_legacy_file_cut_short_is_corrupt(tmp_path):
    files = make.megatron_legacy(pipeline=1)
    for name, content in files.items():
        for number, kept in enumerate((0, len(content) // 2, len(content) - 1)):
            directory = written(tmp_path / f"{name}{number}", files | {name: content[:kept]})
            state, reasons = states(directory)
            assert state == "corrupt", (name, kept)
            assert name in reasons
            assert kept or inspect(str(directory), "presence").state == "corrupt"


def test_numbers_in_names_that_anybody_can_write_cost_nothing(tmp_path):
    files = {f"mp_rank_{tensor}_{pipeline}/model_optim_rng.pt": b"x" for tensor, pipeline in (("00", "000"), ("99999", "999999"))}
    state, reasons = states(written(tmp_path, files))
    assert state == "incomplete"
    assert "all files of 99998 tensor and pipeline ranks are missing, the first is tensor rank 1" in reasons
    assert "the files of 999998 pipeline or expert ranks are missing, the first is 1" in reasons
