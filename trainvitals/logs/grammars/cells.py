"""What grammars of ``name value`` logs share: a trainer's names into the schema's, large units, dates with slashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from trainvitals.logs.values import Metrics, parse_number, slug

#: A trainer's name -> (metric, factor); the metric "" is left out.
Names = Mapping[str, tuple[str, float]]
LEFT_OUT = ("", 1.0)
#: metaseq logs several norms of each of 96 layers before the loss.
_MAX_PAIRS = 1000

_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})/(\d\d)/(\d\d)(?= \d\d:\d\d)", re.ASCII)
_YEAR_LAST = re.compile(r"(?<![\d/])(\d\d)/(\d\d)/(\d{4})(?= \d\d:\d\d)", re.ASCII)
_GLOG_YEAR = re.compile(r"\b[IWEF](\d{4})(\d\d)(\d\d)(?= \d\d:\d\d)", re.ASCII)
_PAIR = re.compile(r"(?<![\w./@-])([A-Za-z_][\w/.@-]{0,80})(?:: {0,12}|=)([^\s,;]{1,60})")
#: Billions, and what overflows the largest unit (nanotron prints an infinite number as ``infE``).
_LARGE = re.compile(r"([-+]?(?:\d{1,30}(?:\.\d{1,30})?|inf))([BPE])\Z", re.ASCII)
_LARGE_UNITS = {"B": 1e9, "P": 1e15, "E": 1e18}


def metrics_of(pairs: Iterable[tuple[str, str]], names: Names, number: Callable[[str], float | None] = parse_number) -> Metrics:
    """The pairs that are numbers, under the schema's names; a name that is not in ``names`` becomes an extra metric."""
    metrics = Metrics()
    for count, (key, raw) in enumerate(pairs):
        if count >= _MAX_PAIRS:
            break
        name, factor = names.get(key) or (slug(key), 1.0)
        if name and (value := number(raw)) is not None:
            metrics.put(name, value * factor)
    return metrics


def pairs_of(text: str) -> list[tuple[str, str]]:
    """``key: value``, ``key:value`` and ``key=value`` in ``text``, whatever stands between them."""
    return [(found[1], found[2]) for found in islice(_PAIR.finditer(text), _MAX_PAIRS)]


def parse_large_number(text: str) -> float | None:
    """As ``parse_number``, and ``1.5B``, ``2P``, ``3E``."""
    found = _LARGE.match(text.strip())
    return float(found[1]) * _LARGE_UNITS[found[2]] if found else parse_number(text)


def with_iso_dates(text: str) -> str:
    """``01/02/2026 03:04:05``, ``2026/01/02 03:04:05`` and glog's ``I20260102 03:04:05`` as ``2026-01-02 …`` (month first)."""
    text = _YEAR_FIRST.sub(r"\1-\2-\3", text)
    text = _YEAR_LAST.sub(r"\3-\1-\2", text)
    return _GLOG_YEAR.sub(r"\1-\2-\3", text)
