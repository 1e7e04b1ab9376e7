"""The story's beginning, in the demo: a diverging learning rate alone is one critical message, whose link opens the right incident."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "browser"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alerts"))

import receivers  # noqa: E402
import test_demo as demo  # noqa: E402

pytestmark = demo.pytestmark
BLOW_UP_S = 30
SCHEDULE = [{"name": "learning-rate", "kind": "grow_learning_rate", "at_s": BLOW_UP_S, "factor": 2.0, "limit": 200.0}]
#: After the message: time in which a second one would come.
QUIET_S = 25.0
PATIENCE_S = 150.0


@pytest.mark.timeout(300)
def test_a_diverging_learning_rate_is_one_critical_message_and_its_link_opens_that_incident(tmp_path: Path) -> None:
    schedule, home, port = tmp_path / "schedule.json", tmp_path / "home", demo.free_port()
    schedule.write_text(json.dumps(SCHEDULE))
    with receivers.Receiver() as receiver, (tmp_path / "said").open("wb") as said:
        command = [
            sys.executable, "-m", "trainvitals", "demo", "--no-browser", "--port", str(port), "--home", str(home),
            "--schedule", str(schedule), "--checkpoint-every", "100", "--webhook", receiver.url,
        ]  # fmt: skip
        process = subprocess.Popen(command, cwd=demo.ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not receiver.received:
                assert time.monotonic() < deadline, "nobody was told"
                time.sleep(0.2)
            time.sleep(QUIET_S)
            told = [one.json["data"] for one in receiver.received]
            words = [(one["severity"], one["kind"]) for one in told]
            assert words[0] in (("critical", "opened"), ("critical", "escalated")), words
            # That the breaker paused it meanwhile is a word more of the same incident: nobody is woken by it.
            assert words[1:] in ([], [("info", "paused")]), [one["headline"] for one in told]
            assert len({one["incident_id"] for one in told}) == 1
            the_message_says_what_the_lock_screen_needs(told[0])
            the_link_opens_the_incident(told[0], port)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pid in demo.children_of(home):
                os.kill(pid, signal.SIGKILL)


def the_message_says_what_the_lock_screen_needs(told: dict) -> None:
    assert len(told["headline"]) <= 110
    assert re.match(r"(TRAINING-SICK|PAUSED) demo: (loss|grad norm) .*step [0-9,]+", told["headline"]), told["headline"]
    assert "safe c" in told["headline"], told["headline"]
    groups = [suspect["group"] for suspect in told["suspects"]]
    assert groups == sorted(groups, key=("data", "code", "cluster").index)
    assert "data" in groups and "cluster" in groups


def the_link_opens_the_incident(told: dict, port: int) -> None:
    query = parse_qs(urlsplit(told["link"]).query)
    assert query["run"] == ["demo"] and query["incident"] == [told["incident_id"]]
    assert int(query["from"][0]) <= told["step"] <= int(query["to"][0])
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=demo.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
            page.goto(told["link"].replace("127.0.0.1", "localhost"))
            title = re.compile(re.escape(told["what"][:18]))
            playwright_api.expect(page.get_by_text(title).first).to_be_visible(timeout=60_000)
            assert f":{port}/" in page.url and "incident=" in page.url
            if directory := os.environ.get("TRAINVITALS_TEST_PICTURES"):
                page.wait_for_timeout(3_000)
                page.screenshot(path=f"{directory}/alert_link.png", full_page=True)
        finally:
            browser.close()
