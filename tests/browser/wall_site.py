"""A dashboard with a wall, and pages of other origins that frame it, for tests in a real browser."""

from __future__ import annotations

import html
import io
import threading
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from dashboard_site import Site, open_site, sample

from tests.services.backends import SqliteBackend
from trainvitals.__main__ import main

#: Chromium asks before a page of the network frames one of this machine; here both are this machine's.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-features=LocalNetworkAccessChecks"]
BLOCKED_COOKIES = [*FLAGS, "--test-third-party-cookie-phaseout"]
WAIT_MS = 60_000


class Wiki:
    """Pages of another origin: whatever ``page`` was given last is served under any path."""

    def __init__(self) -> None:
        self.body = "<p>nothing</p>"
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wiki = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = wiki.body.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def frame(self, address: str, width: int = 800, height: int = 900) -> str:
        """Address of a page that frames ``address`` as the documentation says."""
        self.body = (
            f"<!doctype html><title>Runbook</title><h1>On call</h1><iframe id='wall' src='{html.escape(address, quote=True)}' "
            f"width='{width}' height='{height}' style='border:0' referrerpolicy='no-referrer'></iframe>"
        )
        return f"{self.origin}/runbook"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


def open_wall(home: Path, wiki: Wiki, *, sick: bool = True, hostile: str = "", name: str = sample.RUN, more: str = "") -> Site:
    """A dashboard whose wall ``wiki`` may frame."""
    return open_site(
        home, SqliteBackend(), sick=sick, hostile=hostile, name=name, more=more,
        dashboard=f'wiki_origins = ["{wiki.origin}"]\nwall_key_file = "keys/wall.key"',
    )  # fmt: skip


def link(site: Site, *options: str, run: str = sample.RUN) -> str:
    """Address that ``wall link`` prints, at the port where the dashboard listens."""
    told = command(site, "link", run, *options)
    return told.replace("http://localhost:8501", site.url)


def command(site: Site, *arguments: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["wall", *arguments, "--config", str(site.home / "trainvitals.toml")])
    assert code == 0, err.getvalue()
    return out.getvalue().strip()
