"""What a page has drawn reaches the browser, all of it and in its order.

Streamlit throws away what a fragment has drawn and the browser does not have yet, when the same fragment runs again
(``ForwardMsgQueue.clear`` of streamlit/streamlit, since its pull request 9381). What a fragment inside of it drew, as the content of a
dialog, stays: the browser is told to fill what it has never heard of, says "Cannot set a node at a delta path", and shows a white page
until somebody reloads it. On a busy machine a press at the wrong moment is enough.

Nothing is thrown away here where a fragment runs again. The reason to do so was that what is drawn anew took the place of the old inside
the queue, before the word that another run begins; it is put behind it. Only where a browser is behind by many messages, on a link that
is too slow for the page, whole runs are left out whose parts are drawn again later: what it gets is the newest.
"""

import inspect
import logging

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

#: What ``clear`` is known to take. A Streamlit in which it takes something else is left as it is.
KNOWN = ("self", "retain_lifecycle_msgs", "fragment_ids_this_run")
#: Messages that wait for a browser before the first are left out: about ten seconds of a page.
MANY = 300
_original = ForwardMsgQueue.clear


def _clear(self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None) -> None:
    if not (retain_lifecycle_msgs and fragment_ids_this_run):
        _original(self, retain_lifecycle_msgs, fragment_ids_this_run)
        return
    self._delta_index_map = {}  # nothing that comes now takes the place of what is there
    if len(self._queue) > MANY:
        self._queue = newest_of_each(self._queue, fragment_ids_this_run)


def newest_of_each(queue: list[ForwardMsg], coming: list[str]) -> list[ForwardMsg]:
    """The queue without what is drawn again in a later run, or in the one of the fragments that is ``coming``."""
    runs: list[list[ForwardMsg]] = [[]]
    for message in queue:
        if message.HasField("new_session"):
            runs.append([])
        runs[-1].append(message)
    drawn, kept = set(coming), []
    for run in reversed(runs):
        owners = {message.delta.fragment_id for message in run if message.HasField("delta")}
        if owners <= drawn and not any(map(_comes_once, run)):
            kept.append([_as_left_out(message) for message in run if not message.HasField("delta")])
        else:
            drawn |= owners - {""}
            kept.append(run)
    return [message for run in reversed(kept) for message in run]


def _comes_once(message: ForwardMsg) -> bool:
    """A dialog is drawn by the press alone that asked for it."""
    return message.HasField("delta") and (
        message.delta.add_block.WhichOneof("type") == "dialog" or message.delta.new_element.WhichOneof("type") == "toast"
    )


def _as_left_out(message: ForwardMsg) -> ForwardMsg:
    """The browser takes away what a run that ended well has not drawn; one that is left out has drawn nothing."""
    if message.WhichOneof("type") == "script_finished" and message.script_finished != ForwardMsg.FINISHED_SUCCESSFULLY:
        message.script_finished = ForwardMsg.FINISHED_EARLY_FOR_RERUN
    return message


def keep_messages_whole() -> None:
    """Once a process, before the first page."""
    if tuple(inspect.signature(_original).parameters) == KNOWN and hasattr(ForwardMsgQueue(), "_delta_index_map"):
        ForwardMsgQueue.clear = _clear  # type: ignore[method-assign]
    else:
        logging.getLogger(__name__).warning(
            "This Streamlit is not known: on a busy machine a page may turn white; reload it then."
        )
