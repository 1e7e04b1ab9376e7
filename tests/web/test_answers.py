"""Nobody is sent to an address before something answers there."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from trainvitals.web.answers import Waiting, answers

DEADLINE_S = 30.0


class Ill(BaseHTTPRequestHandler):
    """A dashboard that answers, but cannot read its store yet."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_says_so_when_the_server_answers_and_not_before() -> None:
    port = free_port()
    assert not answers(port)
    told, is_there = [], threading.Event()

    def then() -> None:
        told.append("there")
        is_there.set()

    waiting = Waiting(port, then, lambda: told.append("late"), every_s=0.02)
    waiting.start()
    assert told == []
    server = HTTPServer(("127.0.0.1", port), Ill)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        assert is_there.wait(DEADLINE_S)
        waiting.stop()
        assert told == ["there"]
    finally:
        server.shutdown()
        thread.join(DEADLINE_S)
        server.server_close()


def test_what_never_answers_is_told_once() -> None:
    told, is_late = [], threading.Event()

    def late() -> None:
        told.append("late")
        is_late.set()

    waiting = Waiting(free_port(), lambda: told.append("there"), late, limit_s=0.03, every_s=0.01)
    waiting.start()
    assert is_late.wait(DEADLINE_S)
    waiting.stop()
    assert told == ["late"]


def test_after_the_end_nothing_is_said() -> None:
    told: list[str] = []
    waiting = Waiting(free_port(), lambda: told.append("there"), lambda: told.append("late"), limit_s=1000, every_s=0.01)
    waiting.start()
    waiting.stop(DEADLINE_S)
    assert told == []
    Waiting(free_port(), lambda: None, lambda: None).stop()


def test_something_that_is_no_web_server_is_no_answer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]

        def talk() -> None:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH\r\n")
            connection.close()

        thread = threading.Thread(target=talk)
        thread.start()
        assert not answers(port)
        thread.join(DEADLINE_S)
