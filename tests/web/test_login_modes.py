"""Who comes in by a proxy or an identity provider, and who does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import settings as settings_module
from trainvitals.cli.up import base_path
from trainvitals.errors import SettingsError
from trainvitals.settings import Settings
from trainvitals.web.access import LOCAL, MAX_NAME, Entry, entry_of, may_answer, named_by_proxy, require_address

PROXY = {"mode": "proxy", "proxy_addresses": ["10.0.0.5", "fd00::/8"]}
PUBLIC = {"public_url": "https://health.example.org/tv"}
HOST = "health.example.org"


def parsed(login: dict[str, object], dashboard: dict[str, object] | None = None) -> Settings:
    return settings_module.parse({"login": login, "dashboard": PUBLIC if dashboard is None else dashboard})


def proxy(**login: object) -> Entry:
    return entry_of(parsed({**PROXY, **login}))


@pytest.mark.parametrize("client", ["10.0.0.5", "::ffff:10.0.0.5", "fd00::17"])
def test_a_listed_proxy_is_answered_under_the_public_name(client: str) -> None:
    assert may_answer("10.0.0.9", client, f"{HOST}:443", proxy()) == ""


@pytest.mark.parametrize("client", ["10.0.0.6", "127.0.0.1", "::1", "fe80::1", None, "nonsense", ""])
def test_a_forged_header_from_another_address_is_refused(client: str | None) -> None:
    why_not = may_answer("10.0.0.9", client, HOST, proxy(), [(b"x-forwarded-user", b"ana")], "/control")
    assert "its proxy only" in why_not


def test_the_machine_itself_may_ask_for_its_health_and_nothing_else() -> None:
    for entry in (proxy(), entry_of(parsed({"mode": "oidc"}))):
        assert may_answer("127.0.0.1", "127.0.0.1", "127.0.0.1:8501", entry, (), "/healthz") == ""
        assert may_answer("127.0.0.1", "127.0.0.1", "127.0.0.1:8501", entry, (), "/control")
        assert may_answer("10.0.0.9", "10.0.0.7", "127.0.0.1", entry, (), "/healthz")


def test_only_the_routes_themselves_are_open_not_whatever_ends_like_them() -> None:
    entry = replace(proxy(), base_path="/tv/")
    for path in ("/api/alertmanager", "/tv/api/alertmanager"):
        assert may_answer(None, "10.9.9.9", "x", entry, (), path) == ""
    for path in (
        "/x/api/alertmanager",
        "/tv/x/api/alertmanager",
        "/_stcore/upload_file/x/api/alertmanager",
        "/api/alertmanager/",
    ):
        assert may_answer(None, "10.9.9.9", "x", entry, (), path)
    assert may_answer(None, "127.0.0.1", "localhost", entry, (), "/tv/healthz") == ""
    assert may_answer(None, "127.0.0.1", "localhost", entry, (), "/x/healthz")


def test_up_serves_below_the_path_of_the_public_address_where_a_proxy_stands() -> None:
    assert base_path(parsed(PROXY)) == "tv" and base_path(settings_module.parse({"dashboard": PUBLIC})) == ""


def test_a_header_that_came_twice_names_nobody() -> None:
    twice = [(b"x-forwarded-user", b"ana"), (b"x-forwarded-user", b"eve")]
    assert "two people" in may_answer(None, "10.0.0.5", HOST, proxy(), twice)


def test_a_proxy_on_a_shared_machine_proves_itself_by_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct horse battery staple\n")
    entry = proxy(proxy_secret_file=str(tmp_path / "secret"))
    good, bad = (b"x-trainvitals-proxy", b"correct horse battery staple"), (b"x-trainvitals-proxy", b"guess")
    assert may_answer(None, "10.0.0.5", HOST, entry, [good]) == ""
    for headers in ([], [bad], [good, bad], [good, good]):
        assert "missing or wrong" in may_answer(None, "10.0.0.5", HOST, entry, headers)
    assert "correct" not in repr(entry)


def test_another_name_of_the_dashboard_is_refused_behind_a_proxy_and_with_a_login() -> None:
    for entry in (proxy(), entry_of(parsed({"mode": "oidc"}))):
        assert "names of its settings" in may_answer(None, "10.0.0.5", "rebound.example", entry)
    assert may_answer(None, "10.0.0.5", "tv.internal", proxy(hosts=["TV.internal"])) == ""


@pytest.mark.parametrize("header", [b"x-forwarded-for", b"forwarded", b"x-real-ip", b"x-forwarded-host"])
def test_in_local_mode_a_proxy_in_front_is_refused_even_on_this_machine(header: bytes) -> None:
    assert "answers no proxy" in may_answer("127.0.0.1", "127.0.0.1", "localhost", LOCAL, [(header, b"127.0.0.1")])


@pytest.mark.parametrize(
    ("login", "dashboard", "says"),
    [
        ({"mode": "proxy"}, PUBLIC, "needs proxy_addresses"),
        (PROXY, {}, "needs public_url"),
        ({"mode": "oidc"}, {}, "needs public_url"),
        ({**PROXY, "proxy_addresses": ["10.0.0.5/8"]}, PUBLIC, "is no address or network"),
        ({**PROXY, "identity_header": "x user\r\n"}, PUBLIC, "is no name of a header"),
        ({**PROXY, "proxy_secret_file": "/nowhere/secret"}, PUBLIC, "cannot be read"),
    ],
)
def test_a_mode_that_lacks_what_makes_it_safe_is_refused(
    login: dict[str, object], dashboard: dict[str, object], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        entry_of(parsed(login, dashboard))


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    with pytest.raises(SettingsError, match="16 to 4096 bytes"):
        proxy(proxy_secret_file=str(tmp_path / "secret"))


def test_with_a_login_the_dashboard_may_listen_elsewhere() -> None:
    require_address(proxy(), "0.0.0.0")
    require_address(entry_of(parsed({"mode": "oidc"})), None)


@pytest.mark.parametrize("header", [None, "", "   ", "a\x1bb", "x" * (MAX_NAME + 1), "ana\nben"])
def test_what_is_no_name_is_nobody(header: str | None) -> None:
    assert named_by_proxy(header) is None


@given(st.text(max_size=300))
def test_a_name_from_a_proxy_is_proven_and_printable(header: str) -> None:
    who = named_by_proxy(header)
    assert who is None or (who.is_proven and who.name.isprintable() and who.name == who.name.strip())
