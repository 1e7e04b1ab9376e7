"""Colours by role, for light and dark. Colour never speaks alone: wherever a status colour stands, a word or a glyph stands too.

Roles that end in ``_text``, ``ink``, ``dim`` and ``note`` are for text: at least 4.5 : 1 on ``card`` and ``bg`` (WCAG AA).

Status colours are distinguishable with the common colour-vision deficiencies (derived from the Okabe-Ito set).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "ok": "#009e73",
        "info": "#0072b2",
        "warning": "#b87700",
        "critical": "#c4410b",
        "paused": "#3d6fb4",
        "ok_text": "#00775a",
        "warning_text": "#8a5900",
        "critical_text": "#b23a09",
        "paused_text": "#35639f",
        "loss": "#3457b1",
        "validation": "#b0307e",
        "note": "#66740f",
        "grad_norm": "#7a4fa3",
        "throughput": "#2a7f7a",
        "lr": "#8a5a44",
        "gpu": "#5b6b80",
        "extra": "#4a5d73",
        "faint": "#9aa3af",
        "line": "#e3e6eb",
        "ink": "#15181d",
        "dim": "#626b78",
        "card": "#ffffff",
        "bg": "#f7f8fa",
        "pale": "#e9edf1",
    }
)
DARK: Mapping[str, str] = MappingProxyType(
    {
        "ok": "#35c79d",
        "info": "#56b4e9",
        "warning": "#f0b429",
        "critical": "#ff7a45",
        "paused": "#7fb0f5",
        "ok_text": "#35c79d",
        "warning_text": "#f0b429",
        "critical_text": "#ff7a45",
        "paused_text": "#7fb0f5",
        "loss": "#8aa8ff",
        "validation": "#f48bc4",
        "note": "#c3d34f",
        "grad_norm": "#c59bee",
        "throughput": "#63c9c1",
        "lr": "#d9a68c",
        "gpu": "#a3b1c4",
        "extra": "#b3c0d1",
        "faint": "#667080",
        "line": "#272d36",
        "ink": "#e8ebef",
        "dim": "#98a2b0",
        "card": "#171b21",
        "bg": "#0f1216",
        "pale": "#222831",
    }
)


def palette(theme: str) -> Mapping[str, str]:
    """Role -> colour as ``#rrggbb``; every theme but ``"dark"`` is light."""
    return DARK if theme == "dark" else LIGHT


def with_alpha(colour: str, alpha: float) -> str:
    """``#rrggbb`` as ``rgba(r,g,b,alpha)``."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"
