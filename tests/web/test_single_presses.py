"""A press that the browser sends with a fragment's clock and again with its own timer is carried out once."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner_utils import script_requests

from pages._shared import single_presses


class Session:
    """Keeps what a session of Streamlit is asked to run."""

    def __init__(self) -> None:
        self.asked: list[ClientState | None] = []

    def request_rerun(self, state: ClientState | None) -> None:
        self.asked.append(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(AppSession, name).__get__(self)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(AppSession, "_handle_rerun_script_request", single_presses._original)  # as it was, afterwards
    single_presses.count_presses_once()
    return Session()


def told(*, by_clock: bool) -> BackMsg:
    message = BackMsg()
    message.rerun_script.is_auto_rerun = by_clock
    message.rerun_script.fragment_id = "head"
    for name, kind, value in (
        ("pause", "trigger_value", True),
        ("note", "string_value", "a note"),
        ("band", "json_trigger_value", "[1]"),
    ):
        setattr(message.rerun_script.widget_states.widgets.add(id=name), kind, value)
    message.rerun_script.widget_states.widgets.add(id="chat").chat_input_value.data = "hello"
    message.rerun_script.widget_states.widgets.add(id="tag").string_trigger_value.data = "one"
    return message


def names(state: ClientState | None) -> list[str]:
    return [one.id for one in state.widget_states.widgets] if state is not None else []


def test_a_clocks_message_holds_what_was_typed_and_no_press(session: Session) -> None:
    AppSession.handle_backmsg(session, told(by_clock=True))  # type: ignore[arg-type]
    assert names(session.asked[0]) == ["note"] and session.asked[0].fragment_id == "head"


def test_the_message_of_a_press_holds_it(session: Session) -> None:
    AppSession.handle_backmsg(session, told(by_clock=False))  # type: ignore[arg-type]
    assert names(session.asked[0]) == ["pause", "note", "band", "chat", "tag"]


def test_a_request_of_the_server_itself_goes_through(session: Session) -> None:
    session._handle_rerun_script_request(None)
    assert session.asked == [None]


def test_what_is_a_press_here_is_one_to_this_streamlit() -> None:
    assert single_presses.PRESSES == script_requests._TRIGGER_PROTO_FIELDS


def test_a_streamlit_that_is_not_known_is_left_as_it_is_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = AppSession._handle_rerun_script_request
    monkeypatch.setattr(single_presses, "KNOWN", ("self", "everything"))
    single_presses.count_presses_once()
    assert AppSession._handle_rerun_script_request is before and "not known" in caplog.text
