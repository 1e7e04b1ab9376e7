"""Where the browser's files come from: plotly.js out of the plotly wheel, our own scripts and styles from beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import plotly
import streamlit as st

_HERE = Path(__file__).parent
PLOTLY_VERSION: str = plotly.__version__
#: Path below the server's base path under which the web entry serves ``plotly_js_path()``.
PLOTLY_URL = f"/assets/plotly-{PLOTLY_VERSION}.min.js"


def plotly_js_path() -> Path:
    """plotly.min.js inside the installed plotly wheel: no copy, no download."""
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def plotly_url() -> str:
    """``PLOTLY_URL`` with the server's base path in front, for use in the page."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{base}{PLOTLY_URL}" if base else PLOTLY_URL


@cache
def asset_text(name: str) -> str:
    """Text of a script or style beside this file."""
    return (_HERE / name).read_text(encoding="utf-8")


def script(*names: str) -> str:
    """A component's script, of one file or several, with what all of them share in front."""
    return asset_text("common.js") + "".join(asset_text(name) for name in names)


def style(name: str) -> str:
    """A component's style with the colour variables in front."""
    return asset_text("tokens.css") + asset_text(name)
