"""OLMo, OLMo-core and DeepSpeed's universal checkpoints."""

import checkpoint_makers
import layout_makers as make
import pytest

from trainvitals.checkpoints import inspect


def test_olmo_core_tells_its_ranks_and_what_is_saved(tmp_path):
    report = inspect(str(make.write(tmp_path / "step500", make.olmo_core(ranks=3))))
    assert (report.step, report.world_size, str(report.state)) == (500, 3, "verified")
    assert (report.has_optimizer, report.has_rng, report.has_data_position) == (True, True, True)


@pytest.mark.parametrize(
    "gone", [".metadata.json", "train/rank0.pt", "model_and_optim/.metadata", "model_and_optim/__1_0.distcp", "train/rank1.pt"]
)
def test_olmo_core_without_a_part_is_incomplete_and_says_which(tmp_path, gone):
    directory = make.write(tmp_path / "step500", make.olmo_core(ranks=3))
    (directory / gone).unlink()
    report = inspect(str(directory))
    assert (report.format, str(report.state)) == ("olmo", "incomplete")
    assert gone.split("/")[0] in " ".join(report.reasons)


def test_olmo_core_of_another_step_inside_is_corrupt(tmp_path):
    report = inspect(str(make.write(tmp_path / "step400", make.olmo_core(500))))
    assert (str(report.state), "step 500" in report.reasons[0]) == ("corrupt", True)


def test_olmo_being_built_has_its_step_and_is_not_finished(tmp_path):
    report = inspect(str(make.write(tmp_path / "step500-tmp", make.olmo_core())))
    assert (report.format, report.step, str(report.state)) == ("olmo", 500, "incomplete")


def test_olmos_own_directories_need_no_marker_of_olmo_core(tmp_path):
    parts = {name: content for name, content in make.olmo_core().items() if not name.endswith(".json")}
    report = inspect(str(make.write(tmp_path / "step500", parts | {"config.yaml": b"a: 1\n"})))
    assert str(report.state) == "verified"
    flat = make.shards() | {"train.pt": checkpoint_makers.torch_zip_bytes({"global_step": 500}), "config.yaml": b"a: 1\n"}
    report = inspect(str(make.write(tmp_path / "flat" / "step500", flat)))
    assert (report.format, str(report.state)) == ("olmo", "verified")


def test_unsharded_olmo_without_optimizer_says_so_and_without_model_is_incomplete(tmp_path):
    directory = make.write(tmp_path / "step500-unsharded", make.olmo_unsharded())
    assert inspect(str(directory)).has_optimizer is True
    (directory / "optim.pt").unlink()
    assert inspect(str(directory)).has_optimizer is False
    (directory / "train.pt").unlink()
    assert str(inspect(str(directory)).state) == "incomplete"


def test_a_universal_checkpoint_has_the_same_files_for_every_parameter(tmp_path):
    directory = make.write(tmp_path / "global_step50_universal", make.universal(ranks=2))
    report = inspect(str(directory))
    assert (str(report.state), report.has_optimizer, dict(report.parallel)) == ("verified", True, {"tp": 2})
    (directory / "zero/layers.1.weight/exp_avg.pt").unlink()
    lacking = inspect(str(directory))
    assert (str(lacking.state), "zero/layers.1.weight lacks exp_avg.pt" in lacking.reasons) == ("incomplete", True)


def test_a_universal_checkpoint_in_the_making_still_holds_its_working_directory(tmp_path):
    parts = make.universal() | {"tmp/layers.0.weight/0/fp32.00": b"x"}
    report = inspect(str(make.write(tmp_path / "global_step50_universal", parts)))
    assert (str(report.state), "conversion" in report.reasons[0]) == ("incomplete", True)
