"""Steps of several parts whose save broke off between them, and what a restart of their trainers takes."""

import json

import checkpoint_makers
import dcp_makers as make
import large_run_makers
import layout_makers
import pytest

from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.resume_choice import choose

MODEL = {"model.layers.0.weight": 64, "model.norm": 8}
OPTIMIZER = {"optimizer.state.exp_avg.layers.0.weight": 64}
PARTS = {"model": MODEL, "optimizer": OPTIMIZER, "extra": {"rng_state": 8}}


def below(prefix, files):
    return {f"{prefix}/{name}": content for name, content in files.items()}


def megatron(tensors):
    return {**make.parts(tensors), "metadata.json": b'{"sharded_backend": "torch_dist"}'}


def contents(names, step=20):
    table = {name: {"path": f"{name}/dist_ckpt", "format": "megatron_dist_checkpoint"} for name in names}
    return json.dumps({"schema_version": 2, "global_step": step, "contents": table}).encode()


def verl(directory, saved=("model", "optimizer", "extra"), role="actor", document=None):
    """All three directories are made; what is not saved stays empty."""
    for name in PARTS:
        (directory / role / name / "dist_ckpt").mkdir(parents=True)
    files = {key: value for name in saved for key, value in below(f"{role}/{name}/dist_ckpt", megatron(PARTS[name])).items()}
    files[f"{role}/ckpt_contents.json"] = contents(saved) if document is None else document
    return make.write(directory, files)


def said(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


def test_a_whole_save_of_verl_is_verified_with_what_it_says_that_it_holds(tmp_path):
    path = verl(tmp_path / "global_step_20")
    report = inspect(str(path))
    assert (report.format, report.step, str(report.state), report.reasons) == ("dcp_parts", 20, "verified", ())
    assert report.has_optimizer is True
    assert report.has_rng is True
    assert find(str(tmp_path)) == [str(path)]


def test_parts_that_verl_was_told_not_to_save_are_no_fault_although_their_directories_are_there(tmp_path):
    path = verl(tmp_path / "global_step_20", saved=("model",))
    report = inspect(str(path))
    assert (str(report.state), report.has_optimizer) == ("verified", False), report.reasons


def test_a_save_of_verl_that_broke_off_before_its_last_file_is_incomplete(tmp_path):
    path = verl(tmp_path / "global_step_20", saved=("model",))
    (path / "actor" / "ckpt_contents.json").unlink()
    for level in ("presence", "structure"):
        report = inspect(str(path), level)
        assert str(report.state) == "incomplete"
        assert "actor/ckpt_contents.json is missing" in report.reasons[0]


def test_a_second_role_that_broke_off_counts_although_the_first_is_whole(tmp_path):
    path = verl(tmp_path / "global_step_20")
    (path / "critic" / "model" / "dist_ckpt").mkdir(parents=True)
    state, reasons = said(path)
    assert (state, "critic/ckpt_contents.json is missing" in reasons) == ("incomplete", True)


def test_an_optimizer_that_verl_says_it_saved_and_that_is_gone_is_missing(tmp_path):
    path = verl(tmp_path / "global_step_20", saved=("model", "extra"), document=contents(PARTS))
    state, reasons = said(path)
    assert (state, "actor/optimizer/dist_ckpt is not there" in reasons) == ("incomplete", True)


def test_one_directory_of_all_as_megatron_fsdp_saves_it_is_whole_although_the_document_lists_three(tmp_path):
    path = tmp_path / "global_step_20"
    for name in PARTS:
        (path / "actor" / name / "dist_ckpt").mkdir(parents=True)
    files = below("actor/model/dist_ckpt", megatron(MODEL | OPTIMIZER | {"rng_state": 8}))
    make.write(path, files | {"actor/ckpt_contents.json": contents(PARTS)})
    assert said(path)[0] == "verified"


def test_a_document_of_another_step_or_of_no_table_is_never_verified(tmp_path):
    for number, (document, expected) in enumerate(
        [(contents(PARTS, 40), "complete"), (b"[]", "corrupt"), (b'{"contents": {"model": 1}}', "corrupt"), (b"{", "corrupt")]
    ):
        path = verl(tmp_path / str(number) / "global_step_20", document=document)
        assert said(path)[0] == expected, document


def test_a_path_in_the_document_that_leads_out_is_only_a_name_that_is_not_there(tmp_path):
    document = json.dumps({"contents": {"model": {"path": "../../../../etc/passwd"}, "other": {"path": "/etc/passwd"}}}).encode()
    assert said(verl(tmp_path / "global_step_20", document=document))[0] == "incomplete"


def automodel(directory):
    tensors = {"optim.state.layers.0.weight.exp_avg": 64}
    return make.write(directory, {**below("model", make.parts(MODEL)), **below("optim", make.parts(tensors))})


def test_an_optimizer_directory_that_was_made_and_not_filled_is_a_save_that_broke_off(tmp_path):
    path = make.write(tmp_path / "epoch_0_step_20", below("model", make.parts(MODEL)))
    assert said(path)[0] == "verified"
    (path / "optim").mkdir()
    state, reasons = said(path)
    assert (state, "optim/ is empty" in reasons) == ("incomplete", True)


def test_an_empty_optimizer_directory_beside_whole_safetensors_is_never_verified(tmp_path):
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    weights = len(header).to_bytes(8, "little") + header + bytes(16)
    path = make.write(tmp_path / "epoch_0_step_20", {"model/model.safetensors": weights})
    (path / "optim").mkdir()
    report = inspect(str(path))
    assert (str(report.state), report.has_optimizer) == ("complete", False), report.reasons


def test_a_step_of_nemo_rl_under_its_temporary_name_is_found_and_not_finished(tmp_path):
    files = below("policy/weights", make.parts(MODEL)) | {"train_dataloader.pt": checkpoint_makers.torch_zip_bytes()}
    path = make.write(tmp_path / "tmp_step_20", files)
    assert find(str(tmp_path)) == [str(path)]
    report = inspect(str(path))
    assert (str(report.state), report.step) == ("incomplete", 20)
    assert "name that it is given while it is saved" in report.reasons[0]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_save_of_deepspeed_that_broke_off_before_its_optimizer_is_never_verified(tmp_path, stage):
    files = large_run_makers.deepspeed(stage=stage)
    left = {name: content for name, content in files.items() if "optim_states" not in name}
    for name, prefix in (("global_step500", ""), ("step_500", "pytorch_model/")):
        inside = {prefix + file: content for file, content in left.items()}
        beside = {f"random_states_{rank}.pkl": checkpoint_makers.torch_zip_bytes() for rank in range(4)} if prefix else {}
        state, reasons = said(make.write(tmp_path / name, inside | beside))
        assert (state, "the optimizer is in no file" in reasons) == ("complete", True), name


@pytest.mark.parametrize("name", ["checkpoint-500", "step_500"])
def test_a_directory_for_fsdp_that_stayed_empty_is_never_verified(tmp_path, name):
    files = large_run_makers.huggingface_fsdp() if name == "checkpoint-500" else large_run_makers.accelerate()
    gone = ("optimizer_0/", "scheduler", "rng_state") if name == "checkpoint-500" else ("optimizer_0/",)
    path = make.write(tmp_path / name, {file: content for file, content in files.items() if not file.startswith(gone)})
    (path / "optimizer_0").mkdir()
    state, reasons = said(path)
    assert (state, "optimizer_0/ is empty" in reasons) == ("incomplete", True)


def test_an_item_of_orbax_without_any_data_or_without_its_manifest_is_never_verified(tmp_path):
    files = layout_makers.orbax(readable=True)
    marks = {name: content for name, content in files.items() if "ocdbt" not in name and "/d/" not in name}
    state, reasons = said(make.write(tmp_path / "marks" / "100", marks))
    assert (state, "holds none of the data" in reasons) == ("incomplete", True)
    loose = {name: content for name, content in files.items() if "ocdbt" not in name}
    state, reasons = said(make.write(tmp_path / "loose" / "100", loose))
    assert (state, "manifest.ocdbt is missing" in reasons) == ("incomplete", True)


@pytest.mark.parametrize("process", [0, 3])
def test_what_orbax_keeps_on_the_disk_of_one_node_is_neither_verified_nor_called_broken(tmp_path, process):
    files = layout_makers.orbax(readable=True)
    mine = {name.replace("ocdbt.process_0", f"ocdbt.process_{process}"): content for name, content in files.items()}
    mine |= {f"process_metadata/{name}.json": b"[[0, 1], [2, 3]]" for name in ("global_process_metadata", "mesh_metadata")}
    state, reasons = said(make.write(tmp_path / "100", mine))
    assert (state, "what one node keeps" in reasons) == ("complete", True)


# What a restart takes


def chosen(directory):
    choice = choose(str(directory), [inspect(path) for path in find(str(directory))])
    return choice and (choice.path and choice.path.rpartition("/")[2], choice.how)


@pytest.mark.parametrize("is_link", [True, False])
def test_automodel_goes_by_its_pointer_and_past_one_that_names_a_deleted_step(tmp_path, is_link):
    for step in (20, 40):
        automodel(tmp_path / f"epoch_0_step_{step}")
    assert chosen(tmp_path) == ("epoch_0_step_40", "highest step_N")
    for name, expected in (("epoch_0_step_20", "epoch_0_step_20"), ("epoch_0_step_10", "epoch_0_step_40")):
        if is_link:
            (tmp_path / "LATEST").unlink(missing_ok=True)
            (tmp_path / "LATEST").symlink_to(name)
        else:
            (tmp_path / "LATEST.txt").write_text(name)
        assert chosen(tmp_path)[0] == expected


def test_automodel_takes_the_highest_step_whatever_is_in_it_and_that_is_told(tmp_path):
    automodel(tmp_path / "epoch_0_step_20")
    broken = make.write(tmp_path / "epoch_1_step_40", below("model", make.parts(MODEL)))
    (broken / "optim").mkdir()
    choice = choose(str(tmp_path), [inspect(path) for path in find(str(tmp_path))])
    assert choice.step == 40
    assert "incomplete" in choice.problem
    assert "step 20" in choice.problem


def test_nemo_rl_takes_the_highest_step_and_none_under_its_temporary_name(tmp_path):
    for name in ("step_9", "step_20", "tmp_step_40"):
        make.write(tmp_path / name, below("policy/weights", make.parts(MODEL)))
    assert chosen(tmp_path) == ("step_20", "highest step_N")


def test_the_data_positions_that_replicas_of_torchtitan_keep_beside_the_steps_are_no_checkpoint_to_go_on_from(tmp_path):
    """``components/checkpoint.py`` (_ft_folder, _ft_save): every step, data position only, never what a load of the model takes."""
    make.torchtitan(tmp_path, 20)
    for step in (20, 40):
        make.write(tmp_path / "ft-replicat-0" / f"step-{step}", make.parts({"dataloader.position": 8}))
    assert find(str(tmp_path)) == [str(tmp_path / "step-20")]
    assert chosen(tmp_path) == ("step-20", "highest step-N with .metadata")


def test_a_pointer_of_verl_to_a_deleted_step_names_it_as_verl_does(tmp_path):
    verl(tmp_path / "global_step_20")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40")
    choice = choose(str(tmp_path), [inspect(path) for path in find(str(tmp_path))])
    assert choice.path.endswith("/global_step_40")
    assert "which is not there" in choice.problem
    assert "step 20 is complete here" in choice.problem
