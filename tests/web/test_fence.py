"""Who may reach the dashboard, under which name, and what fences every answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import settings as settings_module
from trainvitals.web import process
from trainvitals.web.access import LOCAL, host_name, is_loopback, may_answer, require_address
from trainvitals.web.headers import Fence
from trainvitals.web.routes import PLOTLY_PATH, health, routes


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_ours(address: str) -> None:
    assert is_loopback(address)
    require_address(LOCAL, address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "example.com", "", None, "127.0.0.1.evil.example"])
def test_any_other_address_ends_the_start_with_a_sentence(address: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        require_address(LOCAL, address)
    assert ended.value.code == 2
    assert "ssh -L" in capsys.readouterr().err


@given(st.text(max_size=60))
def test_a_host_header_of_any_text_is_judged_and_foreign_names_are_refused(header: str) -> None:
    if host_name(header) not in ("localhost", "127.0.0.1", "::1"):
        assert may_answer("127.0.0.1", "127.0.0.1", header)


@pytest.mark.parametrize("host", ["localhost", "localhost:8501", "127.0.0.1:80", "[::1]:8501", "LOCALHOST:8501"])
def test_local_names_are_answered(host: str) -> None:
    assert may_answer("127.0.0.1", "127.0.0.1", host) == ""


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8501", "", "localhost:8501@evil"])
def test_foreign_names_are_not(host: str) -> None:
    assert may_answer("127.0.0.1", "127.0.0.1", host)


def ask(scope: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        if _scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Frame-Options", b"ALLOWALL")]})
            await send({"type": "http.response.body", "body": b"page"})
        else:
            await send({"type": "websocket.accept"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(Fence(app)(scope, receive, send))
    return sent


def scope(
    kind: str = "http", host: bytes = b"localhost:8501", server: str = "127.0.0.1", client: str = "127.0.0.1"
) -> dict[str, Any]:
    return {"type": kind, "path": "/", "headers": [(b"host", host)], "server": (server, 8501), "client": (client, 5)}


def test_every_answer_forbids_framing_and_foreign_pictures() -> None:
    start = ask(scope())[0]
    headers = dict(start["headers"])
    assert start["status"] == 200
    policy = headers[b"content-security-policy"].decode()
    assert "frame-ancestors 'none'" in policy and "img-src 'self' data: blob:" in policy
    assert headers[b"x-content-type-options"] == b"nosniff" and headers[b"referrer-policy"] == b"no-referrer"
    assert [value for name, value in start["headers"] if name.lower() == b"x-frame-options"] == [b"DENY"]


@pytest.mark.parametrize(
    "asked", [scope(host=b"evil.example"), scope(server="10.0.0.7"), scope(client="10.0.0.9"), {**scope(), "headers": []}]
)
def test_a_foreign_request_is_refused_before_the_app_sees_it(asked: dict[str, Any]) -> None:
    start, body = ask(asked)
    assert start["status"] == 403 and b"This dashboard answers" in body["body"]
    assert b"content-security-policy" in dict(start["headers"])


def test_a_foreign_websocket_is_closed_before_it_opens() -> None:
    assert [message["type"] for message in ask(scope("websocket", host=b"evil.example"))] == ["websocket.close"]
    assert [message["type"] for message in ask(scope("websocket"))] == ["websocket.accept"]


def test_health_tells_a_machine_whether_the_store_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = process.make_poller(settings_module.parse({"store": f"sqlite://{tmp_path}/none.db"}))
    monkeypatch.setattr("trainvitals.web.routes.poller", lambda: made)
    status, body = health()
    assert status == 503 and "No snapshot" in str(body["error"])
    made.tick()
    status, body = health()
    assert status == 503 and "no store at" in str(body["error"])
    assert json.dumps(body)


def test_wrong_settings_are_a_sentence_for_machines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINVITALS_CONFIG", str(tmp_path / "missing.toml"))
    process.stop()
    status, body = health()
    assert status == 503 and "Cannot read the settings file" in str(body["error"])


def test_plotly_is_served_under_the_name_that_the_components_ask_for() -> None:
    from pages._shared.components.assets import PLOTLY_URL, plotly_js_path

    assert PLOTLY_PATH == PLOTLY_URL and plotly_js_path().is_file()
    ours = {"/healthz", PLOTLY_PATH, "/api/alertmanager"}
    assert {route.path for route in routes()} == ours
    assert {route.path for route in routes("/tv/")} == ours | {"/tv" + path for path in ours}


def test_the_app_stands_literally_in_its_file_because_streamlit_reads_the_text() -> None:
    text = (Path(__file__).parents[2] / "app.py").read_text(encoding="utf-8")
    assert "\napp = st.App(" in text and "require_address(" in text
