"""A number stays beside its unit, and a list that scrolls ends where a record ends and says what is below, on a phone and on a wide screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import Site, open_site  # noqa: E402
from test_pages import WAIT_MS  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark

#: Texts of amounts that stand on more than one line.
BROKEN = "[...document.querySelectorAll('.tv-amount')].filter(one => one.getClientRects().length > 1).map(one => one.textContent)"
#: Of each list that scrolls: pixels between its lower edge and the nearest end of a record, records that end below it, and what it says.
LISTS = """[...document.querySelectorAll('.tv-records')].map(list => {
  const box = list.querySelector('.tv-record-box'), edge = box.getBoundingClientRect().bottom - box.clientTop;
  if (box.scrollHeight <= box.clientHeight + 1) return null;
  const ends = [...box.querySelectorAll('tbody tr')].map(row => row.getBoundingClientRect().bottom);
  return [Math.min(...ends.map(end => Math.abs(end - edge))), ends.filter(end => end > edge + 2).length,
    list.querySelector('.tv-record-below').textContent];
}).filter(Boolean)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("lines"), SqliteBackend())
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(params=[390, 1440])
def page(browser: playwright_api.Browser, request: pytest.FixtureRequest) -> Iterator[playwright_api.Page]:
    context = browser.new_context(viewport={"width": request.param, "height": 844})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    yield opened
    context.close()


def test_the_band_keeps_a_number_beside_its_unit_and_its_text_as_it_is(site: Site, page: playwright_api.Page) -> None:
    page.goto(site.url)
    amount = page.locator(".tv-band .tv-amount", has_text="GPU-h").first
    playwright_api.expect(amount).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate(BROKEN) == []
    assert "\u00a0GPU-h" not in page.locator(".tv-band").inner_text()


def test_a_list_of_checkpoints_ends_where_one_ends_and_says_how_many_are_below(site: Site, page: playwright_api.Page) -> None:
    page.goto(f"{site.url}/checkpoints")
    page.locator(".tv-records tbody tr").nth(8).wait_for(state="attached")
    is_phone = (page.viewport_size or {})["width"] < 600
    if is_phone:
        playwright_api.expect(page.locator(".tv-record-below", has_text="more below")).to_be_visible(timeout=WAIT_MS)
    lists = page.evaluate(LISTS)
    assert len(lists) >= is_phone
    for distance, count, said in lists:
        assert distance <= 2
        assert said == f"▾ {count} more below"
    assert page.evaluate(BROKEN) == []


def test_at_the_end_of_a_list_nothing_is_said_to_be_below(site: Site, page: playwright_api.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/checkpoints")
    below = page.locator(".tv-record-below", has_text="more below").first
    playwright_api.expect(below).to_be_visible(timeout=WAIT_MS)
    page.evaluate("document.querySelectorAll('.tv-record-box').forEach(box => { box.scrollTop = box.scrollHeight })")
    playwright_api.expect(page.locator(".tv-record-below", has_text="more below")).to_have_count(0, timeout=WAIT_MS)


def test_in_the_frame_of_a_runbook_the_headline_and_the_checks_are_not_cut(site: Site, page: playwright_api.Page) -> None:
    page.set_viewport_size({"width": 800, "height": 1_000})
    page.goto(f"{site.url}/?embed=true")
    playwright_api.expect(page.locator(".tv-band .tv-button").first).to_be_visible(timeout=WAIT_MS)
    page.locator(".st-key-tv-card-checks .tv-checks li").nth(3).wait_for()
    assert page.locator(".tv-band .tv-more:visible").count() == 0
    checks = page.locator(".st-key-tv-card-checks")
    assert checks.evaluate("box => box.scrollHeight - box.clientHeight") <= 1
    widths = page.evaluate("['chart', 'checks'].map(name => document.querySelector(`.st-key-tv-card-${name}`).clientWidth)")
    assert abs(widths[0] - widths[1]) <= 2
