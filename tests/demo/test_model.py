"""The hand-written gradients and optimizer of the demo's model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainvitals.demo.model import ModelConfig, initial_parameters, loss_and_gradients
from trainvitals.demo.optimizer import AdamW, OptimizerConfig, learning_rate

SMALL = ModelConfig(vocabulary=7, context=3, embedding=4, hidden=6)


def batch(generator: np.random.Generator, size: int = 5) -> tuple[np.ndarray, np.ndarray]:
    return generator.integers(0, 7, (size, 3)), generator.integers(0, 7, size)


@pytest.mark.parametrize("name", list(initial_parameters(SMALL, np.random.default_rng(0))))
def test_every_gradient_agrees_with_finite_differences(name: str) -> None:
    generator = np.random.default_rng(3)
    parameters = initial_parameters(SMALL, generator, np.float64)
    parameters["output.weight"] *= 50  # fresh outputs are so small that their upstream gradients would drown in rounding
    contexts, targets = batch(generator)
    _, gradients = loss_and_gradients(parameters, contexts, targets)
    values = parameters[name].reshape(-1)
    for index in generator.permutation(values.size)[:12]:
        kept, width = values[index], 1e-5
        values[index] = kept + width
        above, _ = loss_and_gradients(parameters, contexts, targets)
        values[index] = kept - width
        below, _ = loss_and_gradients(parameters, contexts, targets)
        values[index] = kept
        assert gradients[name].reshape(-1)[index] == pytest.approx((above - below) / (2 * width), rel=1e-5, abs=1e-8)


def test_a_fresh_model_guesses_evenly() -> None:
    generator = np.random.default_rng(0)
    config = ModelConfig()
    loss, _ = loss_and_gradients(
        initial_parameters(config, generator), generator.integers(0, 96, (64, config.context)), generator.integers(0, 96, 64)
    )
    assert loss == pytest.approx(math.log(96), abs=0.2)


def test_a_nan_weight_gives_a_nan_loss_and_no_exception() -> None:
    generator = np.random.default_rng(0)
    parameters = initial_parameters(SMALL, generator)
    parameters["hidden.1.weight"][0, 0] = np.nan
    loss, gradients = loss_and_gradients(parameters, *batch(generator))
    assert math.isnan(loss)
    assert math.isnan(AdamW(parameters, OptimizerConfig()).update(parameters, gradients, 1e-3))


def test_clipping_limits_the_update_but_the_norm_reported_is_the_one_before() -> None:
    parameters = {"w": np.zeros((2, 2), np.float64)}
    optimizer = AdamW(parameters, OptimizerConfig(clip_norm=1.0))
    assert optimizer.update(parameters, {"w": np.full((2, 2), 10.0)}, 0.1) == pytest.approx(20)
    assert optimizer.first["w"] == pytest.approx(np.full((2, 2), 0.1 * 0.5))


def test_the_first_adamw_step_has_the_size_of_the_learning_rate() -> None:
    parameters = {"b": np.array([1.0, -1.0])}
    AdamW(parameters, OptimizerConfig()).update(parameters, {"b": np.array([0.3, -0.2])}, 0.01)
    assert parameters["b"] == pytest.approx([0.99, -0.99], abs=1e-6)


def test_the_learning_rate_warms_up_and_then_falls_to_its_floor() -> None:
    config = OptimizerConfig(lr=1.0, min_lr=0.1, warmup_steps=10, total_steps=110)
    rates = [learning_rate(config, step) for step in range(1, 201)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert rates[9:110] == sorted(rates[9:110], reverse=True)
    assert rates[109:] == pytest.approx([0.1] * 91)
