"""What a page has drawn reaches the browser, all of it and in its order.

Streamlit throws away what a fragment has drawn and the browser does not have yet, when the same fragment runs again
(``ForwardMsgQueue.clear`` of streamlit/streamlit, since its pull request 9381). What a fragment inside of it drew, as the content of a
dialog, stays: the browser is told to fill what it has never heard of, says "Cannot set a node at a delta path", and shows a white page
until somebody reloads it. On a busy machine a press at the wrong moment is enough.

Nothing is thrown away here where a fragment runs again. The reason to do so was that what is drawn anew took the place of the old inside
the queue, before the word that another run begins; it is put behind it.
"""

import inspect
import logging

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

#: What ``clear`` is known to take. A Streamlit in which it takes something else is left as it is.
KNOWN = ("self", "retain_lifecycle_msgs", "fragment_ids_this_run")
_original = ForwardMsgQueue.clear


def _clear(self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None) -> None:
    if not (retain_lifecycle_msgs and fragment_ids_this_run):
        _original(self, retain_lifecycle_msgs, fragment_ids_this_run)
        return
    self._delta_index_map = {}  # nothing that comes now takes the place of what is there


def keep_messages_whole() -> None:
    """Once a process, before the first page."""
    if tuple(inspect.signature(_original).parameters) == KNOWN and hasattr(ForwardMsgQueue(), "_delta_index_map"):
        ForwardMsgQueue.clear = _clear  # type: ignore[method-assign]
    else:
        logging.getLogger(__name__).warning(
            "This Streamlit is not known: on a busy machine a page may turn white; reload it then."
        )
