"""Writes made-up checkpoints of the trainers that lay them out in their own way, file by file in the order of a save."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import checkpoint_makers as make
import dcp_makers as dcp
import large_run_makers as large

Parts = dict[str, bytes]
SHARDED = {"model.w": 16, "optimizer.state.w.exp_avg": 16}


def write(directory: Path, parts: Mapping[str, bytes], modified_s: float | None = None) -> Path:
    """All files below ``directory``, in order; times count up from ``modified_s``."""
    for number, (name, content) in enumerate(parts.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if modified_s is not None:
            os.utime(path, (modified_s + number, modified_s + number))
    return directory


def shards(prefix: str = "", ranks: int = 2, objects: tuple[str, ...] = ()) -> Parts:
    return {prefix + name: content for name, content in dcp.parts(SHARDED, ranks, objects).items()}


def lightning_state(step: int, optimizer: bool = True) -> dict[str, object]:
    state: dict[str, object] = {
        "epoch": 1,
        "global_step": step,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {"w": 1},
        "loops": {"fit_loop": {}},
        "callbacks": {},
    }
    return state | {"optimizer_states": [{"state": {}}] if optimizer else [], "lr_schedulers": [{"last_epoch": 1}]}


def lightning(step: int = 500, **options: bool) -> Parts:
    return {f"epoch=1-step={step}.ckpt": make.torch_zip_bytes(lightning_state(step, **options))}


def lightning_sharded(step: int = 500) -> Parts:
    return {**shards(), "meta.pt": make.torch_zip_bytes(lightning_state(step), storages=())}


def nemo(step: int = 500) -> Parts:
    return {f"megatron_gpt--val_loss=2.51-step={step}-consumed_samples={step * 8}.0-last.ckpt": lightning_file(step)}


def lightning_file(step: int) -> bytes:
    return make.torch_zip_bytes(lightning_state(step))


def nemo2() -> Parts:
    return {
        "context/model.yaml": b"a: 1\n",
        "context/io.json": b"{}",
        **shards("weights/"),
        "weights/metadata.json": b'{"sharded_backend": "torch_dist"}',
    }


def nemo_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("./model_config.yaml", b"a: 1\n"), ("./model_weights.ckpt", make.torch_zip_bytes())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def composer(step: int = 500, ranks: int = 1, optimizer: bool = True) -> Parts:
    state: dict[str, object] = {"model": {"w": 1}, "timestamp": {"batch": step}}
    if optimizer:
        state |= {"optimizers": {"AdamW": {"state": {}}}, "schedulers": {"Cosine": {}}}
    whole = {"state": state, "rng": [{"python": 1}]}
    return {f"ep1-ba{step}-rank{rank}.pt": make.torch_zip_bytes(whole) for rank in range(ranks)}


def olmo_core(step: int = 500, ranks: int = 2) -> Parts:
    train = make.torch_zip_bytes({"global_step": step, "data_loader": {"epoch": 1}, "rng": {"python": 1}}, storages=(3,))
    return {
        **{f"train/rank{rank}.pt": train for rank in range(ranks)},
        **shards("model_and_optim/"),
        ".metadata.json": b'{"version": "2.1.0"}',
        "config.json": b"{}",
    }


def olmo_unsharded() -> Parts:
    parts = {f"{name}.pt": make.torch_zip_bytes({"global_step": 500}) for name in ("model", "optim", "train")}
    return {**parts, "config.yaml": b"a: 1\n"}


def universal(ranks: int = 1) -> Parts:
    parts: Parts = {}
    for name in ("layers.0.weight", "layers.1.weight"):
        parts |= {f"zero/{name}/{kind}.pt": make.torch_zip_bytes(storages=(4,)) for kind in ("fp32", "exp_avg", "exp_avg_sq")}
    parts |= {f"mp_rank_{rank:02d}_model_states.pt": make.torch_zip_bytes({"global_steps": 50}) for rank in range(ranks)}
    return parts


def nanogpt(step: int = 500, optimizer: bool = True) -> Parts:
    state: dict[str, object] = {"model": {"w": 1}, "model_args": {}, "iter_num": step, "best_val_loss": 2.5, "config": {}}
    return {"ckpt.pt": make.torch_zip_bytes(state | ({"optimizer": {"state": {}}} if optimizer else {}))}


LLM_C_PARAMETERS = 300


def llm_c_model(version: int = 3) -> bytes:
    """positions 4, vocabulary 8, 1 layer, 1 head, 4 channels."""
    header = [20240326, version, 4, 8, 1, 1, 4, 8] + [0] * 248
    return struct.pack("<256i", *header) + bytes(LLM_C_PARAMETERS * {3: 4, 5: 2}.get(version, 1))


def llm_c_state(step: int, rank: int = 0, ranks: int = 1, shuffled: bool = False, zero: bool = False) -> bytes:
    header = [0] * 256
    header[:6] = [20240527, 1, ranks, rank, 1, int(shuffled)]
    header[10] = step
    body = bytes(3 * 4 * (LLM_C_PARAMETERS // ranks if zero else LLM_C_PARAMETERS))
    order = struct.pack("<Q", 2) + bytes(8) + struct.pack("<Q", 5) + bytes(20) + bytes(2516) if shuffled else b""
    return struct.pack("<256i", *header) + body + order


def llm_c(step: int = 500, ranks: int = 2, **options: bool) -> Parts:
    return {
        f"model_{step:08d}.bin": llm_c_model(),
        **{f"state_{step:08d}_{rank:05d}.bin": llm_c_state(step, rank, ranks, **options) for rank in range(ranks)},
        f"DONE_{step:08d}": b"",
    }


def _crc32c(raw: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in raw:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def ocdbt_table(names: Sequence[str]) -> bytes:
    """A data file table without common prefixes; fewer than 128 names."""
    paths = [f"ocdbt.process_0/d/{name}".encode() for name in names]
    lengths = bytes([0] * max(0, len(paths) - 1) + [len(path) for path in paths] + [16] * len(paths))
    return bytes([len(paths)]) + lengths + b"".join(paths)


def ocdbt_manifest(names: Sequence[str]) -> bytes:
    """Version 0, not compressed; its configuration, then the table."""
    return ocdbt_record(MANIFEST, b"\x00\x00" + bytes(16) + b"\x00\x00\x00\x04\x00" + ocdbt_table(names))


def ocdbt_node(names: Sequence[str]) -> bytes:
    return ocdbt_record(NODE, b"\x00\x00" + b"\x00" + ocdbt_table(names) + b"\x00")


def ocdbt_record(magic: bytes, payload: bytes = b"\x00\x01made up") -> bytes:
    raw = magic + struct.pack("<Q", 12 + len(payload) + 4) + payload
    return raw + struct.pack("<I", _crc32c(raw))


def zstd_frame(content: bytes) -> bytes:
    """A frame of raw blocks."""
    blocks = [content[at : at + 1000] for at in range(0, len(content), 1000)] or [b""]
    raw = b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", max(0, len(content) - 256))
    for number, block in enumerate(blocks):
        raw += (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little") + block
    return raw


def zarr3_index(places: list[tuple[int, int]]) -> bytes:
    raw = b"".join(struct.pack("<2Q", *place) for place in places)
    return raw + struct.pack("<I", _crc32c(raw))


MANIFEST, NODE = b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde"


def orbax(processes: int = 1, optimizer: bool = True, readable: bool = False, timed: bool = True) -> Parts:
    """readable: manifests and nodes are not compressed, so that everybody can tell which data files they name. timed: the times
    of the save stand in it, which makes a note."""
    times = {"init_timestamp_nsecs": 1795980665651615626, "commit_timestamp_nsecs": 1795980667651615626}
    data = {process: f"{process:032x}" for process in range(processes)}
    root = "00000000000000000000000000000abc"
    node = ocdbt_node(list(data.values())) if readable else ocdbt_record(NODE)
    manifest = ocdbt_manifest([*data.values(), root]) if readable else ocdbt_record(MANIFEST)
    keys = [("params", "w"), *([("opt_state", "mu", "w")] if optimizer else [])]
    tree = {str(key): {"key_metadata": [{"key": part, "key_type": 2} for part in key], "value_metadata": {}} for key in keys}
    parts: Parts = {}
    for process in range(processes):
        place = f"state/ocdbt.process_{process}/"
        parts[f"{place}d/{data[process]}"] = zstd_frame(bytes(2500)) + node
        parts[f"{place}manifest.ocdbt"] = manifest
        parts[f"state/array_metadatas/process_{process}"] = b'{"array_metadatas": []}'
    return parts | {
        "state/_METADATA": json.dumps({"tree_metadata": tree, "use_ocdbt": True}).encode(),
        f"state/d/{root}": node,
        "state/manifest.ocdbt": manifest,
        "_CHECKPOINT_METADATA": json.dumps(times if timed else {"item_handlers": {}}).encode(),
    }


def in_directory(name: str, parts: Callable[[], Parts]) -> Callable[[Path], Path]:
    return lambda parent: write(parent / name, parts())


def as_file(parts: Callable[[], Parts]) -> Callable[[Path], Path]:
    """Files beside each other; the first is the one that the checkpoint is called by."""

    def made(parent: Path) -> Path:
        files = parts()
        write(parent, files)
        return parent / next(iter(files))

    return made


#: What it is -> (format, step, how to write a whole one below a directory, which returns its path).
SAMPLES: dict[str, tuple[str, int | None, Callable[[Path], Path]]] = {
    "lightning": ("lightning", 500, as_file(lightning)),
    "lightning sharded": ("lightning", 500, in_directory("epoch=1-step=500.ckpt", lightning_sharded)),
    "nemo": ("nemo", 500, as_file(nemo)),
    "nemo 2": ("nemo", 500, in_directory("gpt--val_loss=2.51-step=500-consumed_samples=4000.0", nemo2)),
    "nemo tar": ("nemo", None, as_file(lambda: {"megatron_gpt.nemo": nemo_tar()})),
    "composer": ("composer", 500, as_file(composer)),
    "composer of ranks": ("composer", 500, as_file(lambda: composer(ranks=3))),
    "composer sharded": ("composer", 500, in_directory("ep1-ba500", lambda: shards(objects=("state.timestamp", "rng.0")))),
    "olmo-core": ("olmo", 500, in_directory("step500", olmo_core)),
    "olmo unsharded": ("olmo", 500, in_directory("step500-unsharded", olmo_unsharded)),
    "deepspeed universal": ("deepspeed_universal", 50, in_directory("global_step50_universal", universal)),
    "nanogpt": ("nanogpt", 500, as_file(nanogpt)),
    "llm.c": ("llm_c", 500, as_file(llm_c)),
    "orbax": ("orbax", 500, in_directory("500", lambda: orbax(processes=2, readable=True, timed=False))),
    "huggingface": ("huggingface", 500, in_directory("checkpoint-500", lambda: make.huggingface_parts(500))),
    "torchtitan": ("dcp", 500, in_directory("step-500", lambda: dcp.parts(dcp.TORCHTITAN, 2, dcp.TORCHTITAN_OBJECTS))),
    "safetensors": ("safetensors", None, as_file(lambda: {"model.safetensors": make.safetensors_bytes({"w": ("F32", (8, 4))})})),
    "torch": ("torch", 7, as_file(lambda: {"model_7.pt": make.torch_zip_bytes()})),
}
SAMPLES |= {
    "megatron torch_dist": ("megatron_dist", 500, in_directory("iter_0000500", large.megatron_dist)),
    "megatron fsdp_dtensor": ("megatron_dist", 500, in_directory("iter_0000500", large.fsdp_dtensor)),
    "megatron torch": ("megatron", 500, in_directory("iter_0000500", large.megatron_legacy)),
    "deepspeed": ("deepspeed", 500, in_directory("global_step500", large.deepspeed)),
    "deepspeed zero 3": ("deepspeed", 500, in_directory("global_step500", lambda: large.deepspeed(stage=3))),
    "accelerate fsdp": ("accelerate", None, in_directory("checkpoint_5", large.accelerate)),
    "huggingface fsdp": ("huggingface", 500, in_directory("checkpoint-500", large.huggingface_fsdp)),
    "huggingface deepspeed": ("huggingface", 500, in_directory("checkpoint-500", large.huggingface_deepspeed)),
}
