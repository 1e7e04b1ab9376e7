"""Checkpoints as the Hugging Face Trainer lays them out, written in its order and in place (it has no staging directory).

``checkpoint-N/{config.json, model.safetensors, optimizer.pt, scheduler.pt, rng_state.pth, trainer_state.json}``: the last
file marks completeness. A resume from one continues bit for bit: weights, moments, random state and data position are all there.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainvitals.demo import safetensors, torch_file
from trainvitals.demo.model import ModelConfig, Parameters
from trainvitals.demo.optimizer import AdamW, learning_rate
from trainvitals.errors import InputError

KEPT = 5


@dataclass(frozen=True)
class TrainerState:
    """Where the training stands after ``step``; ``samples`` is the data position."""

    step: int
    samples: int
    max_steps: int
    batch_size: int
    save_steps: int
    log_history: Sequence[Mapping[str, float]] = ()


def directory_of(checkpoints: Path, step: int) -> Path:
    """``checkpoint-N``"""
    return checkpoints / f"checkpoint-{step}"


def save(
    checkpoints: Path,
    config: ModelConfig,
    parameters: Parameters,
    optimizer: AdamW,
    generator: np.random.Generator,
    state: TrainerState,
) -> Path:
    """Write one checkpoint. Raises OSError when the disk does not take it."""
    path = directory_of(checkpoints, state.step)
    path.mkdir(parents=True, exist_ok=True)
    # A checkpoint that is written again must not look complete meanwhile.
    (path / "trainer_state.json").unlink(missing_ok=True)
    _write_json(path / "config.json", {"architectures": ["DemoCharacterModel"], "model_type": "demo-character", **asdict(config)})
    safetensors.write(path / "model.safetensors", parameters)
    torch_file.write(path / "optimizer.pt", _optimizer_state(optimizer, state.step))
    torch_file.write(path / "scheduler.pt", _scheduler_state(optimizer, state.step))
    torch_file.write(path / "rng_state.pth", {"numpy_pcg64": _generator_bytes(generator)})
    _write_json(path / "trainer_state.json", _trainer_state(state))
    return path


def load(
    path: Path, config: ModelConfig, parameters: Parameters, optimizer: AdamW, generator: np.random.Generator
) -> TrainerState:
    """Fill weights, moments and random state in place. Raises ``InputError`` when the checkpoint is damaged or does not fit."""
    try:
        raw_state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        stored_config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        tensors = safetensors.read(path / "model.safetensors")
        moments = torch_file.read_records(path / "optimizer.pt")
        (generator_state,) = torch_file.read_records(path / "rng_state.pth")
        state = TrainerState(
            step=int(raw_state["global_step"]),
            samples=int(raw_state["num_input_tokens_seen"]),
            max_steps=int(raw_state["max_steps"]),
            batch_size=int(raw_state["train_batch_size"]),
            save_steps=int(raw_state["save_steps"]),
            log_history=tuple(raw_state["log_history"]),
        )
        generator.bit_generator.state = json.loads(generator_state)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"Checkpoint {path} cannot be read ({error}); take another one.") from error
    if any(stored_config.get(key) != value for key, value in asdict(config).items()) or tensors.keys() != parameters.keys():
        raise InputError(f"Checkpoint {path} is of another model; start the trainer with the sizes in its config.json.")
    for number, (name, parameter) in enumerate(parameters.items()):
        parameter[...] = tensors[name]
        for values, record in ((optimizer.first, moments[3 * number + 1]), (optimizer.second, moments[3 * number + 2])):
            values[name][...] = np.frombuffer(record, dtype="<f4").reshape(parameter.shape)
    optimizer.updates = int(np.frombuffer(moments[0], dtype="<f4")[0])
    return state


def _optimizer_state(optimizer: AdamW, step: int) -> dict[str, Any]:
    """The state_dict of ``torch.optim.AdamW``: per parameter step, exp_avg, exp_avg_sq, in that order."""
    c = optimizer.config
    updates = np.array(optimizer.updates, dtype=np.float32)
    return {
        "state": {
            number: {"step": updates, "exp_avg": optimizer.first[name], "exp_avg_sq": optimizer.second[name]}
            for number, name in enumerate(optimizer.first)
        },
        "param_groups": [
            {
                "lr": learning_rate(c, max(1, step)), "betas": (c.beta1, c.beta2), "eps": c.epsilon,
                "weight_decay": c.weight_decay, "initial_lr": c.lr, "params": list(range(len(optimizer.first))),
            }
        ],
    }  # fmt: skip


def _scheduler_state(optimizer: AdamW, step: int) -> dict[str, Any]:
    c = optimizer.config
    return {"base_lrs": [c.lr], "last_epoch": step, "_step_count": step + 1, "_last_lr": [learning_rate(c, max(1, step))]}


def _generator_bytes(generator: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(json.dumps(generator.bit_generator.state).encode(), dtype=np.uint8)


def _trainer_state(state: TrainerState) -> dict[str, Any]:
    return {
        "best_metric": None,
        "best_model_checkpoint": None,
        "epoch": state.step / max(1, state.max_steps),
        "global_step": state.step,
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": [
            {name: value if math.isfinite(value) else None for name, value in entry.items()} for entry in state.log_history
        ],
        "logging_steps": 10,
        "max_steps": state.max_steps,
        "num_input_tokens_seen": state.samples,
        "num_train_epochs": 1,
        "save_steps": state.save_steps,
        "train_batch_size": state.batch_size,
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def too_old(checkpoints: Path) -> list[Path]:
    """All but the newest ``KEPT``."""
    numbered = []
    for path in checkpoints.glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdigit():
            numbered.append((int(number), path))
    return [path for _, path in sorted(numbered)[:-KEPT]]


def delete(path: Path) -> None:
    """Remove a checkpoint. Raises OSError."""
    shutil.rmtree(path)
