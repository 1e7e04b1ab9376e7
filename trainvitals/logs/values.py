"""Numbers as trainers print them, and names for the metrics that have none in the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from trainvitals.records import NonFinite, nonfinite_name
from trainvitals.schema import MAX_EXTRA_METRICS, TRAIN_METRICS

_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
#: C libraries add what kind of NaN it is (``-nan(ind)``, ``nan(0x8000000000000)``), or write ``1.#QNAN`` and ``1.#INF``;
#: PaddlePaddle fills it up: ``nanxxx``.
_NONFINITE = re.compile(
    r"([+-]?)(?:(nan|inf(?:inity)?)(?:\.0|x{1,8}|\((?:s?nan|ind|0x[0-9a-f]{1,16})\))?|1\.#(qnan|snan|ind|inf)0{0,6})\Z",
    re.IGNORECASE,
)
_SUFFIX = {"": 1.0, "%": 1.0, "ms": 1.0, "s": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "GiB": 1.0}
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_NAMED = frozenset(TRAIN_METRICS)
_MAX_KNOWN = 64
#: Columns the stores keep beside the metrics; an extra metric of that name would collide.
_RESERVED = frozenset(
    {"step", "run", "attempt", "worst_rank", "nonfinite", "time_estimated", "time", "time_ns", "ts", "series", "n"}
)


def parse_number(text: str) -> float | None:
    """The number in ``text``, which may be NaN or infinite; None when it is none (``N/A``, a word).

    Accepts ``2.6E+00``, ``9,123``, ``11.5K``, ``13.99%``, ``nan.0``, quotes around it, and takes the first of
    ``value/average`` (AMD Primus), ``value (running mean)`` (BEiT) and ``40.50GiB(51.20%)`` (torchtitan).
    """
    text = text.strip().strip("'\"")
    special = _NONFINITE.match(text)
    if special:
        is_infinite = (special[2] or special[3]).lower().startswith("inf")
        return float(special[1] + "inf") if is_infinite else math.nan
    found = _NUMBER.match(text)
    if found is None or len(text) > 200:
        return None
    suffix = re.split(r"[\s/(]", text[found.end() :], maxsplit=1)[0]
    factor = _SUFFIX.get(suffix)
    if factor is None:
        return None
    try:
        return float(found[0].replace(",", "")) * factor
    except ValueError:
        return None


def as_number(value: object) -> float | None:
    """A JSON or Python value as a number (strings too: newer trainers quote them); None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return parse_number(value)
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # hundreds of digits: as 1e400, which JSON readers take for infinity
            return math.inf if value > 0 else -math.inf
    return None


def slug(name: str) -> str | None:
    """A metric's name as ``EXTRA_METRIC_NAME`` allows it; None when nothing is left of it."""
    text = _NOT_SLUG.sub("_", name.lower()).strip("_")
    if not text:
        return None
    if text in _RESERVED or text.endswith("_nf") or not "a" <= text[0] <= "z":
        text = "x_" + text.removesuffix("_nf")
    return text[:64].rstrip("_")


class Metrics:
    """Collects the values of one step: finite ones in ``values``, the others by name in ``nonfinite``."""

    __slots__ = ("nonfinite", "values")

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.nonfinite: dict[str, NonFinite] = {}

    def put(self, name: str, value: float) -> None:
        """The first value of a name stays."""
        if name in self.values or name in self.nonfinite:
            return
        kind = nonfinite_name(value)
        if kind is None:
            self.values[name] = value
        else:
            self.nonfinite[name] = kind

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.nonfinite

    def __bool__(self) -> bool:
        return bool(self.values or self.nonfinite)


def json_safe(values: Mapping[str, float]) -> dict[str, object]:
    """Numbers for ``Event.data``: JSON has no NaN, so a non-finite one becomes its name."""
    return {name: nonfinite_name(value) or value for name, value in values.items()}


def is_extra(name: str) -> bool:
    """Whether a metric has no name of its own in the schema."""
    return name not in _NAMED


class ExtraMetrics:
    """Lets the first ``MAX_EXTRA_METRICS`` extra metrics of a log through. ``dropped`` counts the values of all others.

    State: their names, and that count.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._known: set[tuple[str, ...]] = set()
        self.dropped = 0

    def limited(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """``values`` without what is beyond the limit; the same object when nothing is."""
        keys = tuple(values)
        if keys in self._known:  # a trainer logs the same names over and over
            return values
        names = self._names
        for name in keys:
            if is_extra(name) and len(names) < MAX_EXTRA_METRICS:
                names.add(name)
        kept = {name: value for name, value in values.items() if not is_extra(name) or name in names}
        if len(kept) < len(keys):
            self.dropped += len(keys) - len(kept)
            return kept
        if len(self._known) < _MAX_KNOWN:
            self._known.add(keys)
        return values

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"names": sorted(self._names), "dropped": self.dropped}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._names, self.dropped = set(state["names"]), int(state["dropped"])
