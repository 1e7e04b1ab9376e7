"""The web entry: what is served, and behind which fence. Streamlit finds the app by its literal name here."""

import os

import streamlit as st

from pages._shared.single_presses import count_presses_once
from pages._shared.whole_messages import keep_messages_whole
from trainvitals.web.access import require_address
from trainvitals.web.headers import middleware
from trainvitals.web.process import entry, lifespan
from trainvitals.web.routes import routes
from trainvitals.web.wall_process import framing

# The fence judges the peer itself: the server must not put what a header says in its place.
os.environ["FORWARDED_ALLOW_IPS"] = ""
keep_messages_whole()
count_presses_once()
_base_path = str(st.get_option("server.baseUrlPath") or "")
_entry = entry(_base_path)
require_address(_entry, st.get_option("server.address"))

app = st.App("pages/router.py", routes=routes(_base_path), middleware=middleware(_entry, framing(_base_path)), lifespan=lifespan)
