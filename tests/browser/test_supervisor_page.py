"""The control page of a supervised run in a real browser: going back by a click, a restart in its phases, a hold and its release.

The supervisor is a stand-in: the files and the events of the real one, which tests/demo/test_breaker_story.py drives.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import Site, open_site, sample  # noqa: E402
from test_control_page import fill, until  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.clock import ManualClock  # noqa: E402
from trainvitals.control import files, read_request, read_status, submit, supervised  # noqa: E402
from trainvitals.control.audit import newest  # noqa: E402
from trainvitals.control.requests import Answer, Watcher, WatchRequest  # noqa: E402
from trainvitals.records import Event, Severity  # noqa: E402
from trainvitals.store.encode import event_point  # noqa: E402

pytestmark = test_pages.pytestmark
ACCESS = f'[access.runs."{sample.RUN}"]\noperators = ["ana"]\n'
USUAL = {"queue": None, "start": 4.0, "load": 55.0, "first_step": 12.0, "caught_up": 240.0}
#: Widths and themes that an on-call person has at 3 a.m.
VIEWS = ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark"))


@dataclass
class Supervisor:
    """What the real one leaves behind: that it is there, and what it did."""

    site: Site
    over: threading.Event = field(default_factory=threading.Event)
    said: int = 0

    def __post_init__(self) -> None:
        supervised.make_directories(self.site.run_dir)
        self.thread = threading.Thread(target=self._announce, daemon=True)
        self.thread.start()

    def _announce(self) -> None:
        while not self.over.is_set():
            supervised.announce(self.site.run_dir, Watcher(sample.RUN, (supervised.ROLLBACK,), "login-2", 77))
            self.over.wait(2.0)

    def tell(self, state: str, text: str = "", *, ago_s: float = 0.0, step: int | None = None, **data: Any) -> None:
        self.said += 1
        event = Event(
            "supervisor", time.time_ns() - round(ago_s * 1e9), step=step, attempt=2, id=f"supervisor/{self.said}", source="supervisor",
            severity=Severity.INFO, text=text, data={"state": state, **data},
        )  # fmt: skip
        self.site.store.write([event_point(sample.RUN, event)])

    def take(self) -> WatchRequest:
        """The one request that waits."""
        until(lambda: bool(supervised.waiting(self.site.run_dir)))
        (name,) = supervised.waiting(self.site.run_dir)
        request = supervised.read(self.site.run_dir, name)
        assert request is not None
        return request

    def answer(self, request: WatchRequest, outcome: str, sentence: str) -> None:
        supervised.settle(self.site.run_dir, Answer(request.name, outcome, sentence, time.time_ns(), request))
        self.tell("taken" if outcome == "applied" else "refused", sentence, request=request.id)

    def close(self) -> None:
        self.over.set()
        self.thread.join(10)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("supervised"), SqliteBackend(), more=ACCESS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def supervisor(site: Site) -> Iterator[Supervisor]:
    made = Supervisor(site)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(site: Site, supervisor: Supervisor, browser: playwright_api.Browser) -> Iterator[playwright_api.Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{site.url}/control")
    page.get_by_label("Your name").fill("ana")
    page.get_by_label("Your name").press("Enter")
    shows(page, "Supervisor on login-2")
    yield page
    context.close()


def picture(site: Site, browser: playwright_api.Browser, name: str) -> None:
    """In every width and theme, for whoever asked with TRAINVITALS_TEST_PICTURES."""
    directory = os.environ.get("TRAINVITALS_TEST_PICTURES")
    for width, theme in VIEWS if directory else ():
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        page = context.new_page()
        page.goto(f"{site.url}/control")
        shows(page, "Supervisor on login-2")
        page.get_by_label("Your name").fill("ana")
        page.get_by_label("Your name").press("Enter")
        shows(page, "Circuit breaker")
        page.wait_for_timeout(1_500)
        page.screenshot(path=f"{directory}/supervisor_{name}_{theme}_{width}.png", full_page=True)
        context.close()


def ask_back(page: playwright_api.Page, who: str, why: str) -> None:
    page.locator(".tv-band .tv-button:has-text('Roll back to')").click()
    shows(page, "The supervisor looks at the checkpoint, ends the trainer without a save")
    fill(page, who, why).get_by_role("button", name=re.compile("^Go back to step")).click()


def test_going_back_is_refused_to_a_viewer_by_the_action_itself(site: Site, page: playwright_api.Page) -> None:
    ask_back(page, "eve", "I may not")
    shows(page, "eve may look at")
    assert supervised.waiting(site.run_dir) == []
    assert any(r.kind == "access_refused" and r.by == "eve" and r.data["action"] == "rollback" for r in newest(site.run_dir, 9))


def test_one_click_asks_the_supervisor_to_go_back_and_says_what_became_of_it(
    site: Site, supervisor: Supervisor, page: playwright_api.Page, browser: playwright_api.Browser
) -> None:
    picture(site, browser, "paused")
    ask_back(page, "ana", "the loss does not come back")
    request = supervisor.take()
    assert (request.kind, request.by, request.source, request.run) == ("rollback", "ana", "ui", sample.RUN)
    assert request.data["to"].endswith("step-0002200") and request.data["reason"] == "the loss does not come back"
    shows(page, "Way back asked for; the supervisor looks at the checkpoint.")
    supervisor.answer(request, "refused", "its second shard is cut off")
    shows(page, "Refused by the supervisor: its second shard is cut off")
    ask_back(page, "ana", "then the one before")
    supervisor.answer(supervisor.take(), "applied", "going back to step-0002200, as ana asked: then the one before")
    shows(page, "The supervisor has taken it: going back to step-0002200")


def test_when_nobody_acknowledges_the_commands_by_hand_stand_there_to_copy(
    site: Site, supervisor: Supervisor, page: playwright_api.Page, browser: playwright_api.Browser
) -> None:
    asked = ManualClock(time.time_ns() - 20 * 10**9)
    submit(site.run_dir, sample.RUN, action="stop", by="ana", source="cli", reason="the pause was not enough", clock=asked)
    shows(page, "The trainer does not answer. On its host, or where you may act on its job, one of:")
    assert page.get_by_test_id("stCode").first.inner_text().split("\n")[:2] == [
        "ssh run-host kill -TERM 4242", "scancel --signal=TERM JOBID",
    ]  # fmt: skip
    picture(site, browser, "not_acknowledged")
    submit(site.run_dir, sample.RUN, action="pause", by="ana", source="cli", reason="as it was")
    site.seq = read_request(site.run_dir).seq
    playwright_api.expect(page.get_by_text("The trainer does not answer.")).to_have_count(0, timeout=WAIT_MS)


def test_a_restart_is_seen_phase_by_phase_until_it_has_recovered(
    site: Site, supervisor: Supervisor, page: playwright_api.Page, browser: playwright_api.Browser
) -> None:
    supervisor.tell("started", "attempt 1 started", ago_s=9_000, attempt=1, usual_s=dict.fromkeys(USUAL))
    supervisor.tell("ended", "attempt 1 ended: somebody asked to go back", ago_s=40, step=2_460, attempt=1, kind="rollback")
    supervisor.tell("started", "attempt 2 started", ago_s=30, step=2_200, attempt=2, usual_s=USUAL)
    supervisor.tell("phase", ago_s=25, phase="start", seconds=5.0, attempt=2)
    shows(page, "✓ start: 5 s · usually 4 s")
    counting = page.get_by_text(re.compile(r"● load: (\d+) s so far · usually 55 s")).first
    counting.wait_for()
    before = counting.inner_text()
    until(lambda: counting.inner_text() != before)
    shows(page, "○ caught up · usually 4 min 0 s")
    shows(page, "left, by earlier starts")
    page.locator(".tv-band", has_text="restarted: load, about").wait_for()
    picture(site, browser, "restarting")
    for name in ("load", "first_step", "caught_up"):
        supervisor.tell("phase", phase=name, seconds=6.0, attempt=2)
    supervisor.tell(
        "recovering", attempt=2, lacking=["31 steps until 50 beyond step 2,460", "no checkpoint of this start is verified yet"]
    )
    shows(page, "Recovering; still lacking: 31 steps until 50 beyond step 2,460; no checkpoint of this start is verified yet.")
    picture(site, browser, "recovering")
    supervisor.tell(
        "recovered", "recovered: beyond step 2,460, loss and throughput as before, a new checkpoint verified", attempt=2
    )
    # The run of this test has an incident that is still open: a recovery of then is no all-clear.
    shows(page, re.compile("It had recovered at .*; since then: TRAINING-SICK"))
    picture(site, browser, "recovered")


def test_a_hold_says_why_and_resume_is_carried_out_by_the_supervisor(
    site: Site, supervisor: Supervisor, page: playwright_api.Page, browser: playwright_api.Browser
) -> None:
    site.state = "gone"
    site.stopping.wait(2.0)
    before = page.get_by_role("button", name="Resume…").last.element_handle()
    status = read_status(site.run_dir)
    assert status is not None
    now_ns = time.time_ns()
    ended = replace(status, state="stopped", ended=True, step=2_480, heartbeat_ns=now_ns, since_ns=now_ns)
    files.replace(files.control_dir(site.run_dir) / files.STATUS_FILE, ended.to_json().encode(), files.STATUS_MODE)
    reason = "3 starts in a row died after checkpoint 2,200 without a newer one: CUDA out of memory"
    asked = submit(site.run_dir, sample.RUN, action="stop", by="supervisor", source="supervisor", reason=reason)
    supervisor.tell("ended", "attempt 2 ended: CUDA out of memory", step=2_480, attempt=2, kind="out_of_memory")
    supervisor.tell("held", f"not starting it again: {reason}. To go on: …", rule="restart_loop", reason=reason)
    shows(page, re.compile(f"It starts nothing for .*{re.escape(reason)}.*What releases it: Resume"))
    shows(page, "1 of 20 restarts used in 24 h")
    assert before.evaluate("(node) => node.isConnected"), "the same button: it keeps the focus, and a press that has begun"
    picture(site, browser, "held")
    page.get_by_role("button", name="Resume…").last.click()
    shows(page, "The supervisor on login-2 starts it again, from the newest checkpoint that is safe and verifies.")
    fill(page, "ana", "a node with more memory").get_by_role("button", name="Resume", exact=True).click()
    until(lambda: read_request(site.run_dir).seq > asked.seq)
    assert read_request(site.run_dir).desired == "running"
    shows(page, "the supervisor on login-2 starts the trainer again")
    supervisor.tell("released", "resumed by ana: a node with more memory")
    shows(page, "The trainer is down: resumed by ana: a node with more memory.")
