import dcp_makers
import large_run_makers as make
import pytest

from trainvitals.checkpoints import find, inspect

VARIANTS = {
    "stage 0": {"stage": 0, "data": 2},
    "stage 1 in bf16": {"stage": 1, "prefix": "bf16_"},
    "stage 2": {"stage": 2},
    "stage 3": {"stage": 3},
    "tensor parallel": {"stage": 1, "model": 3},
    "pipeline": {"stage": 1, "model": 2, "data": 2, "prefix": "bf16_", "layers": 3},
    "experts": {"stage": 1, "data": 2, "experts": 4},
}


def written(tmp_path, files, name="global_step500"):
    return dcp_makers.write(tmp_path / name, files)


def states(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_whole_checkpoint_is_verified_with_all_that_is_in_it(tmp_path, variant):
    options = VARIANTS[variant]
    directory = written(tmp_path, make.deepspeed(**options))
    (tmp_path / "latest").write_text("global_step500")
    assert find(str(tmp_path)) == [str(directory)]
    report = inspect(str(directory))
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "deepspeed", 500)
    assert (report.has_optimizer, report.has_scheduler, report.reasons) == (True, True, ())
    data, model = options.get("data", 4), options.get("model", 1)
    assert (report.world_size, report.parallel) == (data * model, {"dp": data, "mp": model})
    assert inspect(str(directory), "presence").state == "complete"


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_missing_file_makes_it_incomplete(tmp_path, variant):
    files = make.deepspeed(**VARIANTS[variant])
    for name in files:
        left = {other: content for other, content in files.items() if other != name}
        if not left or name.startswith(("layer_0_expert_3", "layer_1_expert_3")):
            continue  # layers may have different numbers of experts
        state, reasons = states(written(tmp_path / name, left))
        assert state == "incomplete", name
        assert name in reasons or "missing" in reasons


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_file_cut_short_is_corrupt_and_named(tmp_path, variant):
    files = make.deepspeed(**VARIANTS[variant])
    for name in list(files)[:: max(1, len(files) // 5)]:
        for kept in (0, len(files[name]) // 2, len(files[name]) - 1):
            state, reasons = states(written(tmp_path / f"{name}{kept}", files | {name: files[name][:kept]}))
            assert state == "corrupt", (name, kept)
            assert name in reasons


def test_model_states_of_rank_0_alone_are_not_enough_with_zero_3(tmp_path):
    files = {
        name: content for name, content in make.deepspeed(stage=3).items() if "model_states" not in name or "rank_0_" in name
    }
    state, reasons = states(written(tmp_path, files))
    assert state == "incomplete"
    assert "model_states of 3 ranks are missing, the first is zero_pp_rank_1_mp_rank_00_model_states.pt" in reasons


def test_a_rank_that_wrote_elsewhere_is_missed_because_the_others_say_how_many_they_are(tmp_path):
    files = make.deepspeed(data=8)
    del files["zero_pp_rank_7_mp_rank_00_optim_states.pt"]
    directory = written(tmp_path, files)
    assert inspect(str(directory), "presence").state == "complete"
    state, reasons = states(directory)
    assert state == "incomplete"
    assert "zero_pp_rank_7_mp_rank_00_optim_states.pt" in reasons


def test_a_file_of_another_step_is_noticed(tmp_path):
    files = make.deepspeed(stage=3)
    name = "zero_pp_rank_2_mp_rank_00_model_states.pt"
    state, reasons = states(written(tmp_path, files | {name: make.deepspeed(400, stage=3)[name]}))
    assert state == "corrupt"
    assert "two saves are mixed" in reasons
    state, reasons = states(written(tmp_path / "all", make.deepspeed(400)))
    assert state == "complete"
    assert "step 400" in reasons


def test_the_old_name_without_an_underscore_is_known(tmp_path):
    files = {name.replace("_optim_states", "optim_states"): content for name, content in make.deepspeed().items()}
    report = inspect(str(written(tmp_path, files)))
    assert (report.state, report.has_optimizer) == ("verified", True)


def test_one_far_smaller_file_of_a_kind_is_a_note(tmp_path):
    files = make.deepspeed(data=8)
    name = "zero_pp_rank_5_mp_rank_00_optim_states.pt"
    files |= {other: make.plain.torch_zip_bytes(None, (400,)) for other in files if "optim_states" in other and other != name}
    state, reasons = states(written(tmp_path, files))
    assert state == "verified"
    assert f"{name} has" in reasons
