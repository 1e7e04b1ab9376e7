"""Who looks at the page. In local mode that is a name that was typed: it is kept with what is asked for, and not proven."""

import streamlit as st

from pages._shared.state import Look, the_poller
from trainvitals.web.roles import has_table, may_act, viewer_sentence

WHO_KEY = "tv_who"
_INPUT_KEY = "tv_who_input"


def who() -> str:
    """The name that was typed in this visit; empty before."""
    return str(st.session_state.get(WHO_KEY, ""))


def is_operator(seen: Look) -> bool:
    """Whether buttons are offered. What an action may do is asked again when it is done."""
    return may_act(the_poller().settings, seen.run.name, who())


def name_line(seen: Look) -> None:
    """Where the settings say who may act on the run: a field for the name, and why there are no buttons."""
    settings = the_poller().settings
    if not has_table(settings, seen.run.name):
        return
    st.text_input("Your name", value=who(), key=_INPUT_KEY, max_chars=200, width=260, on_change=_take_name)
    sentence = viewer_sentence(settings, seen.run.name, who())
    if sentence:
        st.text(sentence)


def _take_name() -> None:
    st.session_state[WHO_KEY] = str(st.session_state.get(_INPUT_KEY, "")).strip()
