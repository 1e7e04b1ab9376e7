"""A checkpoint that became suspect while the dialog stood open: going back to it needs a second yes, and nothing is asked before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import Site, open_site, sample  # noqa: E402
from test_control_page import fill  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402
from test_supervisor_page import ACCESS, Supervisor  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.control import supervised  # noqa: E402
from trainvitals.incidents.grouping import Grouper  # noqa: E402
from trainvitals.records import Event, Finding, Severity  # noqa: E402
from trainvitals.store.encode import event_point  # noqa: E402

pytestmark = test_pages.pytestmark


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("suspect"), SqliteBackend(), more=ACCESS)
    yield made
    made.close()


@pytest.fixture
def supervisor(site: Site) -> Iterator[Supervisor]:
    made = Supervisor(site)
    yield made
    made.close()


@pytest.fixture
def page(site: Site) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = opened.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        yield page
        opened.close()


def make_suspect(site: Site, since_step: int) -> None:
    """What the detector finds late: the loss was sick before the checkpoint that the dialog offers was saved."""
    now_ns = time.time_ns()
    finding = Finding(
        "f/late", "loss_divergence", "loss", Severity.CRITICAL, since_step, since_step + 300, None, 2, now_ns, 2.6, 2.0,
        "loss 2.00 → 2.60", True,
    )  # fmt: skip
    incident = Grouper(sample.RUN).add(finding, now_ns)
    assert incident is not None
    for kind, record in (("finding", finding), ("incident", incident)):
        told = Event(
            kind,
            now_ns,
            step=since_step,
            attempt=2,
            id=record.id,
            severity=Severity.CRITICAL,
            source="watch",
            data=asdict(record),
        )
        site.store.write([event_point(sample.RUN, told)])


def test_a_checkpoint_that_became_suspect_is_gone_back_to_only_with_a_second_yes(
    site: Site, supervisor: Supervisor, page: playwright_api.Page
) -> None:
    page.goto(f"{site.url}/control")
    page.get_by_label("Your name").fill("ana")
    page.get_by_label("Your name").press("Enter")
    shows(page, "Supervisor on login-2")
    page.locator(".tv-band .tv-button:has-text('Roll back to')").click()
    dialog = fill(page, "ana", "the loss does not come back")
    make_suspect(site, 2_150)
    offered = page.locator(".tv-band .tv-button:has-text('Roll back to 2,200')")
    playwright_api.expect(offered).to_have_count(0, timeout=WAIT_MS)  # the poller has seen it
    dialog.get_by_role("button", name="Go back to step 2,200").click()
    shows(page, "Nothing was asked: step-0002200 is suspect")
    assert supervised.waiting(site.run_dir) == []
    dialog.locator("[data-testid=stCheckbox] label").click()
    playwright_api.expect(dialog.get_by_role("checkbox")).to_be_checked(timeout=WAIT_MS)
    dialog.get_by_role("button", name="Go back to step 2,200").click()
    request = supervisor.take()
    assert request.by == "ana" and request.data["to"].endswith("step-0002200")
