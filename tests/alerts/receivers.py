"""Receivers on this machine that are as strict as the services: signature, size, mentions, and a body that says what became of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainvitals.settings import Settings, parse

WEBHOOK_KEY = bytes(range(32))
WEBHOOK_SECRET = "whsec_" + base64.b64encode(WEBHOOK_KEY).decode()
CHAT_SECRET = "SEC-of-the-chat-bot-0123456789"
ROUTING_KEY = "R0123456789ABCDEF0123456789ABCDEF"


@dataclass(frozen=True)
class Received:
    """One request, as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def query(self) -> dict[str, str]:
        # As the services read it: decoded once, "+" is a space.
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))


@dataclass(frozen=True)
class Reply:
    """What is answered."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver:
    """``answer(received)`` decides; everything is kept in ``received``."""

    def __init__(self, answer: Callable[[Received], Reply] | None = None) -> None:
        self.answer = answer or (lambda received: Reply())
        self.received: list[Received] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                received = Received(self.path, dict(self.headers.items()), body, time.monotonic())
                receiver.received.append(received)
                reply = receiver.answer(received)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that was killed is part of some tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def strict(kind: str) -> Callable[[Received], Reply]:
    """The answers of one service; what it would refuse, and a mention of anybody, is refused as the service does."""
    return {
        "webhook": _webhook, "slack": _slack, "feishu": _feishu, "lark": _feishu, "dingtalk": _dingtalk, "wecom": _wecom,
        "pagerduty": _pagerduty,
    }[kind]  # fmt: skip


def settings_for(directory: Any, targets: Mapping[str, Mapping[str, Any]], **alerts: Any) -> Settings:
    """Settings with these targets, an outbox in ``directory`` and secrets in files there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "t.toml").touch()
    tables = {}
    for name, table in targets.items():
        made = {"allow_private": True, **table}
        if "secrets" in made:
            files = []
            for number, secret in enumerate(made.pop("secrets")):
                file = directory / f"{name}-{number}.secret"
                file.write_text(secret + "\n")
                files.append(file.name)
            made["secret_files"] = files
        tables[name] = made
    return parse({"alerts": {"outbox": "alerts.db", "targets": tables, **alerts}}, str(directory / "t.toml"))


def secrets_of(kind: str) -> list[str]:
    """What the strict receiver expects."""
    return {"webhook": [WEBHOOK_SECRET], "pagerduty": [ROUTING_KEY], "wecom": [], "slack": []}.get(kind, [CHAT_SECRET])


def _webhook(received: Received) -> Reply:
    headers = {name.lower(): value for name, value in received.headers.items()}
    id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    signed = f"{id}.{timestamp}.".encode() + received.body
    expected = "v1," + base64.b64encode(hmac.new(WEBHOOK_KEY, signed, hashlib.sha256).digest()).decode()
    if expected not in headers["webhook-signature"].split(" ") or abs(time.time() - int(timestamp)) > 300 or "." in id:
        return Reply(401, b"bad signature")
    if len(received.body) > 20_000 or set(received.json) != {"type", "timestamp", "data"}:
        return Reply(400, b"bad body")
    return Reply(204, b"")


def _slack(received: Received) -> Reply:
    body = received.json
    for block in body["blocks"]:
        text = block["text"]
        most = 150 if block["type"] == "header" else 3000
        if not 0 < len(text["text"]) <= most or (block["type"] == "header" and text["type"] != "plain_text"):
            return Reply(400, b"invalid_blocks")
        if text["type"] == "mrkdwn" and ("<!" in text["text"] or "<@" in text["text"]):
            return Reply(400, b"a_mention_in_a_block")
    if "<!" in body["text"] or "<@" in body["text"]:
        return Reply(400, b"a_mention_in_the_text")
    return Reply(200, b"ok")


def _feishu(received: Received) -> Reply:
    body = received.json
    key = f"{body.get('timestamp')}\n{CHAT_SECRET}".encode()
    if body.get("sign") != base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode():
        return Reply(200, b'{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}')
    if abs(time.time() - int(body["timestamp"])) > 3600 or len(received.body) > 20_000:
        return Reply(200, b'{"code":9499,"msg":"Bad Request"}')
    text = json.dumps(body["card"], ensure_ascii=False)
    if '"lark_md"' in text or '"markdown"' in text or "<at " in text:
        return Reply(200, b'{"code":11246,"msg":"a mention"}')
    return Reply(200, b'{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}')


def _dingtalk(received: Received) -> Reply:
    message = f"{received.query.get('timestamp')}\n{CHAT_SECRET}".encode()
    if received.query.get("sign") != base64.b64encode(hmac.new(CHAT_SECRET.encode(), message, hashlib.sha256).digest()).decode():
        return Reply(200, b'{"errcode":310000,"errmsg":"sign not match"}')
    body = received.json
    if len(received.body) > 20_000:
        return Reply(200, b'{"errcode":460101,"errmsg":"message too long, exceed 20000 bytes"}')
    if body["at"] != {"atMobiles": [], "atUserIds": [], "isAtAll": False} or "@all" in body["text"]["content"]:
        return Reply(200, b'{"errcode":400,"errmsg":"a mention"}')
    return Reply(200, b'{"errcode":0,"errmsg":"ok"}')


def _wecom(received: Received) -> Reply:
    text = received.json["text"]
    if len(text["content"].encode()) > 2048:
        return Reply(200, b'{"errcode":40058,"errmsg":"content exceed max length 2048"}')
    if text["mentioned_list"] or text["mentioned_mobile_list"] or "@all" in text["content"] or "<@" in text["content"]:
        return Reply(200, b'{"errcode":400,"errmsg":"a mention"}')
    return Reply(200, b'{"errcode":0,"errmsg":"ok"}')


def _pagerduty(received: Received) -> Reply:
    body = received.json
    if body.get("routing_key") != ROUTING_KEY or body.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        return Reply(400, b'{"status":"invalid event"}')
    if not 0 < len(body["dedup_key"]) <= 255:
        return Reply(400, b'{"status":"invalid event","errors":["dedup_key"]}')
    if body["event_action"] == "trigger":
        payload = body["payload"]
        is_right = payload["severity"] in ("critical", "error", "warning", "info") and payload["source"] and payload["summary"]
        if not is_right or len(payload["summary"]) > 1024 or len(received.body) > 512 * 1024:
            return Reply(400, b'{"status":"invalid event","errors":["payload"]}')
    return Reply(202, b'{"status":"success","message":"Event processed"}')
