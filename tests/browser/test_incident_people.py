"""On a phone, by the link out of a message: the incident stands first, a person takes it, silences its rules, and sees that it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import ROOT, Site, open_site, sample  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.control import inbox  # noqa: E402
from trainvitals.watch.incident_files import read_index  # noqa: E402

pytestmark = test_pages.pytestmark


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("people"), SqliteBackend())
    made.state = "running"
    with (made.home / "watch.log").open("wb") as log:
        watch = subprocess.Popen(
            [sys.executable, "-m", "trainvitals", "watch", "--run", sample.RUN, "--config", str(made.home / "trainvitals.toml")],
            stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    write_sick_steps(made)
    yield made
    watch.terminate()
    watch.wait(60)
    made.close()


def write_sick_steps(site: Site) -> None:
    """A trainer of attempt 3 whose loss is no number."""
    now_ns = time.time_ns()
    header = {"type": "header", "schema": 1, "run": sample.RUN, "pid": os.getpid(), "host": "elsewhere", "started_ns": now_ns - 10**11,
              "rank": 0, "world_size": 1, "hook_version": "0"}  # fmt: skip
    lines = [json.dumps(header)]
    for number in range(60):
        record = {"type": "step", "step": 3000 + number, "time_ns": now_ns - (60 - number) * 10**9}
        told = {"values": {"loss": 2.0}} if number < 40 else {"values": {}, "nonfinite": {"loss": "nan"}}
        lines.append(json.dumps({**record, **told}))
    with (site.run_dir / "metrics.rank00000.jsonl").open("a") as file:
        file.write("\n".join(lines) + "\n")


def the_incident(site: Site):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [one for one in read_index(site.run_dir)[0] if one.family == "loss" and one.is_open]
        if found and inbox.watcher_of(site.run_dir) is not None:
            return found[0]
        time.sleep(0.2)
    raise AssertionError((site.home / "watch.log").read_text())


@pytest.fixture
def page(site: Site) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark").new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def test_the_link_acts_on_nothing_and_the_buttons_do(site: Site, page: playwright_api.Page) -> None:
    incident = the_incident(site)
    page.goto(f"{site.url}/incidents?run={sample.RUN}&incident={urllib.parse.quote(incident.id, safe='')}")
    shows(page, "Nobody has it yet.")
    button = page.get_by_role("button", name="Acknowledge…")
    box = button.bounding_box()
    assert box is not None and box["height"] >= 40 and box["y"] < 844, "it is seen without scrolling, large enough for a thumb"
    assert read_index(site.run_dir)[0][0].acknowledged_by == "" and inbox.listing(site.run_dir).names == ()
    if out := os.environ.get("SHOTS"):
        page.screenshot(path=f"{out}/incident_phone.png", full_page=True)
    button.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Acknowledge", exact=True).click()
    shows(page, "Say who you are")
    dialog.get_by_label("Who has it").fill("ana")
    dialog.get_by_label("What you do about it").fill("looking at shard <b>7</b>")
    dialog.get_by_role("button", name="Acknowledge", exact=True).click()
    shows(page, "Acknowledgement applied")
    shows(page, "looking at shard <b>7</b>")
    assert page.get_by_role("button", name="Take it over…").count() == 0, "she has it"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_rule_is_silenced_for_two_hours_and_the_silence_is_ended(site: Site, page: playwright_api.Page) -> None:
    incident = the_incident(site)
    page.goto(f"{site.url}/incidents?run={sample.RUN}&incident={urllib.parse.quote(incident.id, safe='')}")
    page.get_by_role("button", name="Silence…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").wait_for()
    assert "loss_nonfinite" in dialog.inner_text() and "&#" not in dialog.inner_text()
    dialog.get_by_label("Why").fill("planned")
    dialog.get_by_label("Who silences it").fill("ana")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    shows(page, "Silence applied")
    page.get_by_role("button", name="End it…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who ends it").fill("ana")
    dialog.get_by_role("button", name="End it", exact=True).click()
    shows(page, "End of the silence applied")
    if out := os.environ.get("SHOTS"):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.emulate_media(color_scheme="light")
        page.reload()
        shows(page, "ana has it since")
        page.screenshot(path=f"{out}/incident_desk.png", full_page=True)
