"""The event loop that serves the pages: a page's thread can wait until it has taken over what the page has drawn.

Streamlit hands each drawn element to that loop. What a run drew is thrown away where the next run of the session begins in a new thread
before the loop came to it (``AppSession._handle_scriptrunner_event_on_event_loop`` of streamlit/streamlit), as on a busy machine after a
run of a few milliseconds.
"""

from __future__ import annotations

import asyncio
import threading

_loop: asyncio.AbstractEventLoop | None = None


def keep() -> None:
    """Called once, in the loop itself."""
    global _loop
    _loop = asyncio.get_running_loop()


def wait_until_taken_over(wait_s: float = 10.0) -> bool:
    """Whether the loop has handled all that this thread gave it; False after ``wait_s``, or where the loop is not known."""
    loop = _loop
    if loop is None or loop.is_closed():
        return False
    is_there = threading.Event()
    try:
        loop.call_soon_threadsafe(is_there.set)
    except RuntimeError:  # closed meanwhile: the server ends
        return False
    return is_there.wait(wait_s)
