"""The gallery behind the same kind of entry as the product: plotly.js out of the wheel, under its own route."""

from pathlib import Path

import streamlit as st
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from pages._shared.components.assets import PLOTLY_URL, plotly_js_path


async def plotly_js(_: object) -> Response:
    return FileResponse(plotly_js_path(), media_type="text/javascript")


app = st.App(str(Path(__file__).with_name("gallery.py")), routes=[Route(PLOTLY_URL, plotly_js)])
