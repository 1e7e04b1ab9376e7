"""A press counts once.

Streamlit's browser side keeps a press until its next timer and sends it then. Where the clock of a fragment with ``run_every`` comes in
between, what that sends holds the press as well, and the server carries it out twice: a dialog that was closed in the meantime stood there
again (Streamlit 1.67, ``scheduleFlush`` and ``sendUpdateWidgetsMessage`` of its ``WidgetStateManager``; on a busy machine one press of
several hundred). The message of a clock is never the last that holds a press: it is taken out of it here, and comes with its own.
"""

import inspect
import logging

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.app_session import AppSession

#: What the method is known to take. A Streamlit in which it takes something else is left as it is.
KNOWN = ("self", "client_state")
PRESSES = frozenset({"trigger_value", "string_trigger_value", "json_trigger_value", "chat_input_value"})
_original = AppSession._handle_rerun_script_request


def _handle(self: AppSession, client_state: ClientState | None = None) -> None:
    if client_state is not None and client_state.is_auto_rerun:
        take_presses_out(client_state)
    _original(self, client_state)


def take_presses_out(client_state: ClientState) -> None:
    kept: list[WidgetState] = [one for one in client_state.widget_states.widgets if one.WhichOneof("value") not in PRESSES]
    if len(kept) < len(client_state.widget_states.widgets):
        del client_state.widget_states.widgets[:]
        client_state.widget_states.widgets.extend(kept)


def count_presses_once() -> None:
    """Once a process, before the first page."""
    if tuple(inspect.signature(_original).parameters) == KNOWN and "is_auto_rerun" in ClientState.DESCRIPTOR.fields_by_name:
        AppSession._handle_rerun_script_request = _handle  # type: ignore[method-assign]
    else:
        logging.getLogger(__name__).warning(
            "This Streamlit is not known: on a busy machine a press may count twice; close a dialog again that comes back."
        )
