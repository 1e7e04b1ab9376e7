"""The control page of a run on another host: a click goes signed through the store, a real watchdog and a real control client answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import ROOT, free_port, sample  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from trainvitals.control import ControlClient, read_request, read_status, submit  # noqa: E402
from trainvitals.store.sqlite import SqliteStore  # noqa: E402

pytestmark = test_pages.pytestmark
TABLES = '[alerts]\nbanner = false\n[access.runs."*"]\noperators = ["ana", "ben"]\n'


@dataclass
class Far:
    """url: of the dashboard, whose settings name a directory that is not there. run_dir: where watchdog and trainer are."""

    url: str
    run_dir: Path
    elsewhere: Path


class Trainer:
    """A training loop with a real control client."""

    def __init__(self, run_dir: Path) -> None:
        self._client = ControlClient(run_dir, run=sample.RUN, on_checkpoint=lambda step: None)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self) -> None:
        step = 2_500
        while not self._ending.wait(0.05):
            step += 1
            self._client.at_step(step)

    def close(self) -> None:
        self._ending.set()
        self._client.close()
        self._thread.join(20)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    home = tmp_path_factory.mktemp("far")
    store, run_dir = SqliteStore(home / "t.db"), home / "run-host" / "run"
    run_dir.mkdir(parents=True)
    sample.write_run(store, run_dir, time.time_ns(), sick=False)
    store.close()
    (run_dir / "control" / "control_status.json").unlink(missing_ok=True)
    (home / "key").write_text("k" * 40)
    (home / "key").chmod(0o600)
    configs = {}
    for who, place in (("watch", run_dir), ("dashboard", home / "not-on-this-host")):
        configs[who] = home / f"{who}.toml"
        configs[who].write_text(
            f'store = "sqlite://{home}/t.db"\n[requests]\nkey_files = ["{home}/key"]\npoll_s = 0.2\n[dashboard]\nrefresh_s = 1.0\n{TABLES}'
            f'[[runs]]\nname = "{sample.RUN}"\ndir = "{place}"\ncontrol_road = "store"\ngpus = 128\n'
        )
    port, environment = free_port(), {**os.environ, "PYTHONPATH": str(ROOT)}
    trainer = Trainer(run_dir)
    with (home / "log").open("wb") as log:
        watch = subprocess.Popen(
            [sys.executable, "-m", "trainvitals", "watch", "--run", sample.RUN, "--config", str(configs["watch"])],
            stderr=log, env=environment,
        )  # fmt: skip
        dashboard = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)], cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=log, env={**environment, "TRAINVITALS_CONFIG": str(configs["dashboard"])},
        )  # fmt: skip
    made = Far(f"http://localhost:{port}", run_dir, home / "not-on-this-host")
    end = time.monotonic() + 60
    while not answers(f"http://127.0.0.1:{port}") and time.monotonic() < end:
        time.sleep(0.2)
    yield made
    for process in (watch, dashboard):
        process.terminate()
        process.wait(20)
    trainer.close()
    assert "Traceback" not in (home / "log").read_text(encoding="utf-8")


@pytest.fixture
def page(far: Far) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{far.url}/control")
        shows(page, "Circuit breaker")
        page.get_by_label("Your name").fill("ana")
        page.get_by_label("Your name").press("Enter")
        yield page
        browser.close()


def ask(page: playwright_api.Page, button: str, action: str, why: str) -> None:
    page.get_by_role("button", name=button).last.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill(why)
    dialog.get_by_role("button", name=action, exact=True).click()


def picture(page: playwright_api.Page, name: str) -> None:
    """For people who look at it: only where they ask for it."""
    if folder := os.environ.get("TRAINVITALS_TEST_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"far_{name}.png"), full_page=True)


def test_a_click_pauses_a_trainer_on_another_host_and_says_whose_word_the_state_is(far: Far, page: playwright_api.Page) -> None:
    shows(page, "As the watchdog on")
    picture(page, "running")
    ask(page, "Pause…", "Pause", "ticket 812")
    shows(page, "state: paused")
    shows(page, "Held by ana")
    picture(page, "paused")
    status, request = read_status(far.run_dir), read_request(far.run_dir)
    assert status is not None and status.state == "paused" and (request.by, request.reason) == ("ana", "ticket 812")
    # Somebody on the run's own host is quicker than the next click: it is refused, and the page says who was first.
    page.get_by_role("button", name="Resume…").last.click()
    submit(far.run_dir, sample.RUN, action="stop", by="ben", source="cli", reason="maintenance")
    submit(far.run_dir, sample.RUN, action="resume", by="ben", source="cli", reason="done")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("data was fine")
    dialog.get_by_role("button", name="Resume", exact=True).click()
    shows(page, "Refused. A signed request of ana to resume was refused (not carried out)")
    picture(page, "refused")
    shows(page, "by ben, expected")
    assert not far.elsewhere.exists()
