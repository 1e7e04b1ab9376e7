"""The alerts page in a real browser: a dead letter is sent again by a click, hostile text is literal, and red says that nobody is paged."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alerts"))

import test_pages  # noqa: E402
from dashboard_site import Site, open_site, sample  # noqa: E402
from notices import notice  # noqa: E402
from receivers import Receiver, Reply  # noqa: E402
from test_pages import HOSTILE, WAIT_MS  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.alerts.outbox import Outbox  # noqa: E402

pytestmark = test_pages.pytestmark
WIDTHS = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


class Pager(Receiver):
    """Refuses everything until it is mended."""

    def __init__(self) -> None:
        super().__init__(lambda received: Reply(200 if self.is_mended else 400, b"{}"))
        self.is_mended = False


@pytest.fixture(scope="module")
def pager() -> Iterator[Pager]:
    with Pager() as made:
        yield made


@pytest.fixture(scope="module")
def site(pager: Pager, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("alerts")
    box = Outbox(home / "alerts.db")
    for number, what in enumerate(("loss 2.31 → 2.94 since step 2,400, not coming back", HOSTILE)):
        made = replace(notice("opened", f"{sample.RUN}/loss/{number}"), run=sample.RUN, what=what)
        box.enqueue(made, "pager")
    box.close()
    more = (
        f'[alerts]\noutbox = "{home / "alerts.db"}"\n[alerts.targets.pager]\nkind = "webhook"\nurl = "{pager.url}"\nallow_private = true\n'
        '[alerts.targets.team]\nkind = "feishu"\nurl = "https://open.feishu.example/x"\nseverities = ["warning"]\n'
    )
    opened = open_site(home, SqliteBackend(), more=more)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def visit(browser: playwright_api.Browser, url: str, width: str = "wide", scheme: str = "light") -> playwright_api.Page:
    page = browser.new_context(viewport=WIDTHS[width], color_scheme=scheme).new_page()
    page.set_default_timeout(WAIT_MS)
    page.went_to = []
    page.on("request", lambda request: page.went_to.append(request.url))
    page.goto(url)
    return page


def expect(page: playwright_api.Page, text: str) -> None:
    playwright_api.expect(page.get_by_text(text).first).to_be_visible(timeout=60_000)


def test_what_was_not_delivered_is_red_on_every_page_and_goes_out_again_by_a_click(
    site: Site, pager: Pager, browser: playwright_api.Browser
) -> None:
    page = visit(browser, f"{site.url}/")
    expect(page, "No page gets through: pager failing")
    page = visit(browser, f"{site.url}/alerts")
    expect(page, "Not delivered to pager:")
    if directory := os.environ.get("TRAINVITALS_TEST_PICTURES"):
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                shown = visit(browser, f"{site.url}/alerts", width, scheme)
                expect(shown, "Not delivered to pager:")
                shown.wait_for_timeout(4_000)
                shown.screenshot(path=f"{directory}/alerts_{width}_{scheme}.png", full_page=True)
    refused = len(pager.received)
    pager.is_mended = True
    page.get_by_role("button", name="Send again").click()
    expect(page, "It is sent to pager again")
    expect(page, "Not delivered to pager: loss 2.31")  # the other one's turn
    page.get_by_role("button", name="Send again").click()
    playwright_api.expect(page.get_by_role("button", name="Send again")).to_have_count(0, timeout=60_000)
    playwright_api.expect(page.get_by_text("No page gets through")).to_have_count(0, timeout=60_000)
    assert len(pager.received) == refused + 2
    hosts = {url.split("/")[2] for url in page.went_to if url.startswith("http")}
    assert hosts == {f"localhost:{site.port}"}, "a name in a message made the browser call out"


def test_a_page_without_targets_says_so_in_red(tmp_path: Path, browser: playwright_api.Browser) -> None:
    opened = open_site(tmp_path, SqliteBackend(), more="[alerts]\nbanner = true\n")
    try:
        page = visit(browser, f"{opened.url}/alerts", "phone")
        expect(page, "Nobody is paged: no alert target is configured.")
        expect(page, "No target is configured, so nobody is told anything.")
    finally:
        opened.close()
