"""The control page with a real control client and the real watchdog: a click is acknowledged, two people, a viewer, the breaker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import ROOT, Site, open_site, sample  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from tests.services.control_history import first_record  # noqa: E402
from trainvitals.control import ControlClient, files, inbox, read_request, read_status  # noqa: E402
from trainvitals.control.audit import newest  # noqa: E402
from trainvitals.control.audit_chain import history_anchors, verify  # noqa: E402

pytestmark = test_pages.pytestmark
ACCESS = f'[access.runs."{sample.RUN}"]\noperators = ["ana", "ben"]\n'
STEP_S = 0.05


class Trainer:
    """A training loop with a real control client."""

    def __init__(self, site: Site) -> None:
        site.state = "gone"  # the sample's own trainer writes no status any more
        site.stopping.wait(2.0)
        (files.control_dir(site.run_dir) / files.STATUS_FILE).unlink(missing_ok=True)
        self._client = ControlClient(site.run_dir, run=sample.RUN, on_checkpoint=lambda step: None, can_park=True)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self) -> None:
        step = 2_500
        while not self._ending.wait(STEP_S):
            step += 1
            if self._client.at_step(step) == "stop":
                return

    def close(self) -> None:
        self._ending.set()
        self._client.close()
        self._thread.join(20)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("control"), SqliteBackend(), sick=False, more=ACCESS)
    trainer = Trainer(made)
    with (made.home / "watch.log").open("wb") as log:
        watch = subprocess.Popen(
            [sys.executable, "-m", "trainvitals", "watch", "--run", sample.RUN, "--config", str(made.home / "trainvitals.toml")],
            stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    end = time.monotonic() + 60
    while inbox.why_not(made.run_dir, sample.RUN, "breaker") and time.monotonic() < end:
        made.stopping.wait(0.1)
    yield made
    watch.terminate()
    watch.wait(20)
    trainer.close()
    made.close()


@pytest.fixture
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def opened(browser: playwright_api.Browser, site: Site, name: str = "") -> playwright_api.Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{site.url}/control")
    shows(page, "Circuit breaker")
    if name:
        page.get_by_label("Your name").fill(name)
        page.get_by_label("Your name").press("Enter")
    return page


def press(page: playwright_api.Page, button: str) -> None:
    """Once: the first press opens the dialog, whatever is refreshed meanwhile."""
    page.get_by_role("button", name=button).last.click()
    page.get_by_role("dialog").get_by_label("Why").wait_for()


def fill(page: playwright_api.Page, who: str, why: str) -> playwright_api.Locator:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who asks").fill(who)
    dialog.get_by_label("Why").fill(why)
    return dialog


def until(is_true) -> float:
    """Seconds until it became true."""
    began_s = time.monotonic()
    while not is_true():
        assert time.monotonic() - began_s < WAIT_MS / 1000
        time.sleep(0.01)
    return time.monotonic() - began_s


def test_a_viewer_sees_no_buttons_and_is_refused_by_the_action_itself(site: Site, browser: playwright_api.Browser) -> None:
    page = opened(browser, site)
    shows(page, "Only operators may act on this run")
    assert page.get_by_role("button", name="Pause…").count() == 0
    page.get_by_label("Your name").fill("eve")
    page.get_by_label("Your name").press("Enter")
    shows(page, f"eve may look at '{sample.RUN}', but not act on it")
    assert page.get_by_role("button", name="Pause…").count() == page.get_by_role("button", name="Arm…").count() == 0
    page.goto(f"{site.url}/curves")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert page.get_by_role("button", name="Add a note…").count() == 0
    page = opened(browser, site, "ana")
    page.get_by_role("button", name="Pause…").last.click()
    before = read_request(site.run_dir).seq
    fill(page, "eve", "I may not").get_by_role("button", name="Pause", exact=True).click()
    shows(page, "eve may look at")
    assert read_request(site.run_dir).seq == before
    assert any(record.kind == "access_refused" and record.by == "eve" for record in newest(site.run_dir, 20))


def test_a_click_is_acknowledged_within_3_s_and_the_other_of_two_people_is_told(
    site: Site, browser: playwright_api.Browser, record_property
) -> None:
    ana, ben = opened(browser, site, "ana"), opened(browser, site, "ben")
    for page in (ana, ben):
        shows(page, "Running, last step")
        press(page, "Pause…")
    fill(ben, "ben", "I saw it too")
    dialog = fill(ana, "ana", "ticket 812")
    for again in (True, True, False):  # the same bound each time: another process may have had the machine
        dialog.get_by_text("Hold: its GPUs wait, ready to go on at once").click()
        seq = read_request(site.run_dir).seq + 1
        dialog.get_by_role("button", name="Pause", exact=True).click()
        took_s = until(lambda seq=seq: (status := read_status(site.run_dir)) is not None and status.ack_seq >= seq)
        if took_s <= 3.0 or not again:
            break
        shows(ana, "state: paused")
        press(ana, "Resume…")
        fill(ana, "ana", "once more").get_by_role("button", name="Resume", exact=True).click()
        shows(ana, "state: running")
        press(ana, "Pause…")
        dialog = fill(ana, "ana", "ticket 812")
    record_property("click_to_acknowledged_s", round(took_s, 2))
    assert took_s <= 3.0
    shows(ana, "state: paused")
    shows(ana, "Held by ana")
    shows(ana, "128 GPUs idle")
    assert (request := read_request(site.run_dir)).how == "hold"
    # By the files alone: the request's own time, and when the watchdog saw the trainer's answer.
    answered = first_record(site.run_dir, lambda one: one.kind == "acknowledged" and one.data["seq"] == seq)
    assert (answered.time_ns - request.issued_at_ns) / 1e9 <= 3.0
    shows(ana, f"Last request: number {seq}, pause by ana: acknowledged after")
    ben.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    shows(ben, "by ana, expected")
    press(ana, "Resume…")
    fill(ana, "ana", "data was fine").get_by_role("button", name="Resume", exact=True).click()
    shows(ana, "state: running")
    for kind in ("request", "acknowledged", "applied", "not_asked"):
        first_record(site.run_dir, lambda one, kind=kind: one.kind == kind)
    assert verify(site.run_dir, history_anchors(site.run_dir)).is_intact
    shows(ana, "Chain whole: records 1 to")


def test_the_breaker_is_disarmed_by_the_watchdog_that_then_says_so(site: Site, browser: playwright_api.Browser) -> None:
    page = opened(browser, site, "ben")
    shows(page, "Circuit breaker armed")
    page.get_by_role("button", name="Dry run…").click()
    fill(page, "ben", "maintenance").get_by_role("button", name="Dry run", exact=True).click()
    shows(page, "Applied: dry-run by ben: maintenance")
    shows(page, "trainvitals.toml says armed; somebody asked for dry-run since.")
    assert newest(site.run_dir, 1)[0].kind == "breaker_mode"
