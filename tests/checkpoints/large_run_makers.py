"""Hand-built checkpoints of Megatron, DeepSpeed and Accelerate: file name -> content, in the order in which each is written."""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import Any

import checkpoint_makers as plain
import dcp_makers

MEGATRON_TENSORS = {"embedding.word_embeddings.weight": 16, "optimizer.state.exp_avg.embedding.word_embeddings.weight": 16}
MEGATRON_OBJECTS = ("rng_state/shard_0.0_1.1",)


def megatron_dist(iteration: int = 500, ranks: int = 2, common: bool = True, integrity: bool = False) -> dict[str, bytes]:
    """``--ckpt-format torch_dist``."""
    files = dcp_makers.parts(MEGATRON_TENSORS, ranks, MEGATRON_OBJECTS)
    if common:
        arguments = megatron_arguments(2, 1, 1, ranks)
        state = {"args": arguments, "iteration": iteration, "checkpoint_version": 3.0, "opt_param_scheduler": {"num_steps": 9}}
        files = {"common.pt": plain.torch_zip_bytes(state, ()), **files}
    files["metadata.json"] = json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}).encode()
    if integrity:
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files["integrity.json"] = json.dumps({"algorithm": "sha256", "files": hashes}).encode()
    return files


def fsdp_dtensor(ranks: int = 2) -> dict[str, bytes]:
    """``--ckpt-format fsdp_dtensor``: no metadata.json, everything in the distributed checkpoint."""
    tensors = {"model.module.decoder.weight": 16, "optimizer.state.module.decoder.weight.exp_avg": 16}
    return dcp_makers.parts(tensors, ranks, ("args", "iteration", "checkpoint_version", "rng_state"))


def megatron_arguments(tensor: int, pipeline: int, expert: int, world: int) -> argparse.Namespace:
    return argparse.Namespace(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        world_size=world,
        consumed_train_samples=1024,
    )


def megatron_legacy(
    iteration: int = 500,
    tensor: int = 2,
    pipeline: int = 2,
    expert: int = 1,
    optimizer: str = "distributed",
    arguments: bool = True,
) -> dict[str, bytes]:
    """``--ckpt-format torch``; optimizer: distributed, inside, layer-wise or none."""
    files: dict[str, bytes] = {}
    for tensor_rank in range(tensor):
        for pipeline_rank in range(pipeline):
            for expert_rank in range(expert):
                name = f"mp_rank_{tensor_rank:02d}"
                name += f"_{pipeline_rank:03d}" if pipeline > 1 else ""
                name += f"_{expert_rank:03d}" if expert > 1 else ""
                state: dict[str, Any] = {"iteration": iteration, "checkpoint_version": 3.0, "model": {}, "rng_state": [1]}
                state["opt_param_scheduler"] = {"num_steps": 9}
                if arguments:
                    state["args"] = megatron_arguments(tensor, pipeline, expert, 2 * tensor * pipeline * expert)
                if optimizer == "inside":
                    state["optimizer"] = {"state": {"exp_avg": 1}}
                if optimizer == "distributed":
                    files[f"{name}/distrib_optim.pt"] = plain.torch_zip_bytes({"buckets": 1})
                if optimizer == "layer-wise":
                    files |= {f"{name}/layer_wise_optimizer_{rank}.pt": plain.torch_zip_bytes({"state": 1}) for rank in range(2)}
                files[f"{name}/model_optim_rng.pt"] = plain.torch_zip_bytes(state)
    return files


def deepspeed(
    step: int = 500, data: int = 4, model: int = 1, stage: int = 2, prefix: str = "", layers: int = 0, experts: int = 0
) -> dict[str, bytes]:
    """ZeRO stages 0 to 3; prefix: ``bf16_``; layers: pipeline files; experts: mixture of experts."""
    files: dict[str, bytes] = {}
    state: dict[str, Any] = {
        "module": {}, "global_steps": step, "dp_world_size": data, "mp_world_size": model, "lr_scheduler": {"last": 1},
        "optimizer": {"state": {"exp_avg": 1}} if stage == 0 else None, "ds_version": "0.17.0",
    }  # fmt: skip
    for layer in range(1, layers + 1):
        files |= {f"layer_{layer:02d}-model_{rank:02d}-model_states.pt": plain.torch_zip_bytes() for rank in range(model)}
    for expert in range(experts):
        files |= {
            f"layer_{layer}_expert_{expert}_mp_rank_{rank:02d}_model_states.pt": plain.torch_zip_bytes()
            for layer in range(2)
            for rank in range(model)
        }
    for rank in range(model):
        if stage < 3:
            files[f"mp_rank_{rank:02d}_model_states.pt"] = plain.torch_zip_bytes(state)
        for part in range(data):
            if stage == 3:
                files[f"zero_pp_rank_{part}_mp_rank_{rank:02d}_model_states.pt"] = plain.torch_zip_bytes(state)
            if stage > 0:
                count: Any = data if stage == 3 else [data, data]
                inner = {"optimizer_state_dict": {"zero_stage": stage, "partition_count": count}, "ds_version": "0.17.0"}
                files[f"{prefix}zero_pp_rank_{part}_mp_rank_{rank:02d}_optim_states.pt"] = plain.torch_zip_bytes(inner)
    return files


def accelerate(ranks: int = 2, sharded: bool = True) -> dict[str, bytes]:
    """``save_state`` with FSDP: sharded or full state dicts."""
    files: dict[str, bytes] = {}
    if sharded:
        model = dcp_makers.parts({"model.weight": 16, "model.bias": 4}, ranks)
        optimizer = dcp_makers.parts({"optimizer.state.weight.exp_avg": 16}, ranks, ("optimizer.param_groups.weight.lr",))
        files |= {f"pytorch_model_fsdp_0/{name}": content for name, content in model.items()}
        files |= {f"optimizer_0/{name}": content for name, content in optimizer.items()}
    else:
        files["pytorch_model_fsdp.bin"] = plain.torch_zip_bytes()
        files["optimizer.bin"] = plain.torch_zip_bytes({"state": {"exp_avg": 1}})
    files["scheduler.bin"] = plain.torch_zip_bytes({"last_epoch": 1}, ())
    files["sampler.bin"] = plain.torch_zip_bytes({"epoch": 1}, ())
    return files | {f"random_states_{rank}.pkl": plain.torch_zip_bytes({"step": 500}, (3,)) for rank in range(ranks)}


def huggingface_fsdp(step: int = 500, ranks: int = 2) -> dict[str, bytes]:
    """The Trainer with FSDP and sharded state dicts."""
    inner = {name: content for name, content in accelerate(ranks).items() if "/" in name}
    parts = plain.huggingface_parts(step, ranks=ranks)
    kept = {name: content for name, content in parts.items() if name not in ("model.safetensors", "optimizer.pt")}
    return {**inner, **kept}


def huggingface_deepspeed(step: int = 500, ranks: int = 4, stage: int = 3) -> dict[str, bytes]:
    """The Trainer with DeepSpeed."""
    inner = {f"global_step{step}/{name}": content for name, content in deepspeed(step, ranks, stage=stage).items()}
    parts = plain.huggingface_parts(step, ranks=ranks)
    kept = {name: content for name, content in parts.items() if name not in ("optimizer.pt",)}
    return {**inner, "latest": f"global_step{step}".encode(), **kept}
