"""Versions of the installed packages. A file of its own, imported when a start is described: the library behind it imports much,
sockets among it, that a trainer which only records steps has no use for."""

from __future__ import annotations

import codecs
import os
import time
from importlib import metadata as installed
from pathlib import Path
from typing import Any

from trainvitals.hook.flatten import Plain, plain_text

#: Their versions are what a difference between two starts is looked for in.
PACKAGES = (
    "torch", "triton", "pytorch-triton", "transformers", "accelerate", "deepspeed", "megatron-core", "megatron-lm", "transformer-engine",
    "transformer-engine-torch", "flash-attn", "flash-attn-3", "apex", "lightning", "pytorch-lightning", "nemo-toolkit", "nemo-run",
    "torchtitan", "torchao", "torchdata", "torchvision", "bitsandbytes", "xformers", "peft", "trl", "mosaicml", "llm-foundry",
    "mosaicml-streaming", "nanotron", "fairseq", "mmengine", "jax", "jaxlib", "flax", "optax", "maxtext", "numpy", "datasets",
    "tokenizers", "safetensors", "sentencepiece", "tiktoken", "einops", "liger-kernel", "nvidia-modelopt",
    "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
    "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime", "torch-xla", "torch-npu", "trainvitals",
)  # fmt: skip


class _Sample(installed.Distribution):
    """The metadata of a package that is on no disk."""

    def read_text(self, filename: str) -> str | None:
        return "Metadata-Version: 2.1\nName: sample\nVersion: 1\n" if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return Path(path)


def import_readers() -> None:
    """Import what ``packages`` needs beyond this file's own imports: the library imports its reader of metadata when it is first used.

    For the thread that asks for the look-ups. A process that is forked while another thread imports keeps that import's lock
    for ever, and hangs in its own import of the same module. Reads no package from the disk.
    """
    str(_Sample().version)
    codecs.lookup("cp437")  # names in a zip file


def packages(deadline_s: float) -> dict[str, Plain]:
    """Versions of ``PACKAGES`` as installed, read from their metadata. deadline_s: monotonic; a list that was cut there would
    look like packages that went away, so it is not told at all. In a thread only after ``import_readers``."""
    found: dict[str, Plain] = {}
    for name in PACKAGES:
        if time.monotonic() > deadline_s:
            return {"unavailable": "the file system took too long"}
        try:
            found[name] = plain_text(str(installed.version(name)))
        except installed.PackageNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - a damaged metadata file; told in place of the version
            found[name] = f"unreadable: {type(error).__name__}"
    return found
