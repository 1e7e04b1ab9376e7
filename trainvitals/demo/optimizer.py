"""AdamW with clipping by the global norm, and the learning-rate schedule: linear warm-up, then a cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainvitals.demo.model import Parameters


@dataclass(frozen=True)
class OptimizerConfig:
    """Numbers of AdamW (Loshchilov & Hutter, arXiv:1711.05101) and of the schedule."""

    lr: float = 2e-3
    min_lr: float = 2e-4
    warmup_steps: int = 100
    total_steps: int = 9_000
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 1.0


def learning_rate(config: OptimizerConfig, step: int) -> float:
    """Learning rate of a step counted from 1: a function of the step alone, so a resume cannot get it wrong."""
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    share = min(1.0, (step - config.warmup_steps) / max(1, config.total_steps - config.warmup_steps))
    return config.min_lr + 0.5 * (config.lr - config.min_lr) * (1 + math.cos(math.pi * share))


class AdamW:
    """Moments of every weight and the number of updates so far. ``first`` and ``second`` are what checkpoints keep."""

    def __init__(self, parameters: Parameters, config: OptimizerConfig) -> None:
        self.config = config
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.updates = 0

    def update(self, parameters: Parameters, gradients: Parameters, lr: float) -> float:
        """Change ``parameters`` in place; returns the gradient norm before clipping."""
        c = self.config
        with np.errstate(all="ignore"):
            norm = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in gradients.values()))
            scale = min(1.0, c.clip_norm / norm) if norm > 0 else 1.0
            self.updates += 1
            correction1 = 1 - c.beta1**self.updates
            correction2 = 1 - c.beta2**self.updates
            for name, parameter in parameters.items():
                gradient = gradients[name] * np.asarray(scale, parameter.dtype)
                first, second = self.first[name], self.second[name]
                first *= c.beta1
                first += (1 - c.beta1) * gradient
                second *= c.beta2
                second += (1 - c.beta2) * np.square(gradient)
                if parameter.ndim > 1:
                    parameter *= 1 - lr * c.weight_decay
                parameter -= (lr / correction1) * first / (np.sqrt(second / correction2) + c.epsilon)
        return norm
