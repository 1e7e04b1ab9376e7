"""The look of all charts: our own small base instead of a template, which would cost kilobytes at every refresh."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainvitals.charts.rows import RowStyle
from trainvitals.charts.text import escape
from trainvitals.charts.ticks import around_constant, linear_ticks, log_ticks, tick_text

FONT = '"Source Sans", "Source Sans 3", Inter, system-ui, sans-serif'


def layout_base(
    colours: Mapping[str, str], *, uirevision: str, by: str, x_range: tuple[float, float], compact: bool
) -> dict[str, Any]:
    """Layout without y axes, shapes and labels. Backgrounds are transparent: the card behind shows."""
    x_axis: dict[str, Any] = {
        "type": "date" if by == "time" else "linear",
        "range": list(x_range),
        "uirevision": uirevision,
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "linecolor": colours["line"],
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": colours["line"],
        "tickfont": {"color": colours["dim"], "size": 11},
        "automargin": False,
        "nticks": 7,
        "showspikes": True,
        "spikemode": "across",
        "spikesnap": "cursor",
        "spikethickness": 1,
        "spikedash": "solid",
        "spikecolor": colours["faint"],
    }
    if by == "time":
        x_axis |= {"hoverformat": "%H:%M:%S UTC · %d %b", "tickformatstops": _time_ticks()}
    else:
        x_axis |= {"hoverformat": ",.0f", "tickformat": ",~d", "unifiedhovertitle": {"text": "step %{x:,.0f}"}}
    return {
        "template": None,
        "uirevision": uirevision,
        "autosize": True,
        "margin": {"l": 54, "r": 10, "t": 20 if compact else 24, "b": 40 if by == "time" else 26, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": colours["ink"]},
        "showlegend": False,
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "hoverdistance": 24,
        "dragmode": "zoom",
        "hoverlabel": {
            "bgcolor": colours["card"],
            "bordercolor": colours["line"],
            "font": {"color": colours["ink"], "size": 12, "family": FONT},
            "align": "left",
        },
        "xaxis": x_axis,
    }


def axis_base(
    colours: Mapping[str, str],
    style: RowStyle,
    domain: tuple[float, float],
    *,
    is_log: bool,
    extent: tuple[float, float] | None = None,
    compact: bool = False,
) -> dict[str, Any]:
    """The y axis of one row; only x can be zoomed, y always follows the data. extent: lowest and highest value drawn."""
    axis: dict[str, Any] = {
        "domain": list(domain),
        "anchor": "x",
        "fixedrange": True,
        "nticks": 4 if style.weight >= 1.6 else 3,
        "tickformat": style.number,
        "ticksuffix": style.suffix,
        "exponentformat": "e",
        "gridcolor": colours["line"],
        "zeroline": False,
        "tickfont": {"color": colours["dim"], "size": 11},
    }
    most = 4 if style.weight >= 1.6 and not compact else 3
    if is_log and extent is not None:
        low, high = math.log10(extent[0]) - _air(extent), math.log10(extent[1]) + _air(extent)
        # Values that hardly differ fill a thin band of what is drawn: labels between them alone would lie on each other.
        is_narrow = high - low > 2 * math.log10(extent[1] / extent[0])
        ticks = log_ticks(10**low, 10**high, most) if is_narrow else log_ticks(*extent, most)
        axis |= {"type": "log", "minor": {"showgrid": False}, "range": [low, high]} | _explicit(ticks)
    elif extent is not None and (near := around_constant(*extent)) is not None:
        axis |= {"range": list(near)} | _explicit(linear_ticks(*near, most))
    elif style.from_zero:
        axis["rangemode"] = "tozero"
    elif extent is not None and style.number == "~e":
        axis |= _explicit(linear_ticks(*extent, most))
    return axis


def _explicit(values: list[float]) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": values, "ticktext": [tick_text(value) for value in values]}


def _air(extent: tuple[float, float]) -> float:
    """Room above and below on a log axis, in decades: a mark on the highest value is still whole."""
    return max(0.12 * math.log10(extent[1] / extent[0]), 0.1)


def overlay_axis(base: str) -> dict[str, Any]:
    """An invisible 0…1 axis over a row: what has no value (a NaN) stands at its top edge."""
    return {"overlaying": base, "range": [0, 1], "fixedrange": True, "visible": False}


def row_title(colours: Mapping[str, str], title: str, top: float, *, has_data: bool, more: str = "") -> dict[str, Any]:
    """The row's name above its left end. more: Plotly's markup of our own making, behind the name."""
    text = f"<b>{escape(title)}</b>" + more + ("" if has_data else " · not logged in this range")
    return {
        "name": "title",
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": colours["dim"], "size": 11.5},
    }


def unit_note(colours: Mapping[str, str], unit: str) -> dict[str, Any]:
    """What the x axis counts, or its zone: left of its first tick, in the margin where no tick's own label reaches."""
    return {
        "name": "title", "text": unit, "xref": "paper", "yref": "paper", "x": 0, "y": 0, "xanchor": "right", "yanchor": "top",
        "xshift": -22, "yshift": -4, "showarrow": False, "font": {"color": colours["dim"], "size": 11},
    }  # fmt: skip


def _time_ticks() -> list[dict[str, Any]]:
    """Hours and minutes close up, the date as soon as days matter."""
    return [
        {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
        {"dtickrange": [60_000, 86_400_000], "value": "%H:%M\n%d %b"},
        {"dtickrange": [86_400_000, None], "value": "%d %b\n%Y"},
    ]
