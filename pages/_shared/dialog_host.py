"""Where dialogs are opened: a fragment of its own that nothing refreshes.

A dialog belongs to the run that opened it: the next refresh of a fragment with ``run_every`` draws none, and may come before anybody saw
it, on a busy machine at every tenth press. A button's callback therefore asks this fragment, which runs for nothing else.
"""

from collections.abc import Callable

import streamlit as st

from pages._shared.state import Look, look
from trainvitals.web.server_loop import wait_until_taken_over

KEY = "tv_dialogs"
_ASKED_KEY = "tv_dialog_asked"


def press(opener: Callable[[Look], None]) -> None:
    """For ``on_click`` of a button anywhere on a page: ``opener`` opens a dialog, with what is known when it runs."""
    st.session_state[_ASKED_KEY] = opener
    st.rerun(KEY)


@st.fragment(key=KEY)
def dialog_host() -> None:
    """Once a page, outside of its other fragments."""
    opener: Callable[[Look], None] | None = st.session_state.pop(_ASKED_KEY, None)
    seen = look() if opener is not None else None
    if opener is not None and seen is not None:
        opener(seen)
        # A run that ends before its elements are on their way may take them with it.
        wait_until_taken_over()
