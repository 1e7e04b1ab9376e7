"""How one key of the settings is declared: default, help, choices. The loader and the documentation read all three."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any

from trainvitals.errors import SettingsError

#: Bounds of every number: beyond them waiting, listening and storing fail in ways that name no setting.
MAX_WHOLE = 10**15
MAX_PORT = 65_535
SECONDS = (0.001, 31_536_000.0)


def setting(default: Any, help: str, *, choices: tuple[str, ...] = (), is_shown: bool = True, may_be_zero: bool = False) -> Any:
    """``is_shown=False``: the value is left out of a ``repr``, because it may be a secret. ``may_be_zero``: a number that is no whole
    one and has a meaning at 0, which its help tells; a whole one may always be 0."""
    metadata = {"help": help, "choices": choices, "may_be_zero": may_be_zero}
    if isinstance(default, (list, dict, tuple)):
        return field(default_factory=lambda: default, metadata=metadata, repr=is_shown)
    return field(default=default, metadata=metadata, repr=is_shown)


def read_table(section: type, table: Mapping[str, Any], where: str) -> Any:
    """The dataclass ``section`` with what a TOML table says. Raises ``SettingsError`` for an unknown key or a wrong value."""
    known = {f.name: f for f in fields(section)}
    values = {}
    for key, value in table.items():
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}.{nearest(key, list(known))}")
        values[key] = read_value(known[key], value, f"{where}: {key}")
    return section(**values)


def read_value(declared: Any, value: Any, where: str) -> Any:
    """What stands for one key, checked against its default's type, its choices and the bounds. Raises ``SettingsError``."""
    default = declared.default_factory() if callable(declared.default_factory) else declared.default
    if is_dataclass(default):
        if not isinstance(value, dict):
            raise SettingsError(f"{where} must be a table such as {{ kind = ... }}, not {value!r}.")
        return read_table(type(default), value, where)
    if isinstance(default, bool):
        ok, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        ok, wanted = isinstance(value, int) and not isinstance(value, bool) and value >= 0, "a whole number, 0 or more"
    elif isinstance(default, float):
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and (0 < value < float("inf") or value == default)
        wanted = "a number above 0"
    elif isinstance(default, tuple):
        ok, wanted = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value), "a list of texts"
        value = tuple(value) if ok else value
    else:
        ok, wanted = isinstance(value, str), "text"
    if ok and isinstance(default, int) and not isinstance(default, bool):
        most = MAX_PORT if declared.name == "port" else MAX_WHOLE
        ok, wanted = value <= most, f"a whole number from 0 to {most}"
    elif ok and isinstance(default, float) and declared.name.endswith("_s"):
        ok, wanted = SECONDS[0] <= value <= SECONDS[1], f"a number of seconds from {SECONDS[0]:g} to {SECONDS[1]:.0f}"
    if isinstance(default, float) and declared.metadata.get("may_be_zero"):
        ok, wanted = ok or (value == 0 and not isinstance(value, bool)), f"0 or {wanted}"
    choices = declared.metadata.get("choices") or ()
    if ok and choices and value not in choices:
        ok, wanted = False, "one of " + ", ".join(choices)
    if not ok:
        raise SettingsError(f"{where} must be {wanted}, not {value!r}.")
    return float(value) if isinstance(default, float) else value


def nearest(key: str, known: Sequence[str]) -> str:
    """The end of an error's sentence: which key may have been meant."""
    close = difflib.get_close_matches(key, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known))}."


def from_text(declared: Any, text: str) -> Any:
    """What an environment variable says, as its key's type where it can be; else the text, which ``read_value`` then refuses."""
    default = declared.default_factory() if callable(declared.default_factory) else declared.default
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if isinstance(default, tuple):
        return tuple(part for part in text.split(",") if part)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return text
