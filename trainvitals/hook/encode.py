"""From what a trainer hands over to JSON text: fast for plain numbers, and never raising for anything else."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, cast

MAX_STEP = 2**63 - 1
MAX_TEXT = 4_000
MAX_DATA_BYTES = 65_536
MAX_DEPTH = 8
MAX_ITEMS = 1_000
#: Of all levels together. A mapping of somebody's own class may have no end.
MAX_ALL_ITEMS = 20_000
_MAX_EXACT = 2**53
#: Counts of a whole record of skipped and unusable values.
Counts = tuple[int, int]

_keys: dict[str, str] = {}
_MAX_KEYS = 10_000


def key(name: object) -> str:
    """``"name":`` as JSON text, remembered because the same few names come at every step."""
    if type(name) is str:
        known = _keys.get(name)
        if known is not None:
            return known
        text = json.dumps(name) + ":"
        if len(_keys) < _MAX_KEYS:
            _keys[name] = text
        return text
    return json.dumps(_safe_text(name)) + ":"


def step_number(step: object) -> int | None:
    """The step as a number that every reader can hold; None when it is none."""
    if type(step) is int:
        return step if -MAX_STEP <= step <= MAX_STEP else None
    try:
        number = int(step)  # type: ignore[call-overload]
    except Exception:  # noqa: BLE001 - any object may come; the caller counts the lost record
        return None
    return number if -MAX_STEP <= number <= MAX_STEP else None


def number(value: object) -> float | int | None:
    """A number from anything that is one (numpy, tensors on the host, callables without arguments); None for the rest.

    Raises what the object raises.
    """
    for _ in range(2):
        kind = type(value)
        if kind is float:
            return value  # type: ignore[return-value]
        if kind is int:
            return value if -_MAX_EXACT <= value <= _MAX_EXACT else float(value)  # type: ignore[operator,arg-type,return-value]
        if value is None or isinstance(value, (bool, str, bytes)):
            return None
        if hasattr(value, "__float__") or hasattr(value, "__index__"):
            return float(value)  # type: ignore[arg-type]
        if not callable(value):
            return None
        value = value()
    return None


def values(metrics: Mapping[Any, object]) -> tuple[str, Counts]:
    """``"values":{…}`` and, only when there is one, ``,"nonfinite":{…}``; with the counts (skipped, errors).

    Booleans and None are skipped on purpose (a metric that is not there this step); text and failing objects are errors.
    """
    parts: list[str] = []
    bad: list[str] = []
    skipped = errors = 0
    for name, value in metrics.items():
        if type(value) is float:
            # inf - inf and nan - nan are nan: one comparison finds all three non-finite values.
            if value - value == 0.0:
                parts.append((_keys.get(name) or key(name)) + repr(value))
            else:
                bad.append(key(name) + _nonfinite(value))
            continue
        if value is None or value is True or value is False:
            skipped += 1
            continue
        try:
            usable = number(value)
        except Exception:  # noqa: BLE001 - tensors and callables raise anything; the count tells of it
            usable = None
        if usable is None:
            errors += 1
        elif type(usable) is int or usable - usable == 0.0:
            parts.append(key(name) + repr(usable))
        else:
            bad.append(key(name) + _nonfinite(usable))
    text = '"values":{' + ",".join(parts) + "}"
    if bad:
        text += ',"nonfinite":{' + ",".join(bad) + "}"
    return text, (skipped, errors)


def resolve(metrics: Mapping[Any, object]) -> dict[Any, object]:
    """A copy whose tensors and other objects are numbers already, so that a later in-place change cannot alter them.

    Callables stay: they are asked later, in the writer's thread. What fails becomes an object that is counted there.
    """
    found: dict[Any, object] = {}
    for name, value in metrics.items():
        kind = type(value)
        if kind is float or kind is int or kind is bool or value is None or isinstance(value, str):
            found[name] = value
        elif hasattr(value, "__float__") or hasattr(value, "__index__"):
            try:
                found[name] = float(value)  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001 - counted when the record is written: text is no number
                found[name] = "unusable"
        else:
            found[name] = value
    return found


def data(content: Mapping[Any, object]) -> str:
    """Any mapping as one JSON object of bounded size. What JSON lacks (NaN, objects, cycles) becomes text.

    Raises only what a hostile ``__len__`` or ``items`` raises; the caller counts it.
    """
    if not content:
        return "{}"
    is_plain = _is_plain(content)
    if is_plain is None:
        return json.dumps({"truncated_items": f"more than {MAX_ALL_ITEMS:,}", "keys": _first_names(content)})
    if not is_plain:
        content = cast("dict[str, object]", _Plain().copy(content, MAX_DEPTH))
    try:
        text = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = json.dumps(_Plain().copy(content, MAX_DEPTH))
    if len(text) > MAX_DATA_BYTES:
        return json.dumps({"truncated_bytes": len(text), "keys": _first_names(content)})
    return text


def text(value: object) -> str:
    """A JSON string of bounded length."""
    return json.dumps(_safe_text(value))


_ATOMS = frozenset({str, int, float, bool, type(None)})


def _first_names(content: Mapping[Any, object]) -> list[str]:
    return [_safe_text(name)[:100] for name in itertools.islice(content, 50)]


def _is_plain(content: object) -> bool | None:
    """Whether it is made of Python's own types only, which have an end; None: so it is as far as it was looked at, and too long."""
    waiting = [content]
    seen = 0
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in _ATOMS:
            continue
        if kind is dict:
            inner: Collection[object] = cast("dict[object, object]", value).values()
            if not all(type(name) in _ATOMS for name in cast("dict[object, object]", value)):
                return False
        elif kind is list or kind is tuple:
            inner = cast("list[object]", value)
        else:
            return False
        seen += len(inner)
        if seen > MAX_ALL_ITEMS:
            return None
        waiting += inner
    return True


class _Plain:
    """A copy of Python's own types, bounded in depth, in items of a level and in all."""

    def __init__(self) -> None:
        self._left = MAX_ALL_ITEMS

    def copy(self, value: object, depth: int) -> object:
        self._left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _safe_text(value)
        if isinstance(value, int):
            return int(value) if abs(value) <= MAX_STEP else _safe_text(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else _nonfinite(value).strip('"')
        most = min(MAX_ITEMS, max(0, self._left))
        if depth > 0 and isinstance(value, Mapping):
            return {_safe_text(name): self.copy(value[name], depth - 1) for name in itertools.islice(value, most)}
        if depth > 0 and isinstance(value, (list, tuple, set, frozenset)):
            return [self.copy(item, depth - 1) for item in itertools.islice(value, most)]
        return _safe_text(value)


def _nonfinite(value: float) -> str:
    return '"nan"' if value != value else '"inf"' if value > 0 else '"-inf"'


def _safe_text(value: object) -> str:
    try:
        return (value if type(value) is str else str(value))[:MAX_TEXT]
    except Exception:  # noqa: BLE001 - a __str__ that raises, or an int too long to print; its type still tells something
        return f"<{type(value).__name__}>"
