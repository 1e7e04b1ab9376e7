"""Streamlit's main script: which pages there are. Each page reads and draws; nothing here knows of stores or files."""

from pathlib import Path

import streamlit as st

from pages._shared.dialog_host import dialog_host
from pages._shared.dialogs import asked_note
from pages._shared.frame import run_selector, style
from pages._shared.login import admit
from pages._shared.other_runs import other_runs
from pages._shared.runs import choose_run
from pages._shared.wall_session import WALL_PAGE, is_wall_session
from trainvitals.web.server_loop import wait_until_taken_over

st.set_page_config(
    page_title="Trainvitals",
    page_icon=str(Path(__file__).parent / "_shared" / "icon.svg"),
    layout="wide",
    initial_sidebar_state="collapsed",
)
if is_wall_session():
    # The default page answers at the root only: the wall stands here twice, and nothing beside it.
    start = st.Page("wall.py", title="Wall", url_path="start", default=True)
    st.navigation([start, st.Page("wall.py", title="Wall", url_path=WALL_PAGE)], position="hidden").run()
    st.stop()
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
other_runs()
asked_note()
dialog_host()
page.run()
wait_until_taken_over()
