"""Curve records → one Plotly figure: one x axis object, one y domain a row, one hover box and one spike line through all.

Only one shared x axis object makes the unified hover work across rows (``hoversubplots="axis"``); separate matched axes
show it in one row only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainvitals.charts.annotations import annotation_trace
from trainvitals.charts.annotations import legend as annotation_legend
from trainvitals.charts.layout import axis_base, layout_base, overlay_axis, row_title, unit_note
from trainvitals.charts.marks import marker_traces, shapes_and_labels
from trainvitals.charts.palette import palette, with_alpha
from trainvitals.charts.points import legend, points_trace
from trainvitals.charts.rows import GPU_UTILIZATION, ROW_ORDER, THROUGHPUT_ROW, RowStyle, row_of, row_style
from trainvitals.charts.smooth import running_median
from trainvitals.charts.text import escape, number, template_text
from trainvitals.charts.typed import typed

if TYPE_CHECKING:
    from trainvitals.charts.curves import CurveData, CurvePoints, CurveSeries

ROW_GAP_PX = 26
#: Two buckets further apart than this many usual distances have a hole between them (time axis only).
HOLE_DISTANCES = 6
#: Throughput only: buckets needed, share of them that may be cut off, and how many times the usual they must reach.
CLIP_LEAST = 50
CLIP_SHARE = 0.02
CLIP_TIMES = 2.0
#: Fewer points than this are their own trend.
SMOOTH_LEAST = 20


def figure_dict(data: CurveData, theme: str, rows: tuple[str, ...] | None, *, compact: bool = False) -> dict[str, Any]:
    """The figure as JSON values; see ``curves.figure_json``."""
    colours = palette(theme)
    shown = rows_shown(data, rows)
    x_range = x_extent(data)
    styles = {row: row_style(row, _metric_of(data, row)) for row in shown}
    layout = layout_base(colours, uirevision=data.uirevision or data.run, by=data.by, x_range=x_range, compact=compact)
    traces: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index, (row, domain) in enumerate(zip(shown, _domains([styles[row] for row in shown]), strict=True), 1):
        style = styles[row]
        in_row = [series for series in data.series if row_of(series.metric) == row]
        points = [one for one in data.points if row_of(one.metric) == row]
        is_log = row in data.log_rows and all_positive(in_row) and all((one.y > 0).all() for one in points)
        axis = axis_base(colours, style, domain, is_log=is_log, extent=_extent(in_row, points), compact=compact)
        title = style.title + (" (log)" if is_log else "") + (f" ({data.notes[row]})" if row in data.notes else "")
        if row == GPU_UTILIZATION:
            axis["range"] = [0, 105]
            axis |= {"tickmode": "array", "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
        elif row == THROUGHPUT_ROW and (top := clip_top(in_row)) is not None:
            axis |= {"range": [0, top.at], "rangemode": "normal"}
            title += f" · {top.count:,} {'peaks' if top.count > 1 else 'peak'} cut off, highest {number(top.highest)}"
        layout[_axis_name(index)] = axis
        layout[_axis_name(index + 50)] = overlay_axis(f"y{index if index > 1 else ''}")
        more = legend(points, colours) + (annotation_legend(data, colours) if index == 1 else "")
        annotations.append(row_title(colours, title, domain[1], has_data=bool(in_row or points), more=more))
        for series in sorted(in_row, key=lambda one: (not one.is_superseded, one.attempt)):
            traces += _series_traces(
                series, style, f"y{index if index > 1 else ''}", colours, by=data.by, is_smooth=data.is_smooth
            )
        traces += [points_trace(one, f"y{index if index > 1 else ''}", colours) for one in points]
        markers = [marker for marker in data.markers if row_of(marker.metric) == row]
        traces += marker_traces(markers, f"y{index if index > 1 else ''}", f"y{index + 50}", colours, is_log=is_log)
    if shown and (notes := annotation_trace(data, "y51", colours)) is not None:
        traces.append(notes)
    annotations.append(unit_note(colours, "UTC" if data.by == "time" else "step"))
    if shown:
        layout["xaxis"]["anchor"] = f"y{len(shown) if len(shown) > 1 else ''}"
    else:
        annotations.append(_empty_note(colours))
    shapes, labels = shapes_and_labels(data, x_range, colours, width_px=560 if compact else 900)
    layout["shapes"] = shapes
    layout["annotations"] = annotations + labels
    return {"data": traces, "layout": layout}


def rows_shown(data: CurveData, rows: tuple[str, ...] | None) -> list[str]:
    """Asked rows in the order asked; otherwise the usual order, then extra metrics by name, only those with data or marks."""
    if rows is not None:
        return list(dict.fromkeys(map(row_of, rows)))
    present = {row_of(one.metric) for one in data.series} | {row_of(one.metric) for one in data.markers}
    return [row for row in ROW_ORDER if row in present] + sorted(present.difference(ROW_ORDER))


def all_positive(series: list[CurveSeries]) -> bool:
    """A log axis is right only when it drops nothing: every finite value above zero, and at least one there."""
    lows = [one.low[np.isfinite(one.low)] for one in series]
    finite = np.concatenate(lows) if lows else np.empty(0, np.float32)
    return bool(finite.size) and bool((finite > 0).all())


def _extent(series: list[CurveSeries], points: list[CurvePoints]) -> tuple[float, float] | None:
    """Lowest and highest finite value drawn; None when there is none."""
    lows = [float(np.nanmin(one.low)) for one in series if np.isfinite(one.low).any()] + [float(one.y.min()) for one in points]
    highs = [float(np.nanmax(one.high)) for one in series if np.isfinite(one.high).any()] + [float(one.y.max()) for one in points]
    return (min(lows), max(highs)) if lows and highs else None


@dataclass(frozen=True)
class Top:
    """Where a row ends though a few values lie above: ``count`` buckets, the ``highest`` of them. All in the row's unit."""

    at: float
    count: int
    highest: float


def clip_top(series: list[CurveSeries]) -> Top | None:
    """The top of a throughput row that a few freak peaks would flatten; None when nothing has to be cut.

    Cut only where at most 2 % of at least 50 buckets reach twice what 98 % of the means stay below. Never for other rows:
    a spike of the loss is what a person looks for, a peak of the throughput is a clock or a first step.
    """
    means = np.concatenate([one.mean for one in series]) if series else np.empty(0, np.float32)
    highs = np.concatenate([one.high for one in series]) if series else np.empty(0, np.float32)
    means, highs = means[np.isfinite(means)], highs[np.isfinite(highs)]
    if len(means) < CLIP_LEAST:
        return None
    usual = float(np.quantile(means, 1 - CLIP_SHARE))
    above = highs[highs > CLIP_TIMES * usual]
    if usual <= 0 or not len(above) or len(above) > max(1, CLIP_SHARE * len(highs)):
        return None
    return Top(1.25 * usual, len(above), float(above.max()))


def x_extent(data: CurveData) -> tuple[float, float]:
    """The asked range, else from the first to the last thing there is, with a little air at the right."""
    if data.x_range is not None and data.x_range[0] < data.x_range[1]:
        return data.x_range
    ends = [float(edge) for one in data.series if len(one.x) for edge in (one.x[0], one.x[-1])]
    ends += [float(edge) for one in data.points for edge in (one.x[0], one.x[-1])]
    ends += [marker.x for marker in data.markers]
    ends += [edge for span in data.spans for edge in (span.x0, span.x1) if edge is not None]
    if not ends:
        return (0.0, 1.0)
    first, last = min(ends), max(ends)
    return (first, last + max((last - first) * 0.01, 1.0))


def _axis_name(index: int) -> str:
    return f"yaxis{index if index > 1 else ''}"


def _metric_of(data: CurveData, row: str) -> str:
    return next((one.metric for one in data.series if row_of(one.metric) == row), row)


def _domains(styles: list[RowStyle]) -> list[tuple[float, float]]:
    """(bottom, top) of each row in paper units, first row on top; the gap holds the row's title."""
    gap = 0.07 if len(styles) < 4 else 0.055
    room = 1.0 - gap * max(len(styles) - 1, 0)
    total = sum(style.weight for style in styles) or 1.0
    domains, top = [], 1.0
    for style in styles:
        bottom = top - room * style.weight / total
        domains.append((max(bottom, 0.0), top))
        top = bottom - gap
    return domains


def _series_traces(
    series: CurveSeries, style: RowStyle, axis: str, colours: Any, *, by: str, is_smooth: bool = False
) -> list[dict[str, Any]]:
    """A thin line through low and high of each bucket, so that a one-step spike is always seen, and the mean over it."""
    if not len(series.x):
        return []
    colour = colours["faint"] if series.is_superseded else colours[style.colour]
    x, low, high, mean = _with_holes(series) if by == "time" else (series.x, series.low, series.high, series.mean)
    has_range = bool(np.any(high > low))
    name = style.title + (f" · attempt {series.attempt}, run again later" if series.is_superseded else "")
    meta = {"kind": "series", "metric": series.metric, "attempt": series.attempt}
    common = {"type": "scatter", "mode": "lines", "xaxis": "x", "yaxis": axis, "connectgaps": False, "meta": meta}
    traces: list[dict[str, Any]] = []
    if has_range:
        traces.append(
            {
                **common,
                "x": typed(np.repeat(x, 2)),
                "y": typed(np.column_stack((low, high)).ravel().astype(np.float32)),
                "hoverinfo": "skip",
                "line": {"color": with_alpha(colour, 0.28 if series.is_superseded else 0.45), "width": 1},
            }
        )
    hover = f"%{{y:{style.precise}}}{style.suffix}"
    mean_trace = {
        **common,
        "x": typed(x),
        "y": typed(mean.astype(np.float32)),
        "name": escape(name),
        "line": {
            "color": with_alpha(colour, 0.55) if series.is_superseded else colour,
            "width": 1 if series.is_superseded else 1.5,
        },
    }
    if np.count_nonzero(np.isfinite(mean)) == 1:
        mean_trace |= {"mode": "lines+markers", "marker": {"size": 5, "color": colour}}
    if has_range:
        mean_trace["customdata"] = typed(np.column_stack((low, high)).astype(np.float32))
        hover += f" <i>%{{customdata[0]:{style.precise}}} – %{{customdata[1]:{style.precise}}}</i>"
    mean_trace["hovertemplate"] = f"{hover}<extra>{template_text(name)}</extra>"
    traces.append(mean_trace)
    if is_smooth and not series.is_superseded and len(mean) > SMOOTH_LEAST:
        mean_trace["line"] = {"color": with_alpha(colour, 0.4), "width": 1}
        line = {"color": colour, "width": 2}
        traces.append(
            {**common, "x": typed(x), "y": typed(running_median(mean)), "line": line, "hoverinfo": "skip",
             "meta": {**meta, "kind": "smooth"}}
        )  # fmt: skip
    return traces


def _with_holes(series: CurveSeries) -> tuple[Any, Any, Any, Any]:
    """Break the line where nothing was written for long (paused, down): a line across would claim values nobody saw."""
    x = np.asarray(series.x, dtype=np.float64)
    distances = np.diff(x)
    usual = float(np.median(distances)) if len(distances) > 2 else 0.0
    holes = np.flatnonzero(distances > HOLE_DISTANCES * usual) + 1 if usual > 0 else np.empty(0, np.int64)
    if not len(holes):
        return x, series.low, series.high, series.mean
    return (
        np.insert(x, holes, x[holes - 1]),
        np.insert(series.low, holes, np.nan),
        np.insert(series.high, holes, np.nan),
        np.insert(series.mean, holes, np.nan),
    )


def _empty_note(colours: Any) -> dict[str, Any]:
    return {
        "text": "nothing logged in this range", "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False,
        "font": {"color": colours["dim"], "size": 13}, "name": "title",
    }  # fmt: skip
