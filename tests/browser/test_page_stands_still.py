"""A page that stands still although its server answers is loaded anew by itself: a white one, and one that hears nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
import test_pages  # noqa: E402
from dashboard_site import Site, open_site  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark
browser = test_pages.browser
MARK = "window.tvIsOldPage = true"
IS_NEW = "window.tvIsOldPage === undefined && document.querySelector('.tv-band') !== null"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("still"), SqliteBackend(), base_path="train/health")
    yield made
    made.close()


class Seen:
    """A page whose news can be held back, and whose clock can be moved (which takes the browser's own record of the page away)."""

    def __init__(self, browser: playwright_api.Browser, url: str, path: str, *, moves_clock: bool = True) -> None:
        self.sockets = self.deaf_sockets = 0
        self.page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.route_web_socket("**", self._between)
        if moves_clock:
            self.page.clock.install()
        self.page.goto(f"{url}/train/health{path}")
        shows(self.page, "TRAINING-SICK")
        self.page.evaluate(MARK)

    def _between(self, socket: playwright_api.WebSocketRoute) -> None:
        self.sockets += 1
        number, server = self.sockets, socket.connect_to_server()
        server.on_message(lambda message: None if number <= self.deaf_sockets else socket.send(message))

    def go_deaf(self) -> None:
        """The connections of this page alone: the one that is loaded anew has its own."""
        self.deaf_sockets = self.sockets

    def later(self, minutes: float) -> None:
        """In steps, as the clock of a page runs."""
        for _ in range(int(minutes * 12)):
            self.page.clock.run_for(5_000)
            self.page.wait_for_timeout(20)


@pytest.mark.parametrize("path", ["", "/", "/control"])
def test_a_white_page_is_loaded_anew_once_and_not_for_ever(site: Site, browser: playwright_api.Browser, path: str) -> None:
    seen = Seen(browser, site.url, path, moves_clock=False)
    white = "document.querySelector('[data-testid=stApp]').remove()"
    seen.page.evaluate(white)
    seen.page.wait_for_function(IS_NEW)
    seen.page.evaluate(f"{MARK}; {white}")
    seen.page.wait_for_timeout(10_000)
    assert seen.page.evaluate("window.tvIsOldPage")


def test_a_page_that_hears_nothing_says_so_and_is_loaded_anew(site: Site, browser: playwright_api.Browser) -> None:
    seen = Seen(browser, site.url, "/control")
    seen.go_deaf()
    seen.later(0.5)
    shows(seen.page, "no answer from the dashboard for")
    assert seen.page.evaluate("window.tvIsOldPage")
    seen.later(2.0)
    seen.page.wait_for_function(IS_NEW)


def test_a_page_whose_server_is_gone_is_left_as_it_is_with_what_it_says(tmp_path: Path, browser: playwright_api.Browser) -> None:
    site = open_site(tmp_path, SqliteBackend(), base_path="train/health")
    try:
        seen = Seen(browser, site.url, "/control")
        site.process.terminate()
        site.process.wait(20)
        seen.later(4.0)
        assert seen.page.evaluate("window.tvIsOldPage")
        shows(seen.page, "TRAINING-SICK")
    finally:
        site.close()
