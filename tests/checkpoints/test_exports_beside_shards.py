"""Weights that are exported beside what a run resumes from: the export hides nothing, and no export is called broken for its place."""

import checkpoint_makers
import dcp_makers
import layout_makers as make
import pytest

from trainvitals.checkpoints import inspect

HEADER = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(range(16))
INDEX = b'{"weight_map": {"w": "model-00001-of-00001.safetensors"}}'


def verl(export, ranks=2):
    """``fsdp_checkpoint_manager.py``: model, optimizer and the rest of each rank, and what ``save_contents`` adds."""
    whole = checkpoint_makers.torch_zip_bytes()
    kinds = ("model", "optim", "extra_state")
    return {f"actor/{kind}_world_size_{ranks}_rank_{rank}.pt": whole for kind in kinds for rank in range(ranks)} | export


ADAPTER = {"actor/lora_adapter/adapter_model.safetensors": WEIGHTS, "actor/lora_adapter/adapter_config.json": b"{}"}
FULL = {
    "actor/huggingface/model-00001-of-00001.safetensors": WEIGHTS,
    "actor/huggingface/model.safetensors.index.json": INDEX,
    "actor/huggingface/config.json": b"{}",
}


def said(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("export", [ADAPTER, FULL])
def test_a_rank_that_is_missing_is_seen_beside_an_export(tmp_path, export):
    path = make.write(tmp_path / "global_step_7", verl(export))
    report = inspect(str(path))
    assert (str(report.state), report.has_optimizer, report.world_size) == ("verified", True, 2), report.reasons
    (path / "actor" / "optim_world_size_2_rank_1.pt").unlink()
    state, reasons = said(path)
    assert (state, "optim_world_size_2_rank_1.pt" in reasons) == ("incomplete", True)


def test_a_file_that_an_index_in_a_directory_below_needs_is_named_with_its_place(tmp_path):
    path = make.write(tmp_path / "global_step_7", verl(FULL))
    (path / "actor" / "huggingface" / "model-00001-of-00001.safetensors").unlink()
    state, reasons = said(path)
    assert (state, "actor/huggingface/model-00001-of-00001.safetensors is missing" in reasons) == ("incomplete", True)


def test_a_tensor_of_an_index_below_that_its_file_lacks_is_damage(tmp_path):
    export = FULL | {"actor/huggingface/model.safetensors.index.json": INDEX.replace(b'"w":', b'"v":')}
    assert said(make.write(tmp_path / "global_step_7", verl(export)))[0] == "corrupt"


def test_torchtitans_joined_weights_are_verified_whatever_files_each_rank_wrote(tmp_path):
    """With pipeline stages a rank has no tensor of some files."""
    parts = {f"sharded/shard-0000{rank}-model-0000{rank}-of-00002.safetensors": WEIGHTS for rank in (1, 2)}
    parts |= {"model-00001-of-00001.safetensors": WEIGHTS, "model.safetensors.index.json": INDEX}
    assert said(make.write(tmp_path / "step-1000", parts))[0] == "verified"


def test_replicas_of_torchtitan_that_save_by_themselves_are_one_step(tmp_path):
    whole = dcp_makers.parts(dcp_makers.TORCHTITAN, 2, dcp_makers.TORCHTITAN_OBJECTS)
    parts = {f"ft-replica-{number}/{name}": content for number in (0, 1) for name, content in whole.items()}
    path = make.write(tmp_path / "step-500", parts)
    report = inspect(str(path))
    assert (report.format, str(report.state), report.has_optimizer) == ("dcp_parts", "verified", True), report.reasons
    (path / "ft-replica-1" / "__1_0.distcp").unlink()
    assert said(path)[0] == "incomplete"
