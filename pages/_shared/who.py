"""Who looks at the page: a name that was typed (local mode), or the one that a proxy or a login vouches for."""

import streamlit as st

from pages._shared.state import Look, the_poller
from pages._shared.text import plain
from trainvitals.web.access import named_by_proxy
from trainvitals.web.roles import Identity, has_table, may_act, viewer_sentence

WHO_KEY = "tv_who"
_INPUT_KEY = "tv_who_input"


def identity() -> Identity:
    """Of this visit; a name of "" is nobody. Read from the connection itself each time, never from what the browser sends later."""
    login = the_poller().settings.login
    if login.mode == "proxy":
        return named_by_proxy(st.context.headers.get(login.identity_header)) or Identity("")
    if login.mode == "oidc":
        claimed = st.user.get(login.oidc_claim) if st.user.is_logged_in else None
        return named_by_proxy(str(claimed) if claimed else None) or Identity("")
    return Identity(str(st.session_state.get(WHO_KEY, "")))


def who() -> str:
    """The name of ``identity``; empty before somebody typed one."""
    return identity().name


def who_field(label: str, key: str) -> None:
    """In a form: a field for the name in local mode; else the name that is proven, which nobody can change."""
    if the_poller().settings.login.mode == "local":
        st.text_input(plain(label), value=who(), key=key, max_chars=200, placeholder="your name")
    else:
        st.text(f"{label}: {who() or 'nobody is logged in'}")


def asked_by(key: str) -> Identity:
    """Who sent the form that holds ``who_field(…, key)``; a name that was typed is kept for the next one."""
    if the_poller().settings.login.mode != "local":
        return identity()
    name = str(st.session_state.get(key, "")).strip()
    return Identity(name)


def keep_name(person: Identity) -> None:
    """After a form that was carried out."""
    if not person.is_proven:
        st.session_state[WHO_KEY] = person.name


def is_operator(seen: Look) -> bool:
    """Whether buttons are offered. What an action may do is asked again when it is done."""
    return may_act(the_poller().settings, seen.run.name, identity())


def name_line(seen: Look) -> None:
    """Who is logged in; in local mode, where the settings say who may act on the run, a field for the name. Why there are no buttons."""
    settings = the_poller().settings
    if settings.login.mode != "local":
        st.text(f"Logged in as {who() or 'nobody'}.")
    elif not has_table(settings, seen.run.name):
        return
    else:
        st.text_input("Your name", value=who(), key=_INPUT_KEY, max_chars=200, width=260, on_change=_take_name)
    sentence = viewer_sentence(settings, seen.run.name, identity())
    if sentence:
        st.text(sentence)


def _take_name() -> None:
    st.session_state[WHO_KEY] = str(st.session_state.get(_INPUT_KEY, "")).strip()
