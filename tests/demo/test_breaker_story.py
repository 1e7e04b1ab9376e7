"""The breaker from end to end in the demo: armed by a click, it pauses a run that blows up; one click goes back; the page says recovered."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "browser"))

import test_demo as demo  # noqa: E402

from tests.services.control_history import first_record  # noqa: E402
from trainvitals.control.audit import newest  # noqa: E402
from trainvitals.control.audit_chain import history_anchors, verify  # noqa: E402

pytestmark = demo.pytestmark
#: Time for a usual level of loss and throughput, and for three checkpoints to go back to.
BLOW_UP_S = 40
SCHEDULE = [{"name": "learning-rate", "kind": "grow_learning_rate", "at_s": BLOW_UP_S, "factor": 2.0, "limit": 200.0}]
CHECKPOINT_EVERY = 100
WAIT_MS = demo.WAIT_MS
#: From the step at which the breaker trips to the trainer's acknowledgement.
ACKNOWLEDGED_S = 5.0
RECOVERED_S = 150.0


@pytest.fixture
def story(tmp_path: Path) -> Iterator[demo.Story]:
    schedule, home, port = tmp_path / "schedule.json", tmp_path / "home", demo.free_port()
    schedule.write_text(json.dumps(SCHEDULE))
    command = [
        sys.executable, "-m", "trainvitals", "demo", "--no-browser", "--port", str(port), "--home", str(home), "--schedule", str(schedule),
        "--checkpoint-every", str(CHECKPOINT_EVERY),
    ]  # fmt: skip
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=demo.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        with (tmp_path / "said").open("wb") as said:
            process = subprocess.Popen(command, cwd=demo.ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        told = demo.Story(home, port, process, page, time.monotonic())
        page.on("pageerror", lambda error: told.complaints.append(str(error)))
        try:
            yield told
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pid in demo.children_of(home):
                os.kill(pid, signal.SIGKILL)
            browser.close()
            sys.stdout.write("".join(f"{at_s:6.1f} s  {what}\n" for at_s, what in told.seen))
            sys.stdout.write((tmp_path / "said").read_text() + (home / "logs" / "supervisor.log").read_text())


@pytest.mark.timeout(420)
def test_armed_by_a_click_it_pauses_a_blow_up_and_one_click_more_leads_back_until_the_page_says_recovered(
    story: demo.Story, record_property: Callable[[str, object], None]
) -> None:
    demo.open_first(story)
    it_is_disarmed_from_a_terminal_and_armed_by_a_click(story)
    seconds = the_blow_up_trips_it_and_the_trainer_acknowledges(story)
    record_property("trip_to_acknowledged_s", round(seconds, 2))
    story.note(f"acknowledged {seconds:.2f} s after the step that tripped it")
    assert seconds <= ACKNOWLEDGED_S
    step = one_click_goes_back(story)
    the_restart_is_seen_until_it_has_recovered(story, step)
    assert story.complaints == []


def it_is_disarmed_from_a_terminal_and_armed_by_a_click(story: demo.Story) -> None:
    asked = [
        sys.executable,
        "-m",
        "trainvitals",
        "control",
        "breaker",
        str(story.home / "run"),
        "--wait",
        "60",
        "--by",
        "ben",
        "--reason",
        "x",
    ]
    until(lambda: (story.home / "run" / "control" / "requests" / "watcher.json").exists())
    answer = subprocess.run([*asked, "--mode", "dry-run"], cwd=demo.ROOT, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["outcome"] == "applied"
    story.note("disarmed from a terminal")
    story.go("control")
    story.shows("Circuit breaker dry-run")
    story.page.get_by_role("button", name="Arm…").click()
    filled(story, "night shift").get_by_role("button", name="Arm", exact=True).click()
    story.shows("Applied: armed by alice: night shift")
    story.note("armed by a click")
    story.picture("armed")


def the_blow_up_trips_it_and_the_trainer_acknowledges(story: demo.Story) -> float:
    """Seconds from the step that tripped it, by the trainer's own clock, to the acknowledgement."""
    story.shows(re.compile(r"Held by the breaker"))
    story.note("paused by the breaker")
    story.picture("paused-by-the-breaker")
    tripped = first_record(story.home / "run", lambda record: record.kind == "breaker" and record.data["decision"] == "paused")
    asked = first_record(story.home / "run", lambda record: record.kind == "request" and record.by == "breaker")
    answered = first_record(
        story.home / "run", lambda record: record.kind == "acknowledged" and record.data["seq"] == asked.data["seq"]
    )
    assert answered.data["state"] in ("pausing", "paused", "running")
    return (answered.time_ns - time_of_step(story, tripped.data["step"])) / 1e9


def time_of_step(story: demo.Story, step: int) -> int:
    with (story.home / "run" / "metrics.rank00000.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("step") == step and record.get("type") == "step":
                return int(record["time_ns"])
    raise AssertionError(f"the trainer logged no step {step}")


def one_click_goes_back(story: demo.Story) -> int:
    button = story.page.locator(".tv-band .tv-button:has-text('Roll back to')")
    button.wait_for()
    named = re.search(r"Roll back to ([\d,]+)", button.inner_text())
    assert named is not None
    step = int(named[1].replace(",", ""))
    button.click()
    dialog = story.page.get_by_role("dialog")
    dialog.get_by_text("The supervisor looks at the checkpoint").wait_for()
    story.picture("roll-back-dialog")
    filled(story, "the loss blew up").get_by_role("button", name=f"Go back to step {step:,}", exact=True).click()
    playwright_api.expect(dialog).to_be_hidden(timeout=WAIT_MS)
    story.note(f"asked to go back to step {step:,}")
    return step


def the_restart_is_seen_until_it_has_recovered(story: demo.Story, step: int) -> None:
    story.shows(re.compile(rf"attempt 2 started \d\d:\d\d from step {step:,} "))
    story.note("attempt 2 started")
    story.picture("restarting")
    story.shows(re.compile(r"● caught up: .* so far"))
    story.picture("catching-up")
    story.shows("state: running")
    recovered = story.page.get_by_text(
        re.compile(r"Recovered at .*loss and throughput as before, a new checkpoint verified")
    ).first
    playwright_api.expect(recovered).to_be_visible(timeout=RECOVERED_S * 1000)
    story.note("recovered")
    story.picture("recovered")
    starts = json.loads((story.home / "run" / "supervisor.json").read_text())["starts"]
    assert [one["resume_step"] for one in starts] == [None, step]
    assert starts[0]["kind"] == "rollback" and starts[1]["recovered_ns"] is not None
    kinds = {record.kind for record in newest(story.home / "run", 200)}
    assert {
        "breaker_mode",
        "breaker",
        "request",
        "acknowledged",
        "applied",
        "rollback_taken",
        "trainer_ended",
        "trainer_started",
    } <= kinds
    assert verify(story.home / "run", history_anchors(story.home / "run")).is_intact


def filled(story: demo.Story, why: str) -> playwright_api.Locator:
    dialog = story.page.get_by_role("dialog")
    dialog.get_by_label("Who asks").fill("alice")
    dialog.get_by_label("Why").fill(why)
    return dialog


def until(is_true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_MS / 1000
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.05)
