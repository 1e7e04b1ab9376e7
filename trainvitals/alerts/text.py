"""Untrusted text and numbers as a message shows them: one line, nothing invisible, nothing longer than it may be. Pure."""

from __future__ import annotations

import math
import unicodedata

#: Line and paragraph separators, controls, formats (among them those that turn the direction of reading), surrogates, unassigned.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters. What is cut ends in ``…``; what cannot be seen becomes a space or goes."""
    kept = "".join(_seen(c) for c in text[: 4 * limit + 100])
    return cut(" ".join(kept.split()), limit)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, ``…`` at the end of what was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip(" ,;:·(") + "…"


def cut_middle(text: str, limit: int) -> str:
    """At most ``limit`` characters: of a long name both ends are kept, runs differ at either."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return text[: limit - 1 - tail] + "…" + (text[-tail:] if tail else "")


def number(value: float) -> str:
    """``2.94``, ``5,120``, ``0.031``: three significant digits, at least two decimals below a hundred."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e5 or (0 < size < 1e-3):
        return f"{value:.3g}"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if size >= 1 or size == 0 else f"{value:.3g}"


def numbers(expected: float, value: float) -> tuple[str, str]:
    """Both with as many digits as it takes to show that they differ."""
    before, after = number(expected), number(value)
    digits = 4
    while before == after and expected != value and digits <= 9:
        before, after = f"{expected:.{digits}g}", f"{value:.{digits}g}"
        digits += 1
    return before, after


def finite(value: float | None) -> float | None:
    """The value when it is a number that can be shown, None when it is NaN or infinite: the sentence without numbers says that."""
    return value if value is not None and math.isfinite(value) else None


def whole(value: float) -> str:
    """``5,120``"""
    return f"{round(value):,}" if math.isfinite(value) else str(value)


def percent(expected: float, value: float) -> str:
    """How far ``value`` is from ``expected``, without a sign: ``27 %``, ``0.4 %``; empty when there is nothing to compare with."""
    if expected == 0 or not (math.isfinite(expected) and math.isfinite(value)):
        return ""
    share = 100 * abs(value - expected) / abs(expected)
    return f"{share:,.0f} %" if share >= 10 else f"{share:.1f} %"


def _seen(character: str) -> str:
    category = unicodedata.category(character)
    if category not in _HIDDEN:
        return character
    return " " if category in ("Cc", "Zl", "Zp") else ""
