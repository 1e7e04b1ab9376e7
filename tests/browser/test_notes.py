"""A person adds a note on the page; the real watchdog takes it; the page says applied and draws it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import ROOT, Site, open_site, sample  # noqa: E402
from test_pages import HOSTILE, WAIT_MS, settled, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.control import inbox  # noqa: E402

pytestmark = test_pages.pytestmark
DRAWN = """(words) => { const plot = document.querySelector('.js-plotly-plot'); if (!plot || !plot._fullData) return false;
  const notes = plot._fullData.find(t => t.meta && t.meta.kind === 'annotation');
  return !!notes && notes.text.some(text => text.includes(words)) && plot._fullLayout.shapes.some(s => s.x0 === 2300 && s.x1 === 2300) }"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("notes"), SqliteBackend())
    yield made
    made.close()


@pytest.fixture
def page(site: Site) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        opened.set_default_timeout(WAIT_MS)
        opened.complaints = []
        opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
        yield opened
        browser.close()


def write_note(page: playwright_api.Page, step: int, change: str, text: str, who: str) -> None:
    page.get_by_role("button", name="Add a note…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Step").fill(str(step))
    dialog.get_by_label("What changed").click()
    page.get_by_role("option", name=change, exact=True).click()
    dialog.get_by_label("In a few words").fill(text)
    dialog.get_by_label("Who notes it").fill(who)
    dialog.get_by_role("button", name="Send", exact=True).click()


def test_where_nobody_watches_the_form_says_so_and_keeps_what_was_written(site: Site, page: playwright_api.Page) -> None:
    page.goto(f"{site.url}/curves")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    settled(page)
    write_note(page, 2300, "data mix", "new mix", "ana")
    shows(page, "Nobody watches this run, so nothing was asked")
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("In a few words").input_value() == "new mix"
    dialog.get_by_label("Who notes it").fill("")
    dialog.get_by_role("button", name="Send", exact=True).click()
    shows(page, "Say who you are and what there is to know")
    assert inbox.listing(site.run_dir).names == () and page.complaints == []


def test_a_note_is_sent_then_applied_drawn_and_listed_and_its_words_stay_words(site: Site, page: playwright_api.Page) -> None:
    with (site.home / "watch.log").open("wb") as log:
        watch = subprocess.Popen(
            [sys.executable, "-m", "trainvitals", "watch", "--run", sample.RUN, "--config", str(site.home / "trainvitals.toml")],
            stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while inbox.why_not(site.run_dir, sample.RUN, "annotation") and time.monotonic() < end:
            page_wait(site)
        went_to: list[str] = []
        page.on("request", lambda request: went_to.append(request.url))
        page.goto(f"{site.url}/curves")
        page.wait_for_selector(".js-plotly-plot .main-svg")
        settled(page)
        os.kill(watch.pid, 19)  # SIGSTOP: what was sent is not applied while nobody takes it
        write_note(page, 2300, "data mix", f"web → books {HOSTILE}", "ana")
        shows(page, "Note sent; waiting for the watchdog.")
        assert len(inbox.listing(site.run_dir).names) == 1
        os.kill(watch.pid, 18)
        shows(page, "Note applied at step 2,300. Silences loss_outlier")
        page.wait_for_function(DRAWN, arg="web → books", timeout=WAIT_MS)
        assert page.get_by_role("dialog").count() == 0
        click_the_mark(page)
        shows(page, "✎ step 2,300 · data mix · ana: web → books ![x](http://evil.invalid/p.png) <img src=")
        page.goto(f"{site.url}/incidents?run={sample.RUN}")
        shows(page, "What happened within 30 min around the onset")
        settled(page)
        assert page.evaluate("window.hacked") is None and page.locator("[data-testid=stMain] img").count() == 0
        assert [url for url in went_to if "evil" in url] == [] and page.complaints == []
    finally:
        os.kill(watch.pid, 18)
        watch.terminate()
        watch.wait(20)
    (answer,) = inbox.answered(site.run_dir)
    assert answer.request is not None and answer.request.source == "ui" and answer.request.by == "ana"
    assert json.loads((site.run_dir / "run.json").read_text())["run"] == sample.RUN


def page_wait(site: Site) -> None:
    site.stopping.wait(0.1)


def click_the_mark(page: playwright_api.Page) -> None:
    """Where the note's mark stands on the screen."""
    at = page.evaluate(
        """() => { const plot = document.querySelector('.js-plotly-plot'), full = plot._fullLayout, box = plot.getBoundingClientRect();
          const trace = plot._fullData.find(t => t.meta && t.meta.kind === 'annotation');
          const ya = full['yaxis' + trace.yaxis.slice(1)];
          return [box.left + full.xaxis._offset + full.xaxis.c2p(2300), box.top + ya._offset + ya.c2p(trace.y[0])] }"""
    )
    page.mouse.move(*at)
    page.mouse.click(*at)
