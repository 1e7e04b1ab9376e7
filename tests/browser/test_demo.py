"""The demo from start to end in a real browser: every fault of the story is seen on the pages, in order, and both pauses are real."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
from tests.services.control_history import first_record  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if Path(path).exists()), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the demo's processes in /proc"),
]
CHECKPOINT_EVERY = 150
#: The default story, told in 90 s. The slow-down waits until the usual throughput is known (35 buckets of a second), and the
#: NaN comes before the next checkpoint, so that the truncated one is the newest.
SCHEDULE = [
    {"name": "data", "kind": "corrupt_data", "at_s": 16, "duration_s": 1.5},
    {"name": "slow-down", "kind": "slow_down", "at_s": 40, "duration_s": 10, "factor": 2.0},
    {"name": "checkpoint", "kind": "truncate_checkpoint", "at_s": 42, "duration_s": 0},
    {"name": "nan", "kind": "poison_weights", "at_s": 52, "after": "checkpoint", "after_s": 9},
    {"name": "learning-rate", "kind": "grow_learning_rate", "at_s": 80, "factor": 2.0, "limit": 200.0},
]
#: Generous: the machine that runs this may be slow and busy. What was measured is printed.
WAIT_MS = 60_000
FIRST_CURVE_S = 30.0
ACKNOWLEDGED_S = 3.0
#: Nothing new on the curve for this long, at twelve steps a second, is a run that stands.
STANDS_MS = 6_000

SERIES = """(metric, attempt) => { const plot = document.querySelector('.js-plotly-plot'); if (!plot || !plot._fullData) return [];
  return plot._fullData.filter(t => t.meta && t.meta.kind === 'series' && t.meta.metric === metric
      && (attempt === null || String(t.meta.attempt) === String(attempt)))
    .map(t => ({name: t.name || '', colour: t.line.color, width: t.line.width, first: Number(t.x[0]), last: Number(t.x[t.x.length - 1]),
      points: t.x.length})) }"""
LAST_X = f"() => Math.max(...({SERIES})('loss', null).map(t => t.last))"
MARKERS = """() => { const plot = document.querySelector('.js-plotly-plot'); if (!plot || !plot._fullData) return [];
  return plot._fullData.filter(t => t.meta && t.meta.kind === 'finding').flatMap(t => Array.from(t.customdata)) }"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children_of(home: Path) -> dict[int, str]:
    """Processes whose command line or environment names the demo's home: pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(home).encode() in command + environment and command:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def paused_at(step: str, by: str = "alice") -> re.Pattern[str]:
    """Words that say at which step, and by whom."""
    return re.compile(rf"paused (at step {step} by {by}|by {by} at step {step})(?![\d,]*\d)", re.IGNORECASE)


@dataclass
class Story:
    """The demo's process, the page that watches it, and when what was seen."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]
    page: Any
    started_s: float
    seen: list[tuple[float, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note(self, what: str) -> float:
        elapsed_s = time.monotonic() - self.started_s
        self.seen.append((elapsed_s, what))
        return elapsed_s

    def go(self, page: str) -> None:
        self.page.goto(f"http://localhost:{self.port}/{page}")

    def until(self, script: str, argument: Any = None, timeout_ms: float = WAIT_MS) -> None:
        self.page.wait_for_function(script, arg=argument, timeout=timeout_ms, polling=200)

    def shows(self, text: str | re.Pattern[str]) -> None:
        playwright_api.expect(self.page.get_by_text(text).first).to_be_visible(timeout=WAIT_MS)

    def picture(self, name: str) -> None:
        """A picture for whoever asked for one with TRAINVITALS_TEST_PICTURES."""
        if directory := os.environ.get("TRAINVITALS_TEST_PICTURES"):
            self.page.screenshot(path=f"{directory}/demo_{len(self.seen):02d}_{name}.png")

    def marked(self, rule: str) -> None:
        """A marker whose finding id names the rule stands on the curve."""
        self.until(f"rule => ({MARKERS})().some(id => id.includes('/' + rule + '/'))", rule)
        self.note(f"marker {rule}")

    def stands(self) -> float:
        """Wait until nothing was added to the curve for a while; the time of the last point in UTC ms."""
        # One look tells both: without a curve, as while it is drawn anew, its last point is long ago.
        look = f"ms => {{ const last = ({LAST_X})(); return Number.isFinite(last) && Date.now() - last > ms ? last : null; }}"
        return float(self.page.wait_for_function(look, arg=STANDS_MS, timeout=120_000).json_value())

    def goes_on(self, after_ms: float) -> None:
        self.until(f"after => ({LAST_X})() > after + 500", after_ms)
        self.note("the loss goes on")

    def ask(self, action: str, reason: str) -> None:
        """Press the band's button, once, and fill the dialog in."""
        dialog = self.page.get_by_role("dialog")
        self.page.locator(f".tv-band .tv-button:has-text('{action}')").click()
        dialog.get_by_label("Who asks").fill("alice")
        dialog.get_by_label("Why").fill(reason)
        self.picture(f"{action}-dialog")
        dialog.get_by_role("button", name=action, exact=True).click()
        playwright_api.expect(dialog).to_be_hidden(timeout=WAIT_MS)
        self.note(f"asked: {action}")


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    schedule = tmp_path / "schedule.json"
    schedule.write_text(json.dumps(SCHEDULE))
    port, home = free_port(), tmp_path / "home"
    command = [
        sys.executable, "-m", "trainvitals", "demo", "--no-browser", "--port", str(port), "--home", str(home),
        "--schedule", str(schedule), "--checkpoint-every", str(CHECKPOINT_EVERY),
    ]  # fmt: skip
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        with (tmp_path / "said").open("wb") as said:
            started_s = time.monotonic()
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        told = Story(home, port, process, page, started_s)
        page.on("pageerror", lambda error: told.complaints.append(str(error)))
        try:
            yield told
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pid in children_of(home):
                os.kill(pid, signal.SIGKILL)
            browser.close()
            sys.stdout.write("".join(f"{at_s:6.1f} s  {what}\n" for at_s, what in told.seen))
            sys.stdout.write((tmp_path / "said").read_text())


def open_first(story: Story) -> None:
    """Load the overview as soon as somebody answers at the port."""
    pause = threading.Event()
    while story.process.poll() is None and time.monotonic() - story.started_s < FIRST_CURVE_S:
        try:
            story.go("")
        except playwright_api.Error:
            pause.wait(0.1)
        else:
            story.note("the dashboard answers")
            return
    pytest.fail("the dashboard did not answer in time")


@pytest.mark.timeout(420)
def test_the_whole_story_is_seen_in_order_and_both_pauses_are_real(story: Story) -> None:
    the_curve_shows_soon_and_moves(story)
    a_person_pauses_and_goes_on(story)
    the_faults_of_the_first_attempt_are_seen(story)
    the_second_attempt_is_drawn_over_the_first(story)
    the_breaker_pauses_and_a_person_goes_on(story)
    everything_ends_with_the_demo(story)
    assert story.complaints == []


def the_curve_shows_soon_and_moves(story: Story) -> None:
    open_first(story)
    story.until(f"() => ({SERIES})('loss', null).some(t => t.points >= 2)")
    assert story.note("first curve") < FIRST_CURVE_S
    first = story.page.evaluate(f"() => ({SERIES})('loss', null)[0]")
    story.until(f"first => ({SERIES})('loss', null).some(t => t.last > first.last && t.points > first.points)", first)
    story.note("the curve moves")
    story.picture("first-curve")


def a_person_pauses_and_goes_on(story: Story) -> None:
    story.ask("Pause", "a test pause, right at the beginning")
    story.shows(paused_at(r"[\d,]+"))
    story.note("paused by a person")
    status = json.loads((story.home / "run/control/control_status.json").read_text())
    assert (status["state"], status["by"], status["applied_seq"]) == ("paused", "alice", 1)
    assert status["reason"] == "a test pause, right at the beginning"
    story.shows(paused_at(f"{status['step']:,}"))
    last_ms = story.stands()
    # By the files alone: from the request's own time to when the watchdog saw the trainer's answer.
    answered = first_record(story.home / "run", lambda one: one.kind == "acknowledged" and one.data["seq"] == 1)
    story.note(f"acknowledged after {answered.data['after_s']:.2f} s")
    assert answered.data["after_s"] <= ACKNOWLEDGED_S
    story.picture("paused-by-a-person")
    story.ask("Resume", "the test pause is over")
    story.goes_on(last_ms)


def the_faults_of_the_first_attempt_are_seen(story: Story) -> None:
    story.go("curves")
    story.marked("loss_spike")
    story.picture("spike")
    story.marked("throughput_drop")
    story.picture("throughput-drop")
    story.go("checkpoints")
    story.until(
        """() => { const plot = document.querySelector('.js-plotly-plot'); if (!plot || !plot._fullData) return false;
          const bad = plot._fullData.find(t => t.meta && t.meta.kind === 'checkpoint' && t.meta.metric === 'corrupt');
          const good = plot._fullData.find(t => t.meta && t.meta.kind === 'checkpoint' && t.meta.metric === 'verified');
          return bad && good && bad.x.length === 1 && bad.marker.color !== good.marker.color && bad.text[0] === '✕' }"""
    )
    story.note("corrupt checkpoint")
    story.picture("corrupt-checkpoint")
    story.go("curves")
    story.marked("loss_nonfinite")
    story.picture("nan")


def the_second_attempt_is_drawn_over_the_first(story: Story) -> None:
    story.until(f"() => ({SERIES})('loss', 2).some(t => t.points >= 5)")
    story.until(f"() => ({SERIES})('loss', 1).some(t => t.name.includes('run again later'))")
    story.note("attempt 2 over attempt 1")
    second = story.page.evaluate(f"() => ({SERIES})('loss', 2)")
    first = story.page.evaluate(f"() => ({SERIES})('loss', 1)")
    resumed_at = min(trace["first"] for trace in second)
    books = json.loads((story.home / "run/demo_faults.json").read_text())
    assert resumed_at == books["begun"]["checkpoint"]["step"] - CHECKPOINT_EVERY + 1, "the checkpoint before the truncated one"
    again = [trace for trace in first if "run again later" in trace["name"]]
    kept = [trace for trace in first if trace["name"] and "run again later" not in trace["name"]]
    assert min(trace["first"] for trace in again) >= resumed_at - 12
    assert max(trace["last"] for trace in kept) <= resumed_at
    for trace in again:
        assert trace["width"] < max(one["width"] for one in kept)
        alpha = re.search(r"rgba\([^)]*, ?(0?\.\d+)\)", trace["colour"])
        assert alpha is not None and float(alpha.group(1)) <= 0.6, trace["colour"]
    story.picture("second-attempt")


def the_breaker_pauses_and_a_person_goes_on(story: Story) -> None:
    story.marked("loss_divergence")
    story.picture("divergence")
    story.go("")
    story.shows(paused_at(r"[\d,]+", by="the breaker"))
    story.note("paused by the breaker")
    status = json.loads((story.home / "run/control/control_status.json").read_text())
    assert (status["state"], status["source"]) == ("paused", "breaker")
    story.shows(paused_at(f"{status['step']:,}", by="the breaker"))
    last_ms = story.stands()
    story.picture("paused-by-the-breaker")
    story.go("control")
    story.shows("state: paused")
    story.picture("control-page")
    story.go("")
    story.until(f"() => ({SERIES})('loss', null).length > 0")
    assert story.page.evaluate(LAST_X) <= last_ms + 1
    story.ask("Resume", "seen it, going on as a test")
    story.goes_on(last_ms)
    story.picture("resumed")


def everything_ends_with_the_demo(story: Story) -> None:
    running = children_of(story.home)
    assert len(running) >= 6, running
    story.process.send_signal(signal.SIGINT)
    assert story.process.wait(40) == 0
    story.note("ended")
    left = children_of(story.home)
    pause = threading.Event()
    for _ in range(100):
        if not left:
            break
        pause.wait(0.1)
        left = children_of(story.home)
    assert left == {}
