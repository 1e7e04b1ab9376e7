"""A small character model in NumPy: the last characters' embeddings through two hidden layers with layer norm.

Forward and backward are written by hand; ``tests/demo`` checks every gradient against finite differences.
Weights are named and laid out as PyTorch would ((out, in) matrices), so the checkpoints look like anybody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Parameters = dict[str, Array]

_EPSILON = 1e-5


@dataclass(frozen=True)
class ModelConfig:
    """Sizes. ``context``: characters seen before the one that is predicted."""

    vocabulary: int = 96
    context: int = 16
    embedding: int = 16
    hidden: int = 160


def initial_parameters(config: ModelConfig, generator: np.random.Generator, dtype: Any = np.float32) -> Parameters:
    """Fresh weights; the order of the dictionary is the order in checkpoints."""

    def normal(*shape: int, scale: float) -> Array:
        return (generator.standard_normal(shape) * scale).astype(dtype)

    width = config.context * config.embedding
    return {
        "embedding.weight": normal(config.vocabulary, config.embedding, scale=0.5),
        "hidden.0.weight": normal(config.hidden, width, scale=width**-0.5),
        "hidden.0.norm.weight": np.ones(config.hidden, dtype),
        "hidden.0.norm.bias": np.zeros(config.hidden, dtype),
        "hidden.1.weight": normal(config.hidden, config.hidden, scale=config.hidden**-0.5),
        "hidden.1.norm.weight": np.ones(config.hidden, dtype),
        "hidden.1.norm.bias": np.zeros(config.hidden, dtype),
        "output.weight": normal(config.vocabulary, config.hidden, scale=0.02),
        "output.bias": np.zeros(config.vocabulary, dtype),
    }


def loss_and_gradients(parameters: Parameters, contexts: Array, targets: Array) -> tuple[float, Parameters]:
    """Mean cross-entropy in nats per character, and its gradient for every weight.

    contexts: (batch, context) character ids; targets: (batch,). Non-finite weights give a non-finite loss, never an exception.
    """
    with np.errstate(all="ignore"):
        return _loss_and_gradients(parameters, contexts, targets)


def _loss_and_gradients(parameters: Parameters, contexts: Array, targets: Array) -> tuple[float, Parameters]:
    batch = len(targets)
    embedding = parameters["embedding.weight"]
    inputs = embedding[contexts].reshape(batch, -1)
    first, first_cache = _hidden(parameters, "hidden.0", inputs)
    second, second_cache = _hidden(parameters, "hidden.1", first)
    features = first + second
    logits = features @ parameters["output.weight"].T + parameters["output.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits)
    totals = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(batch)
    loss = float(np.mean(np.log(totals[:, 0]) - logits[rows, targets], dtype=np.float64))

    d_logits = exponentials / totals
    d_logits[rows, targets] -= 1
    d_logits /= batch
    gradients = {"output.weight": d_logits.T @ features, "output.bias": d_logits.sum(axis=0)}
    d_features = d_logits @ parameters["output.weight"]
    d_first = d_features + _hidden_backward(parameters, "hidden.1", d_features, second_cache, gradients)
    d_inputs = _hidden_backward(parameters, "hidden.0", d_first, first_cache, gradients)
    # A product with the one-hot matrix is several times faster than np.add.at, and its order of additions is fixed.
    flat = contexts.ravel()
    one_hot = np.zeros((len(embedding), flat.size), dtype=embedding.dtype)
    one_hot[flat, np.arange(flat.size)] = 1
    gradients["embedding.weight"] = one_hot @ d_inputs.reshape(flat.size, -1)
    return loss, {name: gradients[name] for name in parameters}


def _hidden(parameters: Parameters, name: str, inputs: Array) -> tuple[Array, tuple[Array, ...]]:
    """silu(layer norm(inputs @ weight.T))"""
    mixed = inputs @ parameters[f"{name}.weight"].T
    centred = mixed - mixed.mean(axis=1, keepdims=True)
    inverse_std = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + _EPSILON)
    normed = centred * inverse_std
    scaled = normed * parameters[f"{name}.norm.weight"] + parameters[f"{name}.norm.bias"]
    sigmoid = 1 / (1 + np.exp(-scaled))
    return scaled * sigmoid, (inputs, inverse_std, normed, scaled, sigmoid)


def _hidden_backward(parameters: Parameters, name: str, d_out: Array, cache: tuple[Array, ...], gradients: Parameters) -> Array:
    inputs, inverse_std, normed, scaled, sigmoid = cache
    d_scaled = d_out * (sigmoid * (1 + scaled * (1 - sigmoid)))
    gradients[f"{name}.norm.weight"] = (d_scaled * normed).sum(axis=0)
    gradients[f"{name}.norm.bias"] = d_scaled.sum(axis=0)
    d_normed = d_scaled * parameters[f"{name}.norm.weight"]
    d_mixed = d_normed - d_normed.mean(axis=1, keepdims=True)
    d_mixed -= normed * (d_normed * normed).mean(axis=1, keepdims=True)
    d_mixed *= inverse_std
    gradients[f"{name}.weight"] = d_mixed.T @ inputs
    backward: Array = d_mixed @ parameters[f"{name}.weight"]
    return backward
