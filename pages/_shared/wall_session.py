"""Which sessions are the wall's, and what such a session may see. A session that began on the wall stays there for good."""

import streamlit as st

from pages._shared.who import identity
from trainvitals.settings import Settings
from trainvitals.web.roles import may_look
from trainvitals.web.wall_door import Admission, Asked, admit
from trainvitals.web.wall_framing import WALL_PAGE
from trainvitals.web.wall_process import link_book
from trainvitals.web.wall_words import language_of

_LATCH = "tv_wall_session"
_EMBEDDED = "tv_wall_embedded"


def is_wall_session() -> bool:
    """Whether only the wall may be shown here. The browser says where it is once; from then on the session knows.

    A browser that lies gets less, not more: the other pages ask for a person, the wall for a link.
    """
    path = (st.context.url or "").split("?")[0].rstrip("/")
    if path.rpartition("/")[2] == WALL_PAGE:
        st.session_state[_LATCH] = True
    return bool(st.session_state.get(_LATCH))


def language() -> str:
    return language_of(str(st.query_params.get("lang", "")))


def admitted(settings: Settings, now_ns: int) -> Admission:
    """What this visit may see now; asked again at every refresh."""
    if st.context.is_embedded:
        st.session_state[_EMBEDDED] = True
    told = st.query_params
    asked = Asked(
        run=str(told.get("run", "")), key=str(told.get("key", "")), shows=str(told.get("show", "")),
        is_embedded=bool(st.session_state.get(_EMBEDDED)),
    )  # fmt: skip
    return admit(
        asked, link_book(settings), now_ns / 1e9, [run.name for run in settings.runs],
        lambda run: may_look(settings, run, identity()),
    )  # fmt: skip
