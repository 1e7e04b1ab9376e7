"""The band on top of every page: it lets an operator take the incident with one click, and a long sentence pushes nothing off a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import ROOT, Site, open_site, sample  # noqa: E402
from test_incident_people import the_incident, write_sick_steps  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.watch.incident_files import read_index  # noqa: E402

pytestmark = test_pages.pytestmark
LONG = "loss 2.00 → 2.90 since step 2,400 while " + "one rank after another tells of something else, " * 6 + "and that is the end"
#: ``ana`` may act on the run, whoever has said no name may look.
TABLES = '[access.runs."*"]\noperators = ["ana"]\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("band"), SqliteBackend(), hostile=LONG, more=TABLES)
    yield made
    made.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Site]:
    """A run whose real watchdog sees a loss that is no number."""
    made = open_site(tmp_path, SqliteBackend(), sick=False)
    command = [sys.executable, "-m", "trainvitals", "watch", "--run", sample.RUN, "--config", str(tmp_path / "trainvitals.toml")]
    with (tmp_path / "watch.log").open("wb") as log:
        watch = subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)})
    write_sick_steps(made)
    yield made
    watch.terminate()
    watch.wait(60)
    made.close()


@pytest.fixture
def page() -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def test_a_long_sentence_is_cut_on_a_phone_and_opens_by_a_tap_or_a_key(page: playwright_api.Page, site: Site) -> None:
    page.goto(site.url)
    more = page.get_by_role("button", name="… all of it")
    more.wait_for()
    shows(page, "only operators may act: see Control")
    title = page.locator(".tv-band .tv-title")
    folded = title.bounding_box()
    assert folded is not None and folded["height"] < 180
    more.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="less").wait_for()
    opened = title.bounding_box()
    assert opened is not None and opened["height"] > folded["height"]
    assert title.locator(".tv-said").evaluate("node => node.scrollHeight - node.clientHeight") <= 4
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="less").click()
    more.wait_for()


def test_an_operator_takes_the_incident_from_the_overview(page: playwright_api.Page, watched: Site) -> None:
    incident = the_incident(watched)
    page.goto(watched.url)
    button = page.locator(".tv-band button", has_text="Acknowledge…")
    button.wait_for()
    assert read_index(watched.run_dir)[0][0].acknowledged_by == "", "opening the page does nothing"
    button.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who has it").fill("ana")
    dialog.get_by_label("What you do about it").fill("looking at shard 7")
    dialog.get_by_role("button", name="Acknowledge", exact=True).click()
    shows(page, "ana has it since")
    playwright_api.expect(button).to_have_count(0, timeout=WAIT_MS)
    found = next(one for one in read_index(watched.run_dir)[0] if one.id == incident.id)
    assert (found.acknowledged_by, found.acknowledged_note) == ("ana", "looking at shard 7")
