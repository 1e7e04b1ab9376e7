"""One page shows one run: what another one needs is said there, and a link to it changes the run that is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
import test_pages  # noqa: E402
from dashboard_site import Site, open_site, sample  # noqa: E402
from test_pages import WAIT_MS, settled, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark
OTHER = "a-quiet-run with a name as long as people give them when they sweep over four settings at once, lr 3e-4"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Site]:
    site = open_site(tmp_path, SqliteBackend(), name=OTHER)
    yield site
    site.close()


def test_a_run_that_must_be_acted_upon_is_named_on_the_page_of_another_and_one_click_away(two: Site) -> None:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{two.url}/nodes?{urlencode({'run': OTHER})}")
        link = page.get_by_role("link", name=f"{sample.RUN}: TRAINING-SICK loss 2.00 → 2.90")
        link.wait_for()
        box = page.get_by_test_id("stSelectbox")
        playwright_api.expect(box.locator("input")).to_have_value(re.compile(re.escape(OTHER)))
        link.click()
        shows(page, "Check in this order")
        playwright_api.expect(box.locator("input")).to_have_value(f"▲ {sample.RUN} · TRAINING-SICK")
        playwright_api.expect(link).to_have_count(0, timeout=WAIT_MS)
        box.locator("input").click()
        page.get_by_role("option", name=OTHER).click()
        link.wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()


def test_without_a_wish_the_page_opens_on_the_run_that_must_be_acted_upon_and_the_box_tells_each_state(two: Site) -> None:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(two.url)
        box = page.get_by_test_id("stSelectbox")
        playwright_api.expect(box.locator("input")).to_have_value(f"▲ {sample.RUN} · TRAINING-SICK", timeout=WAIT_MS)
        shows(page, "Check in this order")
        box.locator("input").click()
        page.get_by_role("option", name=re.compile(f"{re.escape(OTHER)} · NO DATA")).click()
        page.get_by_role("link", name=f"{sample.RUN}: TRAINING-SICK").wait_for()
        playwright_api.expect(box.locator("input")).to_have_value(re.compile(re.escape(OTHER)))
        browser.close()
