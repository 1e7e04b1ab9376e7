"""Strict, bounded JSON: duplicate keys, deep nesting and endless numbers are refused instead of costing memory or time."""

from __future__ import annotations

import json
from typing import Any


class BadJson(Exception):
    """Not JSON, or not JSON that an honest writer makes. The text says why."""


def parse(raw: bytes, *, allow_nonfinite: bool = False, max_brackets: int = 2_000_000) -> Any:
    """Parse UTF-8 JSON. ``allow_nonfinite`` accepts Python's ``NaN`` and ``Infinity`` (``trainer_state.json`` holds them)."""
    if raw.count(b"[") + raw.count(b"{") > max_brackets:
        raise BadJson("it nests more lists and objects than any checkpoint does")
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=None if allow_nonfinite else _refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise BadJson(f"it is not valid JSON ({error.msg} at character {error.pos})") from error
    except RecursionError as error:
        raise BadJson("it is nested too deeply") from error
    except ValueError as error:
        # int() refuses numbers of more than 4,300 digits.
        raise BadJson("it holds a number that no checkpoint has") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadJson("it names the same key twice")
    return found


def _refuse_constant(name: str) -> float:
    raise BadJson(f"it holds {name}, which JSON does not know")
