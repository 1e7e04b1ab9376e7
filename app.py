"""The web entry: what is served, and behind which fence. Streamlit finds the app by its literal name here."""

import streamlit as st

from trainvitals.web.access import require_loopback
from trainvitals.web.headers import middleware
from trainvitals.web.process import lifespan
from trainvitals.web.routes import routes

require_loopback(st.get_option("server.address"))

app = st.App("pages/router.py", routes=routes(), middleware=middleware(), lifespan=lifespan)
