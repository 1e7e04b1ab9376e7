"""The rows of the curve chart: which metric stands where, under which title, in which colour and number format."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.schema import THROUGHPUT_METRICS

GPU_UTILIZATION = "gpu_utilization"
#: ``step_time_s`` is drawn as its inverse, so that a slower run always goes down.
STEPS_PER_S = "steps_per_s"
THROUGHPUT_ROW = "throughput"
ROW_ORDER = ("loss", "grad_norm", THROUGHPUT_ROW, "lr", GPU_UTILIZATION)


@dataclass(frozen=True)
class RowStyle:
    """colour: a palette role. weight: share of the height. number, precise: d3 formats of ticks and of the hover box. from_zero: the axis starts at 0."""

    title: str
    colour: str
    weight: float
    number: str
    precise: str
    from_zero: bool = False
    suffix: str = ""


_STYLES = {
    "loss": RowStyle("loss", "loss", 3.0, "~g", ".5~g"),
    "grad_norm": RowStyle("grad norm", "grad_norm", 2.0, "~g", ".4~g"),
    "lr": RowStyle("learning rate", "lr", 1.3, "~e", ".4~e"),
    GPU_UTILIZATION: RowStyle("GPU utilization", "gpu", 1.3, "~g", ".4~g", from_zero=True, suffix=" %"),
}
_THROUGHPUT_TITLES = {
    "tokens_per_s": "tokens/s",
    "samples_per_s": "samples/s",
    "tflops_per_gpu": "TFLOP/s per GPU",
    STEPS_PER_S: "steps/s",
}


def row_of(metric: str) -> str:
    """Row that shows a metric: all throughput metrics share one."""
    return THROUGHPUT_ROW if metric in THROUGHPUT_METRICS or metric == STEPS_PER_S else metric


def row_style(row: str, metric: str) -> RowStyle:
    """Style of a row that shows ``metric``; an extra metric gets its own name as title."""
    if row == THROUGHPUT_ROW:
        return RowStyle(_THROUGHPUT_TITLES.get(metric, THROUGHPUT_ROW), "throughput", 1.6, "~s", ".4~s", from_zero=True)
    return _STYLES.get(row) or RowStyle(metric, "extra", 1.6, "~g", ".5~g")
