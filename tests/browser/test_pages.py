"""The pages in a real browser, on a stored bad night: what an on-call person sees, and what hostile text may not do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
from dashboard_site import ROOT, Site, dead_run, free_port, open_site, sample  # noqa: E402

from tests.services.backends import Backend, InfluxBackend, SqliteBackend  # noqa: E402
from tests.services.influx_server import INFLUXD, InfluxServer  # noqa: E402

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if Path(path).exists()), None
)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
PAGES = ("", "curves", "incidents", "checkpoints", "nodes", "control")
HOSTILE = '![x](http://evil.invalid/p.png) <img src=http://evil.invalid/i.png onerror="window.hacked=1"> [l](http://evil.invalid) $$x$$ :red[r]'
#: Streamlit looks for its server below the page's own path first; those two answers are 404 by design.
EXPECTED_404 = re.compile(r"/_stcore/(health|host-config)$")
WAIT_MS = 25_000


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=["sqlite", "influxdb"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Both stores: the pages do the same on either."""
    if request.param == "sqlite":
        yield SqliteBackend()
        return
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path_factory.mktemp("influxd")).start()
    yield InfluxBackend(server)
    server.stop()


@pytest.fixture(scope="module")
def sick(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = open_site(tmp_path_factory.mktemp("sick"), backend)
    yield site
    site.close()


@pytest.fixture(scope="module")
def healthy(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all: the tests that use it stand in an order, and the last one pauses the run."""
    site = open_site(tmp_path_factory.mktemp("healthy"), backend, sick=False)
    yield site
    site.close()


@dataclass
class Watched:
    """A page with everything it complained of and everywhere it went."""

    page: playwright_api.Page
    complaints: list[str] = field(default_factory=list)
    went_to: list[str] = field(default_factory=list)


@pytest.fixture
def watched(browser: playwright_api.Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    seen = Watched(context.new_page())
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on(
        "console",
        lambda message: seen.complaints.append(message.text) if message.type == "error" and "404" not in message.text else None,
    )
    seen.page.on(
        "response",
        lambda answer: (
            seen.complaints.append(answer.url) if answer.status >= 400 and not EXPECTED_404.search(answer.url) else None
        ),
    )
    seen.page.on("request", lambda request: seen.went_to.append(request.url))
    seen.page.set_default_timeout(WAIT_MS)
    yield seen
    context.close()


def shows(page: playwright_api.Page, text: str | re.Pattern[str]) -> None:
    playwright_api.expect(page.get_by_text(text).first).to_be_visible(timeout=WAIT_MS)


def settled(page: playwright_api.Page) -> None:
    """The script has run to its end: nothing more comes before the next refresh."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT_MS)
    page.wait_for_timeout(300)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_loads_shows_the_verdict_and_complains_of_nothing(sick: Site, watched: Watched, name: str) -> None:
    watched.page.goto(f"{sick.url}/{name}")
    shows(watched.page, "TRAINING-SICK")
    shows(watched.page, "loss 2.00 → 2.90 since step 2,400, not coming back")
    shows(watched.page, "Paused at step 2,460 by the breaker")
    settled(watched.page)
    assert watched.page.locator("[data-testid=stException]").count() == 0
    assert watched.page.get_by_text("encountered an error").count() == 0
    assert watched.complaints == []
    assert [url for url in watched.went_to if not url.startswith((sick.url, "data:", "blob:"))] == []


def test_the_overview_fits_one_screen_and_reads_in_the_order_of_decisions(sick: Site, watched: Watched) -> None:
    watched.page.goto(sick.url)
    shows(watched.page, "Check in this order")
    watched.page.wait_for_selector(".js-plotly-plot .main-svg")
    shows(watched.page, "Not watched:")
    settled(watched.page)
    heights = watched.page.evaluate(
        "(() => { const m = document.querySelector('[data-testid=stMain]'); return [m.scrollHeight, m.clientHeight] })()"
    )
    assert heights[0] <= heights[1]
    tops = [
        watched.page.locator(selector).first.bounding_box()["y"] for selector in (".tv-band", ".tv-kpi", ".tv-chart", ".tv-strip")
    ]
    assert tops == sorted(tops)
    layers = watched.page.locator(".tv-checks").first.inner_text().lower()
    assert layers.index("data") < layers.index("code") < layers.index("numerics") < layers.index("cluster")


def test_what_is_shown_twice_is_sent_whole_each_time_and_never_by_a_hash_that_the_browser_may_have_dropped(
    sick: Site, watched: Watched
) -> None:
    """A reference to what the browser has dropped meanwhile ends the page: "Cached ForwardMsg MISS", and it stands still."""
    sent: list[ForwardMsg] = []
    watched.page.on(
        "websocket",
        lambda socket: socket.on(
            "framereceived", lambda frame: sent.append(ForwardMsg.FromString(frame)) if isinstance(frame, bytes) else None
        ),
    )
    watched.page.goto(f"{sick.url}/incidents")
    shows(watched.page, "First suspect: the data.")
    for _ in range(WAIT_MS // 250):
        large = [message.hash for message in sent if message.ByteSize() > 10_000]
        references = [message for message in sent if message.HasField("ref_hash")]
        if references or len(large) > len(set(large)):
            break
        watched.page.wait_for_timeout(250)
    assert references == []
    assert len(large) > len(set(large))


def test_a_link_to_a_window_and_to_an_incident_opens_there(sick: Site, watched: Watched) -> None:
    watched.page.goto(f"{sick.url}/curves?run={sample.RUN}&by=step&from=1050&to=1150")
    shows(watched.page, "Steps 1,050 to 1,150.")
    watched.page.wait_for_selector(".js-plotly-plot .main-svg")
    shown = watched.page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range")
    assert [round(x) for x in shown] == [1050, 1150]
    watched.page.goto(f"{sick.url}/incidents?run={sample.RUN}&incident={sample.RUN}/checkpoint/2/checkpoint_corrupt/2400")
    shows(watched.page, "Seen: a checkpoint cannot be trusted.")
    watched.page.goto(f"{sick.url}/incidents")
    shows(watched.page, "First suspect: the data.")


def test_a_zoom_goes_into_the_address_and_is_read_at_full_resolution(sick: Site, watched: Watched) -> None:
    watched.page.goto(f"{sick.url}/curves")
    watched.page.wait_for_selector(".js-plotly-plot .main-svg")
    settled(watched.page)
    box = watched.page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    watched.page.mouse.move(box["x"] + box["width"] * 0.40, y)
    watched.page.mouse.down()
    watched.page.mouse.move(box["x"] + box["width"] * 0.45, y, steps=6)
    watched.page.mouse.up()
    watched.page.wait_for_url(re.compile(r"from=\d+.*to=\d+|to=\d+.*from=\d+"))
    first, last = (int(re.search(rf"{name}=(\d+)", watched.page.url).group(1)) for name in ("from", "to"))
    assert 50 < last - first < 400
    watched.page.wait_for_function(
        """() => { const plot = document.querySelector('.js-plotly-plot'); if (!plot) return false;
          const trace = plot._fullData.find(t => t.name && t.name.startsWith('loss') && t.x && t.x.length > 20);
          return trace && trace.x[1] - trace.x[0] === 1 }"""
    )
    assert watched.complaints == []


def test_roll_back_says_what_it_costs_and_gives_the_commands(sick: Site, watched: Watched) -> None:
    watched.page.goto(sick.url)
    button = watched.page.get_by_role("button", name="Roll back to 2,200…")
    button.click()
    assert watched.page.locator(".tv-primary").count() == 1
    dialog = watched.page.get_by_role("dialog")
    shows(watched.page, "Safe checkpoint: step 2,200")
    playwright_api.expect(dialog).to_contain_text("Going back runs 260 steps again: about 13 min = 28 GPU-h", timeout=WAIT_MS)
    playwright_api.expect(dialog).to_contain_text(
        f"control stop {sick.run_dir} --by 'YOUR NAME' --reason WHY --wait 600", timeout=WAIT_MS
    )
    playwright_api.expect(dialog).to_contain_text(str(sick.run_dir / "checkpoints" / "step-0002200"), timeout=WAIT_MS)


def test_the_lines_of_a_page_offer_only_what_the_run_logs(sick: Site, watched: Watched) -> None:
    watched.page.goto(f"{sick.url}/curves")
    watched.page.wait_for_selector(".js-plotly-plot .main-svg")
    shows(watched.page, "by step")
    for name in ("mfu", "loss scale", "loss_scale", "skipped"):
        assert watched.page.get_by_text(name, exact=True).count() == 0


def test_a_phone_shows_every_page_without_scrolling_sideways(sick: Site, watched: Watched) -> None:
    watched.page.set_viewport_size({"width": 390, "height": 844})
    for name in PAGES:
        watched.page.goto(f"{sick.url}/{name}")
        shows(watched.page, "TRAINING-SICK")
        settled(watched.page)
        wide = watched.page.evaluate(
            "(() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth })()"
        )
        assert wide <= 0, name


def test_a_store_that_is_gone_is_said_with_its_age_and_the_page_recovers_by_itself(healthy: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(healthy.url)
    shows(page, "nothing open")
    page.locator(".tv-chart .main-svg").first.wait_for()
    kept = [page.locator(part).first.element_handle() for part in (".tv-band", ".tv-chart")]
    healthy.is_away = True
    healthy.backend.take_away(healthy.home)
    shows(page, healthy.backend.gone_words)
    shows(page, "What you see is")
    shows(page, "The curve is")
    assert all(part.evaluate("(node) => node.isConnected") for part in kept), "what stands above them draws neither anew"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{healthy.url}/healthz", timeout=10)
    assert refused.value.code == 503
    refused.value.close()
    healthy.backend.bring_back(healthy.home)
    healthy.is_away = False
    playwright_api.expect(page.get_by_text(healthy.backend.gone_words)).to_have_count(0, timeout=WAIT_MS)
    shows(page, "nothing open")
    assert watched.complaints == []


def test_pause_asks_who_and_why_and_the_state_comes_from_the_trainer_alone(healthy: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{healthy.url}/control")
    shows(page, "Running, last step")
    page.get_by_role("button", name="Pause…").last.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    shows(page, "Say who you are and why")
    control_file = healthy.run_dir / "control" / "control.json"
    assert json.loads(control_file.read_text(encoding="utf-8"))["seq"] == 0
    dialog.get_by_label("Who asks").fill("alice")
    dialog.get_by_label("Why").fill("ticket 812: loss odd")
    page.wait_for_timeout(2500)
    assert dialog.get_by_label("Why").input_value() == "ticket 812: loss odd"
    dialog.get_by_role("button", name="Pause", exact=True).dblclick()
    playwright_api.expect(dialog).to_be_hidden(timeout=WAIT_MS)
    written = json.loads(control_file.read_text(encoding="utf-8"))
    assert (written["seq"], written["desired"], written["by"], written["source"], written["reason"]) == (
        1,
        "paused",
        "alice",
        "ui",
        "ticket 812: loss odd",
    )
    shows(page, "waiting for the trainer's answer")
    shows(page, "state: running")
    healthy.state, healthy.seq = "paused", 1
    shows(page, "state: paused")
    shows(page, "PAUSED")
    assert watched.complaints == []


def test_hostile_text_is_shown_as_it_is_and_nothing_leaves_the_machine(
    tmp_path: Path, backend: Backend, watched: Watched
) -> None:
    site = open_site(tmp_path, backend, hostile=HOSTILE, name="![r](http://evil.invalid/run.png)")
    try:
        for name in PAGES:
            watched.page.goto(f"{site.url}/{name}?run={sample.RUN}")
            shows(watched.page, "TRAINING-SICK")
            settled(watched.page)
            assert watched.page.locator("[data-testid=stMain] img").count() == 0
            assert watched.page.evaluate("window.hacked") is None
        watched.page.goto(f"{site.url}/?run={sample.RUN}")
        band = watched.page.locator(".tv-band").first
        playwright_api.expect(band).to_contain_text("![x](http://evil.invalid/p.png) <img src=", timeout=WAIT_MS)
        watched.page.goto(f"{site.url}/?run=![q](http://evil.invalid/q.png)")
        shows(watched.page, "knows no run")
        settled(watched.page)
        assert [url for url in watched.went_to if "evil" in url and not url.startswith(site.url)] == []
        assert watched.complaints == []
    finally:
        site.close()


def test_a_dead_run_names_its_cause_what_its_start_changed_and_its_settings(
    tmp_path: Path, backend: Backend, watched: Watched
) -> None:
    page = watched.page
    line = f"{dead_run.LINE} {HOSTILE}"
    site = open_site(tmp_path, backend, fill=lambda store, run_dir, now_ns: dead_run.write_run(store, run_dir, now_ns, line=line))
    try:
        page.goto(site.url)
        shows(page, "attempt 2 died at step 1,500: CUDA out of memory on node17 rank 12 at ")
        shows(page, "63 others only followed")
        shows(page, "the hook met 2 errors in the trainer")
        page.goto(f"{site.url}/incidents?run={sample.RUN}")
        shows(page, "What the logs say")
        shows(page, line)
        shows(page, "node17 · rank 12 · local rank 4 · GPU-5d1c9a70-2f0e")
        shows(page, "Attempt 2 changed 12 settings of attempt 1: 6 may change what is learnt")
        changed = page.locator(".tv-fact", has_text="data.blend").first
        playwright_api.expect(changed.locator("pre")).to_be_hidden()
        changed.locator("summary").click()
        page.wait_for_timeout(3500)  # a refresh must not close what was opened
        playwright_api.expect(changed.locator("pre")).to_contain_text("before: /data/web-2023:0.7")
        page.goto(f"{site.url}/curves?run={sample.RUN}")
        page.wait_for_selector(".js-plotly-plot .main-svg")
        page.wait_for_function(
            "document.querySelector('.js-plotly-plot')._fullData.some(t => t.name === 'validation loss' && t.mode === 'markers')"
        )
        page.goto(f"{site.url}/control?run={sample.RUN}")
        shows(page, "18 of 18 keys")
        page.get_by_placeholder("filter: lr, nccl, data …").fill("nccl")
        page.keyboard.press("Enter")
        shows(page, "1 of 18 keys")
        settled(page)
        assert page.locator("[data-testid=stException], [data-testid=stMain] img").count() == 0
        assert page.evaluate("window.hacked") is None and watched.complaints == []
        assert [url for url in watched.went_to if "evil" in url] == []
    finally:
        site.close()


def test_a_store_that_was_never_there_is_said_once_with_what_to_do(tmp_path: Path, watched: Watched) -> None:
    (tmp_path / "run").mkdir()
    settings = tmp_path / "trainvitals.toml"
    settings.write_text(f'store = "sqlite://{tmp_path / "none.db"}"\n[[runs]]\nname = "r"\ndir = "run"\n', encoding="utf-8")
    port = free_port()
    environment = {**os.environ, "TRAINVITALS_CONFIG": str(settings), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                    break
                except OSError:
                    threading.Event().wait(0.2)
            watched.page.goto(f"http://localhost:{port}/")
            shows(watched.page, "There is no store at")
            settled(watched.page)
            assert watched.page.get_by_text("There is no store at").count() == 1
            assert watched.complaints == []
        finally:
            process.terminate()
            process.wait(20)


def test_nobody_may_frame_the_page(sick: Site, watched: Watched) -> None:
    with urllib.request.urlopen(f"{sick.url}/", timeout=10) as answer:
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    foreign = urllib.request.Request(f"http://127.0.0.1:{sick.port}/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign, timeout=10)
    assert refused.value.code == 403
    refused.value.close()


def test_any_address_but_loopback_is_refused_with_a_sentence(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(free_port()), "--server.address", "0.0.0.0"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode != 0
    assert "listens on 127.0.0.1 only" in ended.stderr
