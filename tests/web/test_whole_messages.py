"""What a page has drawn reaches the browser: each element after the block that it stands in, each run after the one before."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from pages._shared import whole_messages

HOST, DIALOG, OTHER = "host", "dialog", "other"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> ForwardMsgQueue:
    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)  # as it was, afterwards
    whole_messages.keep_messages_whole()
    return ForwardMsgQueue()


def begin(queue: ForwardMsgQueue, *fragments: str) -> None:
    """As a session does at the start of a run."""
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=list(fragments) or None)
    message = ForwardMsg()
    message.new_session.name = "run"
    queue.enqueue(message)


def block(queue: ForwardMsgQueue, fragment: str, *path: int) -> None:
    message = ForwardMsg()
    message.metadata.delta_path.extend(path)
    message.delta.fragment_id = fragment
    message.delta.add_block.allow_empty = True
    queue.enqueue(message)


def text(queue: ForwardMsgQueue, fragment: str, words: str, *path: int) -> None:
    message = ForwardMsg()
    message.metadata.delta_path.extend(path)
    message.delta.fragment_id = fragment
    message.delta.new_element.text.body = words
    queue.enqueue(message)


def end(queue: ForwardMsgQueue) -> None:
    message = ForwardMsg()
    message.script_finished = ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
    queue.enqueue(message)


def dialog(queue: ForwardMsgQueue, words: str) -> None:
    begin(queue, HOST)
    block(queue, HOST, 0, 0, 0)
    queue._queue[-1].delta.add_block.dialog.title = "asked"
    text(queue, DIALOG, words, 0, 0, 0, 0)


def shown(messages: list[ForwardMsg]) -> list[str]:
    """What stands on a page in the end; fails where the browser would: at what stands in a block that it never got."""
    blocks, words = {(0,), (0, 0)}, {}
    for message in messages:
        if not message.HasField("delta"):
            continue
        path = tuple(message.metadata.delta_path)
        assert path[:-1] in blocks, f"cannot set a node at {path}"
        if message.delta.WhichOneof("type") == "add_block":
            blocks.add(path)
        else:
            words[path] = message.delta.new_element.text.body
    return list(words.values())


def test_a_dialog_that_is_asked_for_twice_before_the_browser_has_it_arrives_whole(queue: ForwardMsgQueue) -> None:
    dialog(queue, "why?")
    dialog(queue, "why?")
    assert shown(queue.flush()) == ["why?"]


def test_a_dialog_whose_host_runs_again_and_draws_nothing_was_there_whole_before(queue: ForwardMsgQueue) -> None:
    dialog(queue, "why?")
    begin(queue, HOST)
    assert shown(queue.flush()) == ["why?"]


def test_what_is_drawn_anew_comes_after_the_word_that_another_run_begins(queue: ForwardMsgQueue) -> None:
    for words in ("old", "new"):
        begin(queue, OTHER)
        text(queue, OTHER, words, 0, 1)
    kinds = [message.WhichOneof("type") for message in queue.flush()]
    assert kinds == ["new_session", "delta", "new_session", "delta"]


def test_a_run_of_the_whole_page_draws_all_of_it_and_needs_nothing_of_before(queue: ForwardMsgQueue) -> None:
    dialog(queue, "why?")
    begin(queue)
    text(queue, "", "page", 0, 1)
    assert shown(queue.flush()) == ["page"]


def test_a_browser_that_is_far_behind_gets_the_newest_of_each_part_and_every_dialog(queue: ForwardMsgQueue) -> None:
    begin(queue)
    text(queue, "", "page", 0, 1)
    dialog(queue, "why?")
    for number in range(1_000):
        for place, fragment in enumerate(("head", "body")):
            begin(queue, fragment)
            block(queue, fragment, 0, 2 + place)
            text(queue, fragment, f"{fragment} {number}", 0, 2 + place, 0)
            end(queue)
        begin(queue, HOST)
    waiting = queue.flush()
    assert shown(waiting) == ["page", "why?", "head 999", "body 999"]
    deltas = [message for message in waiting if message.HasField("delta")]
    assert len(deltas) < whole_messages.MANY
    ends = {message.script_finished for message in waiting if message.WhichOneof("type") == "script_finished"}
    assert ends == {ForwardMsg.FINISHED_EARLY_FOR_RERUN, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY}


def test_this_streamlit_clears_its_queue_at_the_start_of_a_run_and_nowhere_else() -> None:
    """What is put in its place is right only so."""
    tree = ast.parse(Path(inspect.getfile(AppSession)).read_text(encoding="utf-8"))
    callers = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "clear" and "_browser_queue" in ast.unparse(node)
    ]
    assert callers == ["_clear_queue"]
    assert tuple(inspect.signature(whole_messages._original).parameters) == whole_messages.KNOWN


def test_a_streamlit_that_is_not_known_is_left_as_it_is_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = ForwardMsgQueue.clear
    monkeypatch.setattr(whole_messages, "KNOWN", ("self", "everything"))
    whole_messages.keep_messages_whole()
    assert ForwardMsgQueue.clear is before and "not known" in caplog.text
