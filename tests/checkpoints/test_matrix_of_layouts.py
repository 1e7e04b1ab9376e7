"""What only some layouts' files can show: another step inside, the files of a rank missing, no optimizer. Each where it can be seen."""

from collections.abc import Callable
from pathlib import Path

import checkpoint_makers as make
import dcp_makers as dcp
import large_run_makers as large
import layout_makers as layouts
import pytest

from trainvitals.checkpoints import inspect

Write = Callable[[Path], Path]
#: Layout -> file of one rank of several (by a part of its name).
OF_A_RANK = {
    "megatron torch_dist": "__1_0.distcp", "megatron torch": "mp_rank_01_001", "deepspeed": "zero_pp_rank_3",
    "deepspeed zero 3": "zero_pp_rank_2", "torchtitan": "__1_0.distcp", "lightning sharded": "__1_0.distcp", "nemo 2": "__1_0.distcp",
    "accelerate fsdp": "random_states_0", "huggingface fsdp": "rng_state_0", "huggingface deepspeed": "zero_pp_rank_1",
    "composer of ranks": "rank1", "olmo-core": "train/rank0", "llm.c": "00001.bin", "orbax": "ocdbt.process_1",
}  # fmt: skip
#: Layouts that hold the step inside in a way that is read without executing anything.
WITH_STEP_INSIDE = [
    "megatron torch_dist", "megatron torch", "deepspeed", "deepspeed zero 3", "lightning", "lightning sharded", "nemo", "olmo-core",
    "huggingface", "huggingface fsdp", "huggingface deepspeed",
]  # fmt: skip
WITHOUT_OPTIMIZER: dict[str, Write] = {
    "megatron torch_dist": layouts.in_directory(
        "iter_0000500",
        lambda: dcp.parts({"embedding.weight": 16}, 2, ()) | {"metadata.json": b'{"sharded_backend": "torch_dist"}'},
    ),
    "megatron torch": layouts.in_directory("iter_0000500", lambda: large.megatron_legacy(optimizer="none")),
    "torchtitan": layouts.in_directory("step-500", lambda: dcp.parts({"tok_embeddings.weight": 16}, 2, ("train_state.step",))),
    "huggingface": layouts.in_directory("checkpoint-500", lambda: make.huggingface_parts(500, optimizer=False)),
    "lightning": layouts.as_file(lambda: layouts.lightning(optimizer=False)),
    "composer": layouts.as_file(lambda: layouts.composer(optimizer=False)),
    "nanogpt": layouts.as_file(lambda: layouts.nanogpt(optimizer=False)),
    "orbax": layouts.in_directory("500", lambda: layouts.orbax(optimizer=False, readable=True)),
    "deepspeed": layouts.in_directory(
        "global_step500", lambda: {n: c for n, c in large.deepspeed().items() if "optim_states" not in n}
    ),
    "accelerate": layouts.in_directory(
        "checkpoint_5", lambda: {n: c for n, c in large.accelerate().items() if not n.startswith("optimizer_0")}
    ),
}


@pytest.mark.parametrize("sample", OF_A_RANK)
def test_a_checkpoint_without_the_files_of_one_rank_is_no_whole_one(tmp_path, sample):
    path = layouts.SAMPLES[sample][2](tmp_path)
    gone = [file for file in tmp_path.rglob("*") if file.is_file() and OF_A_RANK[sample] in str(file.relative_to(tmp_path))]
    assert gone
    for file in gone:
        file.unlink()
    report = inspect(str(path))
    assert report.state == "incomplete", report
    assert report.reasons


@pytest.mark.parametrize("sample", WITH_STEP_INSIDE)
def test_a_checkpoint_of_another_step_than_its_name_says_is_never_verified_and_says_both(tmp_path, sample):
    path = layouts.SAMPLES[sample][2](tmp_path)
    assert inspect(str(path)).state == "verified"
    report = inspect(str(path.rename(path.with_name(path.name.replace("500", "400", 1)))))
    assert report.state in ("corrupt", "complete"), report
    assert "500" in report.reasons[0] and "400" in report.reasons[0]


@pytest.mark.parametrize("sample", WITHOUT_OPTIMIZER)
def test_a_missing_optimizer_is_told_and_is_no_damage(tmp_path, sample):
    report = inspect(str(WITHOUT_OPTIMIZER[sample](tmp_path)))
    assert report.has_optimizer is False
    assert report.state in ("verified", "complete"), report
