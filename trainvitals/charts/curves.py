"""What the curve chart shows, as plain records, free of any drawing library.

The x value is a step (``by="step"``) or UTC milliseconds since the epoch (``by="time"``) everywhere in these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainvitals.charts.figure import figure_dict
from trainvitals.charts.typed import to_json
from trainvitals.records import Severity

By = Literal["step", "time"]
LineKind = Literal["checkpoint", "restart", "pause", "resume", "onset"]
SpanKind = Literal["incident", "paused", "stall"]
OVERVIEW_ROWS = ("loss", "throughput")


@dataclass(frozen=True, eq=False)
class CurveSeries:
    """One metric of one attempt; all arrays have one length and ascend in x.

    low, high, mean: float32, per bucket; NaN = a gap (a non-finite value stood there). n: points in each bucket.
    """

    metric: str
    attempt: int
    is_superseded: bool
    x: npt.NDArray[np.float64] | npt.NDArray[np.int64]
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float32]
    n: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """Values that come now and then, such as losses on held-out data: points in the row of ``metric``, not a line. One length, x ascends."""

    metric: str
    name: str
    attempt: int
    is_superseded: bool
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float32]
    steps: tuple[int | None, ...]


@dataclass(frozen=True)
class CurveMarker:
    """One finding (or non-finite bucket) at a point; y None = on the top edge of the metric's row."""

    metric: str
    x: float
    y: float | None
    rule: str
    severity: Severity
    title: str
    text: str
    finding_id: str
    step: int | None


@dataclass(frozen=True)
class CurveSpan:
    """A shaded stretch; x1 None = still going on."""

    x0: float
    x1: float | None
    kind: SpanKind
    severity: Severity
    label: str


@dataclass(frozen=True)
class CurveLine:
    """A vertical line. state: for a checkpoint its ``CheckpointState``, else empty."""

    x: float
    kind: LineKind
    label: str
    state: str = ""


@dataclass(frozen=True)
class CurveAnnotation:
    """A person's note: a line through all rows. silenced: rules that it silences from there on."""

    x: float
    title: str
    text: str
    by: str
    annotation_id: str
    step: int | None
    silenced: tuple[str, ...] = ()


@dataclass(frozen=True)
class CurveData:
    """Everything one curve chart shows. uirevision: as long as it stays the same, a viewer's zoom stays too. notes: row -> a
    word behind its title. log_rows: on a logarithmic axis where all their values are above zero. is_smooth: the running median of
    each line over its own faint line."""

    run: str
    by: By
    series: tuple[CurveSeries, ...]
    markers: tuple[CurveMarker, ...] = ()
    spans: tuple[CurveSpan, ...] = ()
    lines: tuple[CurveLine, ...] = ()
    x_range: tuple[float, float] | None = None
    uirevision: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    points: tuple[CurvePoints, ...] = ()
    annotations: tuple[CurveAnnotation, ...] = ()
    log_rows: frozenset[str] = frozenset({"grad_norm"})
    is_smooth: bool = False


def figure_json(data: CurveData, theme: str, rows: tuple[str, ...] | None = None, *, compact: bool = False) -> str:
    """Plotly figure (``{"data": …, "layout": …}``) as JSON without NaN.

    rows: row names in order ("loss", "grad_norm", "throughput", "lr", "gpu_utilization" or an extra metric's name);
    None = every row that has something to show. theme: "light" or "dark". compact: small margins, for the overview.
    """
    return to_json(figure_dict(data, theme, rows, compact=compact))


def overview_figure_json(data: CurveData, theme: str) -> str:
    """The overview's small chart: loss and throughput only."""
    return figure_json(data, theme, OVERVIEW_ROWS, compact=True)
