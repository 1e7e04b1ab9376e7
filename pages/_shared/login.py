"""The door of every page: whoever has not come in by the way that the settings name sees a sentence, and no run."""

import streamlit as st

from pages._shared.state import the_poller
from pages._shared.who import identity


def admit() -> None:
    """Ends the page for somebody whom no proxy names and who is not logged in; local mode lets everybody at this machine in."""
    login = the_poller().settings.login
    if login.mode == "local" or identity().name:
        return
    if login.mode == "proxy":
        st.text(f"The proxy in front of this dashboard names nobody (header {login.identity_header}). Ask whoever runs it.")
    elif st.user.is_logged_in:
        st.text(
            f"You are logged in, but the identity provider tells no {login.oidc_claim} of you. Ask whoever runs this dashboard."
        )
        st.button("Log out", on_click=st.logout)
    else:
        st.text("Trainvitals: log in to see the runs.")
        st.button("Log in", type="primary", on_click=st.login)
    st.stop()
