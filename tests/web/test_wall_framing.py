"""Who may frame what: the wall with ``embed=true`` by the origins of the settings, everything else by nobody."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import settings as settings_module
from trainvitals.errors import SettingsError
from trainvitals.web.headers import Fence
from trainvitals.web.wall_framing import NOWHERE, Framing, ancestors, framing, is_embedded, with_theme
from trainvitals.web.wall_process import framing as framing_of_process

WIKI = "https://wiki.example.org"


def framed(base: str = "", *origins: str) -> Framing:
    return framing(settings_module.parse({"dashboard": {"wiki_origins": list(origins or [WIKI])}}), base)


def answer(path: str, query: bytes, frame: Framing, method: str = "GET") -> tuple[int, dict[str, str]]:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame-options", b"ALLOWALL")]})

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {
        "type": "http", "method": method, "path": path, "query_string": query, "headers": [(b"host", b"localhost")],
        "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
    }  # fmt: skip
    asyncio.run(Fence(app, framing=frame)(scope, receive, send))
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.mark.parametrize("base", ["", "trainvitals", "/tv/health/"])
def test_the_wall_may_be_framed_by_the_wiki_and_by_nobody_else(base: str) -> None:
    frame = framed(base, WIKI, "https://*.corp.example.org", "http://localhost:8080")
    prefix = f"/{base.strip('/')}" if base else ""
    status, headers = answer(f"{prefix}/wall", b"embed=true&run=x", frame)
    policy = headers["content-security-policy"]
    assert status == 200 and f"frame-ancestors {WIKI} https://*.corp.example.org http://localhost:8080;" in policy
    assert "img-src 'self' data: blob:" in policy and headers["x-content-type-options"] == "nosniff"
    assert "x-frame-options" not in headers and "cross-origin-opener-policy" not in headers


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/", b"embed=true"), ("/control", b"embed=true"), ("/wall", b""), ("/wall", b"embed=false"), ("/wall/", b"embed=true"),
        ("/wall/control", b"embed=true"), ("/control/wall", b"embed=true"), ("//wall", b"embed=true"), ("/wall", b"embed=true&embed=false"),
        ("/wall", b"embed=true&embed=true"), ("/wall", b"EMBED=true"), ("/wall", b"x=embed=true"), ("/walls", b"embed=true"),
        ("/WALL", b"embed=true"), ("/wall", b"embed=true" + b"&a" * 5000), ("/wall", b"embed=true&\xff"), ("/_stcore/health", b"embed=true"),
    ],
)  # fmt: skip
def test_nothing_else_may_be_framed_by_anybody(path: str, query: bytes) -> None:
    _, headers = answer(path, query, framed())
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"


def test_without_origins_in_the_settings_nobody_frames_the_wall() -> None:
    for frame in (NOWHERE, framing(settings_module.parse({}))):
        _, headers = answer("/wall", b"embed=true", frame)
        assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "origin",
    [
        "*", "https:", "https://", "wiki.example.org", "https://wiki.example.org/", "https://wiki.example.org/path", "https://*",
        "https://*.org", "https://a.*.org", "https://*wiki.example.org", "http://*.example.org", "ftp://wiki.example.org",
        "https://wiki.example.org:0", "https://wiki.example.org:70000", "https://wiki.example.org;script-src *", "https://a b",
        "https://wiki.example.org 'self'", "'self'", "'none'", "data:", "https://u@wiki.example.org", "https://wiki.example.org\r\nX: y",
        "https://wïki.example.org", "", "https://-a.example.org", "https://a..b", "null", "https://wiki.example.org,https://b.org",
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused_in_a_sentence(origin: str) -> None:
    with pytest.raises(SettingsError, match="wiki_origins"):
        ancestors([origin])


@given(st.text(max_size=80))
def test_no_text_gets_a_second_source_or_directive_into_the_header(text: str) -> None:
    try:
        told = ancestors([text])
    except SettingsError:
        return
    assert told.isascii() and not set(told) & set(" ;,'\"\r\n\t\\")


def test_origins_are_told_once_in_small_letters_and_not_without_end() -> None:
    assert ancestors(["HTTPS://Wiki.Example.org:8443", "https://wiki.example.org:8443", "http://[::1]:80"]) == (
        "https://wiki.example.org:8443 http://[::1]:80"
    )
    with pytest.raises(SettingsError, match="more than 32"):
        ancestors([f"https://w{number}.example.org" for number in range(33)])


def test_settings_that_are_wrong_let_nobody_frame_and_the_dashboard_still_starts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.toml").write_text('[dashboard]\nwiki_origins = ["*"]\n')
    monkeypatch.setenv("TRAINVITALS_CONFIG", str(tmp_path / "t.toml"))
    assert framing_of_process("") == NOWHERE and "is no origin" in caplog.text


def test_the_theme_asked_for_is_put_into_streamlits_own_words_once() -> None:
    status, headers = answer("/wall", b"embed=true&run=a%20b%26c&theme=dark&key=x.y", framed())
    assert status == 307 and headers["location"].startswith("?embed=true&")
    assert parse_qsl(headers["location"][1:]) == [
        ("embed", "true"), ("run", "a b&c"), ("theme", "dark"), ("key", "x.y"), ("embed_options", "dark_theme"),
    ]  # fmt: skip
    assert "frame-ancestors https://wiki" in headers["content-security-policy"]
    assert answer("/wall", headers["location"][1:].encode(), framed())[0] == 200


@pytest.mark.parametrize(
    "query", [b"embed=true", b"embed=true&theme=blue", b"theme=dark", b"embed=true&theme=light&embed_options=dark_theme"]
)
def test_other_themes_change_nothing(query: bytes) -> None:
    assert answer("/wall", query, framed())[0] == 200
    assert answer("/control", b"embed=true&theme=dark", framed())[0] == 200


@given(st.binary(max_size=200))
def test_a_query_of_any_bytes_is_judged_without_an_error(query: bytes) -> None:
    is_embedded(query)
    told = with_theme(query)
    assert told is None or (told.isascii() and not set(told) & set("\r\n #"))
