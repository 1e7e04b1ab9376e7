"""Streamlit's main script: which pages there are. Each page reads and draws; nothing here knows of stores or files."""

from pathlib import Path

import streamlit as st

from pages._shared.dialogs import asked_note
from pages._shared.frame import run_selector, style
from pages._shared.login import admit
from pages._shared.runs import choose_run

st.set_page_config(
    page_title="Trainvitals",
    page_icon=str(Path(__file__).parent / "_shared" / "icon.svg"),
    layout="wide",
    initial_sidebar_state="collapsed",
)
page = st.navigation(
    [
        st.Page("overview.py", title="Overview", default=True),
        st.Page("curves.py", title="Curves"),
        st.Page("incidents.py", title="Incidents"),
        st.Page("checkpoints.py", title="Checkpoints"),
        st.Page("nodes.py", title="Nodes"),
        st.Page("control.py", title="Control"),
        st.Page("alerts.py", title="Alerts"),
    ],
    position="top",
)
style()
admit()
run_selector(choose_run())
asked_note()
page.run()
