"""The numbers of one line of an unknown trainer as metrics of the schema."""

from __future__ import annotations

import math

from trainvitals.logs.grammars.line_shapes import Reading
from trainvitals.logs.grammars.shape_words import is_of_a_part, is_of_a_value, loss_rank, metric_of
from trainvitals.logs.values import Metrics, parse_number, slug
from trainvitals.schema import TRAIN_METRICS


def metrics_of_reading(reading: Reading) -> tuple[Metrics, dict[str, float]]:
    """The metrics of the step, the loss first; and what the line tells of a validation."""
    metrics = Metrics()
    validation: dict[str, float] = {}
    loss = _number(reading.loss.raw)
    if loss is not None and not (_is_of_parts(reading) and math.isfinite(loss)):
        metrics.put("loss", loss)
    for pair in reading.pairs:
        value = _number(pair.raw)
        if value is None or (pair is reading.loss and "loss" in metrics):
            continue
        named = metric_of(pair.key, pair.unit)
        if named is None:
            continue
        kind, name, factor = named
        if kind == "validation":
            validation.setdefault(name, value)
            continue
        if name == "loss" or (name not in TRAIN_METRICS and loss_rank(pair.key) is not None):
            name, factor = slug(pair.key) or "x_loss", 1.0
            name = "x_loss" if name == "loss" else name
        if factor == 0.0:
            value = 1.0 / value if value > 0 else None
        if value is not None and not (name == "step_time_s" and not 0 <= value < float("inf")):
            metrics.put(name, value * (factor or 1.0))
    return metrics, validation


def _is_of_parts(reading: Reading) -> bool:
    """Whether the line tells a critic's loss and no total: such a loss grows as the rewards do, and stays under its own name."""
    return is_of_a_part(reading.loss.key) and any(
        is_of_a_value(pair.key) and loss_rank(pair.key) is not None for pair in reading.pairs
    )


def _number(raw: str) -> float | None:
    return parse_number(raw.replace("Infinity", "inf").replace("infinity", "inf"))
