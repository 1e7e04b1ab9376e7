"""A configuration that a trainer printed into its log, as ``metadata`` events: flat, without secrets, in bounded parts.

Nothing is evaluated: JSON is decoded, the text of a Python dict is read by a scanner that knows literals only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainvitals.masking import MASK, is_secret_name, mask_arguments, mask_cut_text, mask_json, secret_members
from trainvitals.records import Event, nonfinite_name

Plain = str | int | float | bool | None

#: Bytes of one part's values as JSON, of all of them, and characters of one value.
MAX_PART_BYTES = 32 * 1024
MAX_BYTES = 256 * 1024
_MAX_VALUE = 2000
_MAX_DEPTH = 20
LEFT_OUT = "config_keys_left_out"

_LITERAL = re.compile(
    r"\s*(?:(?P<open>[\[({])|(?P<close>[\])}])|(?P<mark>[,:])"
    r"|(?P<text>'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\")"
    r"|(?P<word>[^\s,:\[\](){}'\"][^,:\[\](){}'\"]{0,400}))",
    re.ASCII | re.DOTALL,
)


def config_events(values: Mapping[str, Any], text: str, time_ns: int | None = None, step: int | None = None) -> list[Event]:
    """``metadata`` events of section ``config``; ``values`` may be nested. Empty when there is nothing to tell.

    What is beyond the bounds is counted in the key ``config_keys_left_out``, together with what the caller counts there.
    """
    parts: list[dict[str, Plain]] = [{}]
    size = total = left_out = 0
    for key, value in _flat(values):
        bytes_needed = len(json.dumps({key: value}, ensure_ascii=True))
        if total + bytes_needed > MAX_BYTES:
            left_out += 1
            continue
        total += bytes_needed
        if parts[-1] and size + bytes_needed > MAX_PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][key] = value
        size += bytes_needed
    if left_out:
        told = values.get(LEFT_OUT, 0)
        for part in parts:
            part.pop(LEFT_OUT, None)
        parts[-1][LEFT_OUT] = left_out + (told if isinstance(told, int) else 0)
    return [
        Event(
            "metadata", time_ns, step=step, text=text[:500],
            data={"section": "config", "values": part, "part": number, "parts": len(parts)},
        )
        for number, part in enumerate(parts)
        if part
    ]  # fmt: skip


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Plain]]:
    """Dotted names and plain values; what looks like a secret by its name or its shape is ``***``."""
    for key, value in _flattened(values, "", 0):
        if is_secret_name(key, value):
            value = MASK if value else value
        elif isinstance(value, str):
            value = mask_cut_text(value, _MAX_VALUE)
        elif isinstance(value, float) and not math.isfinite(value):
            value = nonfinite_name(value)
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
            value = f"{value:.6e}" if abs(value) < 10**300 else "too large"
        yield key[:300], value


def _flattened(value: Any, name: str, depth: int) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH and value:
        secrets = secret_members(value)
        for key, inner in value.items():
            yield from _flattened(MASK if key in secrets else inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        yield name, ", ".join(_items(value, depth))
    elif value is None or isinstance(value, (str, int, float, bool)):
        yield name, value
    else:
        yield name, str(value)[:_MAX_VALUE]


def _items(values: Sequence[Any], depth: int) -> list[str]:
    """It may be a command line: ["--hub_token", "…"], a list of pairs, or one of mappings with name and value."""
    texts = [
        str(mask_json(item, _MAX_DEPTH - depth))[:_MAX_VALUE]
        if isinstance(item, (Mapping, list, tuple))
        else str(item)[:_MAX_VALUE]
        for item in values[:200]
    ]
    return mask_arguments(texts)


def read_mapping(text: str) -> dict[str, Any] | None:
    """The mapping that ``text`` (JSON, or the text of a Python dict) begins with; None when it is neither, or not whole."""
    if len(text) > 512 * 1024:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        found = _python_literal(text)
    return found if isinstance(found, dict) else None


def scalar(text: str) -> str | int | float | bool | None:
    """A bare word of a configuration: a number, True, False, None, else the text itself."""
    text = text.strip()
    if text in ("True", "true"):
        return True
    if text in ("False", "false"):
        return False
    if text in ("None", "null"):
        return None
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _python_literal(text: str) -> Any:
    """What the text of a Python container holds; words that are no literals (enums, classes) stay text. None when torn."""
    stack: list[Any] = []
    keys: list[str | None] = []
    position = 0
    while found := _LITERAL.match(text, position):
        position = found.end()
        kind, piece = found.lastgroup, found[found.lastgroup or 0]
        if kind == "open":
            if len(stack) >= _MAX_DEPTH:
                return None
            stack.append({} if piece == "{" else [])
            keys.append(None)
            continue
        if not stack:
            return None
        if kind == "mark":
            continue
        if kind == "close":
            value: Any = stack.pop()
            keys.pop()
            if not stack:
                return value
        else:
            value = piece[1:-1].replace("\\'", "'").replace("\\\\", "\\") if kind == "text" else scalar(piece)
        if isinstance(stack[-1], list):
            stack[-1].append(value)
        elif keys[-1] is None:
            following = _LITERAL.match(text, position)
            if following is not None and following["mark"] == ":":
                keys[-1] = str(value)
                position = following.end()
        else:
            stack[-1][keys[-1]] = value
            keys[-1] = None
    return None
