"""Durations and GPU-hours as people say them."""

from __future__ import annotations

import math


def gpu_hours(amount: float) -> str:
    """``2,650 GPU-h``, ``85 GPU-h``, ``0.4 GPU-h``; empty when it rounds to nothing."""
    if amount < 0.05:
        return ""
    if amount < 9.95:
        return f"{amount:.1f}".removesuffix(".0") + " GPU-h"
    return f"{round(amount, -1 if amount >= 1000 else 0):,.0f} GPU-h"


def span(seconds: float | None) -> str:
    """A duration for people: ``850 ms``, ``8 s``, ``4 min 12 s``, ``3 h 05 min``, ``2 d 4 h``; ``?`` when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
