"""Who may frame the wall: ``[dashboard] wiki_origins``, checked letter by letter, because it becomes part of a header. Pure.

A page that is framed can be clicked through somebody else's picture. So only the one page that does nothing may be framed, only with
``embed=true``, and only by the origins of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from trainvitals.errors import SettingsError
from trainvitals.settings import Settings

WALL_PAGE = "wall"
MAX_ORIGINS = 32
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
#: scheme://host[:port]; a star only as the whole first label, with at least two after it.
_ORIGIN = re.compile(
    rf"(?P<scheme>https?)://(?:(?P<star>\*)\.{_LABEL}(?:\.{_LABEL}){{1,8}}|{_LABEL}(?:\.{_LABEL}){{0,9}}|\[[0-9a-f:.]{{2,45}}\])"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
#: Streamlit's own names of the two themes, which only count in a frame.
_THEMES = {"light": "light_theme", "dark": "dark_theme"}
MAX_QUERY = 8192


@dataclass(frozen=True)
class Framing:
    """path: of the wall, with the base path in front. ancestors: of ``frame-ancestors``."""

    path: str = f"/{WALL_PAGE}"
    ancestors: str = "'none'"

    def allows(self, path: str, query: bytes) -> bool:
        """Whether this answer may be framed at all."""
        return path == self.path and self.ancestors != "'none'" and is_embedded(query)

    def themed(self, path: str, query: bytes) -> str | None:
        """The query that brings the theme asked for, None where there is nothing to change."""
        return with_theme(query) if path == self.path and is_embedded(query) else None


NOWHERE = Framing()


def framing(settings: Settings, base_path: str = "") -> Framing:
    """Raises ``SettingsError`` for an origin that is none."""
    base = base_path.strip("/")
    return Framing(f"/{base}/{WALL_PAGE}" if base else f"/{WALL_PAGE}", ancestors(settings.dashboard.wiki_origins, settings.path))


def ancestors(origins: Sequence[str], where: str = "") -> str:
    """Sources of ``frame-ancestors``. Raises ``SettingsError``."""
    if len(origins) > MAX_ORIGINS:
        raise SettingsError(f"{where or 'settings'}, [dashboard]: wiki_origins names more than {MAX_ORIGINS} origins.")
    return " ".join(dict.fromkeys(_origin(text, where) for text in origins)) or "'none'"


def _origin(text: str, where: str) -> str:
    told = text.strip().lower()
    found = _ORIGIN.fullmatch(told)
    if found is None or (found["star"] and found["scheme"] != "https") or not 0 < int(found["port"] or 443) < 65536:
        raise SettingsError(
            f"{where or 'settings'}, [dashboard]: wiki_origins: {text[:80]!r} is no origin. Write scheme://host or scheme://host:port, without "
            "a path, for example https://wiki.example.org; the one wildcard is https://*.example.org."
        )
    return told


def is_embedded(query: bytes) -> bool:
    """Whether the query says ``embed=true``, once and nothing else."""
    return [value for name, value in _pairs(query) if name == "embed"] == ["true"]


def with_theme(query: bytes) -> str | None:
    """``theme=dark`` also in the words that Streamlit understands; None when they are there, or no theme is asked for."""
    pairs = _pairs(query)
    asked = next((value for name, value in pairs if name == "theme"), "")
    told = {value for name, value in pairs if name == "embed_options"}
    if asked not in _THEMES or told & set(_THEMES.values()):
        return None
    return urlencode([*pairs, ("embed_options", _THEMES[asked])])


def _pairs(query: bytes) -> list[tuple[str, str]]:
    """What a browser would make of it too; a query that is too long or no text has none."""
    if len(query) > MAX_QUERY:
        return []
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError:
        return []
