"""Text for charts: Plotly reads a small HTML dialect in every text, so whatever comes from outside is escaped here."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]+")


def plain(text: str, limit: int = 160) -> str:
    """One line without control or direction-changing characters, cut to ``limit`` characters."""
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def escape(text: str, limit: int = 160) -> str:
    """Plain text in Plotly's pseudo-HTML: tags such as ``<a href>`` are shown, never obeyed."""
    return plain(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def template_text(text: str, limit: int = 160) -> str:
    """Escaped text that may stand in a hover template, where ``%{…}`` would otherwise be looked up."""
    return escape(text, limit).replace("%{", "% {")


def wrapped(text: str, limit: int = 240, width: int = 70) -> list[str]:
    """Plain text in lines of about ``width`` characters; not escaped yet."""
    lines, row = [], ""
    for word in plain(text, limit).split(" "):
        if len(row) + len(word) > width and row:
            lines.append(row)
            row = ""
        row = f"{row} {word}".strip()
    return [*lines, row]


def number(value: float) -> str:
    """At most four digits that mean something, SI suffix from 10,000 on: 2.314, 0.0003, 2.61 M."""
    size = abs(value)
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From what would be rounded up to it: 999,999 is 1 M, not 1e+03 k.
        if size >= (9_999.5 if suffix == "k" else 0.9995 * factor):
            scaled = value / factor
            return f"{scaled:,.0f} {suffix}" if abs(scaled) >= 999.5 else f"{scaled:.3g} {suffix}"
    if size and size < 1e-3:
        return f"{value:.3g}"
    return f"{value:.4g}"
