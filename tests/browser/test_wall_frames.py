"""Who may frame what, as Chromium sees it, with the dashboard alone and behind docker/nginx.conf."""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
from dashboard_site import free_port, open_site  # noqa: E402
from test_nginx_front import BASE, run_nginx  # noqa: E402
from test_pages import CHROMIUM  # noqa: E402
from wall_site import BLOCKED_COOKIES, WAIT_MS, Site, Wiki, link, open_wall, sample  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from tests.services.influx_server import NGINX  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
REFUSED = "chrome-error://"


@pytest.fixture(scope="module")
def wikis() -> Iterator[tuple[Wiki, Wiki]]:
    """(one of the settings, a foreign one)."""
    ours, foreign = Wiki(), Wiki()
    yield ours, foreign
    ours.close()
    foreign.close()


@pytest.fixture(scope="module")
def site(wikis: tuple[Wiki, Wiki], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    opened = open_wall(tmp_path_factory.mktemp("framed"), wikis[0], sick=False)
    yield opened
    opened.close()


@pytest.fixture
def page() -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=BLOCKED_COOKIES)
        opened = browser.new_context(viewport={"width": 1200, "height": 1100}, ignore_https_errors=True).new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def is_refused(page: playwright_api.Page) -> bool:
    """Waits until the frame holds something."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        address = page.frames[1].url if len(page.frames) > 1 else ""
        if address.startswith(REFUSED):
            return True
        if address.startswith("http") and page.frames[1].locator("#root").count():
            return False
        page.wait_for_timeout(100)
    raise AssertionError(f"the frame never loaded: {[frame.url for frame in page.frames]}")


def test_a_page_by_itself_has_its_buttons(page: playwright_api.Page, site: Site) -> None:
    page.goto(f"{site.url}/?run={sample.RUN}")
    page.get_by_role("button", name=re.compile("^Pause")).first.wait_for()


def test_the_wiki_of_the_settings_frames_the_wall_and_gets_no_button(
    page: playwright_api.Page, site: Site, wikis: tuple[Wiki, Wiki]
) -> None:
    page.goto(wikis[0].frame(link(site)))
    frame = page.frame_locator("#wall")
    frame.get_by_text("nothing open").wait_for()
    assert not is_refused(page) and frame.get_by_role("button").count() == 0


def test_every_other_frame_is_refused_by_the_browser(page: playwright_api.Page, site: Site, wikis: tuple[Wiki, Wiki]) -> None:
    ours, foreign = wikis
    address = link(site)
    for wiki, framed in (
        (ours, address.replace("embed=true&", "")), (foreign, address), (foreign, address.replace("embed=true&", "")),
        (ours, f"{site.url}/control?embed=true&run={sample.RUN}"), (ours, f"{site.url}/?embed=true&run={sample.RUN}"),
        (foreign, f"{site.url}/"),
    ):  # fmt: skip
        page.goto(wiki.frame(framed))
        assert is_refused(page), framed


@pytest.mark.parametrize(("origin", "status"), [("https://evil.example", 403), ("null", 403), ("http://localhost", 101)])
def test_a_socket_that_another_site_opens_is_refused(site: Site, origin: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    told = {
        "Host": f"localhost:{site.port}", "Origin": origin.replace("http://localhost", site.url), "Upgrade": "websocket",
        "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "streamlit",
    }  # fmt: skip
    connection.request("GET", "/_stcore/stream", headers=told)
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.skipif(NGINX is None, reason="needs nginx (Debian package nginx-light)")
def test_behind_nginx_the_wall_opens_below_the_base_path_without_a_password_and_nothing_else_does(
    page: playwright_api.Page, wikis: tuple[Wiki, Wiki], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home, port = tmp_path_factory.mktemp("front"), free_port()
    site = open_site(
        tmp_path_factory.mktemp("behind"), SqliteBackend(), sick=False, base_path=BASE,
        dashboard=f'public_url = "https://localhost:{port}/{BASE}"\nwiki_origins = ["{wikis[0].origin}"]\nwall_key_file = "wall.key"',
        more='[login]\nmode = "proxy"\nproxy_addresses = ["127.0.0.1"]\n[access.runs."*"]\noperators = ["ana"]\n',
    )  # fmt: skip
    process = run_nginx(home, port, site.port)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            site.stopping.wait(0.1)
        address = link(site, "--theme", "dark")
        assert address.startswith(f"https://localhost:{port}/{BASE}/wall?embed=true")
        page.goto(wikis[0].frame(address))
        page.frame_locator("#wall").get_by_text("nothing open").wait_for()
        page.frame_locator("#wall").locator(".tv-band[data-tv-theme=dark]").wait_for()
        for wiki, framed in ((wikis[1], address), (wikis[0], address.replace("/wall?", "/control?"))):
            page.goto(wiki.frame(framed))
            assert is_refused(page), framed
        page.goto(wikis[0].frame(address.rpartition("&key=")[0]))
        page.frame_locator("#wall").get_by_text("opens with a link").wait_for()
        assert sample.RUN not in page.frame_locator("#wall").locator("body").inner_text()
    finally:
        process.terminate()
        process.wait(20)
        site.close()
