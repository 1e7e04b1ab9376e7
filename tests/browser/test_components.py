"""The components in a real browser: they keep the viewer's place, report clicks, and show hostile text as text."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no chromium on this machine"),
]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def gallery() -> Iterator[str]:
    """The gallery app on a port of its own; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "tests/browser/apps/gallery_app.py"),
               "--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true",
               "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
                        break
                except (urllib.error.URLError, OSError):
                    assert server.poll() is None, "the gallery did not start"
                    Event().wait(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=20)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with gallery() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 1900})
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    yield opened
    context.close()


def open_gallery(page: Any, address: str, query: str = "") -> None:
    page.goto(f"{address}/?embed=true&{query}")
    page.wait_for_selector(".tv-chart .main-svg")
    page.wait_for_selector(".tv-wall canvas")
    page.wait_for_function("document.querySelector('.tv-chart .tv-plot')._fullLayout !== undefined")


def wait_text(page: Any, pattern: str) -> None:
    page.wait_for_function("p => new RegExp(p).test(document.querySelector('[data-testid=stCode]').innerText)", arg=pattern)


def ticks(page: Any) -> int:
    found = re.search(r"ticks=(\d+)", page.inner_text("[data-testid=stCode]"))
    assert found
    return int(found.group(1))


def marker_position(page: Any, finding_id: str) -> dict[str, float]:
    """Where a marker is on screen, from Plotly's own numbers."""
    position: dict[str, float] = page.evaluate(
        """id => { const plot = document.querySelector('.tv-chart .tv-plot'); const box = plot.getBoundingClientRect();
        for (const points of plot.calcdata) { const trace = points[0].trace; if (!trace.meta || trace.meta.kind !== 'finding') continue;
          const at = trace.customdata.indexOf(id); if (at < 0) continue;
          const xa = plot._fullLayout.xaxis, ya = plot._fullLayout['yaxis' + trace.yaxis.slice(1)];
          return {x: box.left + xa._offset + xa.c2p(points[at].x), y: box.top + ya._offset + ya.c2p(points[at].y)}; } }""",
        finding_id,
    )
    return position


def drag_zoom(page: Any) -> None:
    box = page.query_selector(".tv-chart .nsewdrag").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.45, y, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()


def test_zoom_and_hover_outlive_refreshes_on_the_same_node(page: Any, address: str) -> None:
    open_gallery(page, address, "every=0.7")
    page.evaluate(
        "window.firstPlot = document.querySelector('.tv-chart .tv-plot'); window.firstSvg = document.querySelector('.tv-chart .main-svg')"
    )
    drag_zoom(page)
    wait_text(page, "live=False")
    shown = page.evaluate("window.firstPlot._fullLayout.xaxis.range.slice()")
    assert 46_000 < shown[0] < shown[1] < 48_500
    box = page.query_selector(".tv-chart .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.wait_for_selector(".tv-chart .hoverlayer .legend, .tv-chart .hoverlayer .hovertext")
    before, end_of_curve = (
        ticks(page),
        "window.firstPlot.calcdata.filter(c => c[0].trace.meta.kind === 'series').map(c => c[c.length - 1].x).reduce((a, b) => Math.max(a, b))",
    )
    last = page.evaluate(end_of_curve)
    wait_text(page, "|".join(f"ticks={before + more} " for more in range(4, 60)))
    assert page.evaluate("window.firstPlot === document.querySelector('.tv-chart .tv-plot')")
    assert page.evaluate("window.firstSvg === document.querySelector('.tv-chart .main-svg')")
    assert page.evaluate("window.firstPlot._fullLayout.xaxis.range.slice()") == shown
    assert (
        page.evaluate("document.querySelectorAll('.tv-chart .hoverlayer .legend, .tv-chart .hoverlayer .hovertext').length") > 0
    )
    assert page.evaluate(end_of_curve) > last, "the curve must have gone on meanwhile"
    page.keyboard.press("l")
    wait_text(page, "live=True range=None")
    page.wait_for_function("window.firstPlot._fullLayout.xaxis.range[0] === 45900")


def test_a_double_click_and_the_button_go_back_to_live(page: Any, address: str) -> None:
    open_gallery(page, address)
    for back in ("button", "double"):
        drag_zoom(page)
        wait_text(page, "live=False")
        if back == "button":
            page.click(".tv-chart .tv-live")
        else:
            box = page.query_selector(".tv-chart .nsewdrag").bounding_box()
            page.mouse.dblclick(box["x"] + 30, box["y"] + box["height"] / 2)
        wait_text(page, "live=True range=None")
        assert page.is_hidden(".tv-chart .tv-live")


def test_a_zoom_on_the_time_axis_is_told_in_utc_milliseconds(page: Any, address: str) -> None:
    open_gallery(page, address, "by=time")
    drag_zoom(page)
    wait_text(page, r"live=False range=\(17673\d+\.\d+, 17673\d+\.\d+\)")


def test_a_click_on_a_marker_returns_its_finding(page: Any, address: str) -> None:
    open_gallery(page, address, "every=0.7")
    at = marker_position(page, "loss_divergence/48210")
    page.mouse.move(at["x"] + 3, at["y"])
    page.mouse.down()
    page.mouse.up()
    wait_text(page, r"click=\{.*'id': 'loss_divergence/48210'")


def test_clicks_on_wall_strip_and_band_return_what_was_meant(page: Any, address: str) -> None:
    open_gallery(page, address)
    assert page.locator(".tv-band .tv-primary").count() == 1, "one accent button at most"
    page.click(".tv-band .tv-button:has-text('Acknowledge')")
    wait_text(page, "action=acknowledge")
    page.click(".tv-strip .tv-safe")
    wait_text(page, "path=/ckpt/iter_0048000")
    page.locator(".tv-wall canvas").nth(1).click(position={"x": 5, "y": 22})
    wait_text(page, "node=rack00-node00")
    page.locator(".tv-wall canvas").nth(1).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    wait_text(page, "node=rack00-node0[23]")
    label = page.locator(".tv-wall canvas").nth(1).get_attribute("aria-label")
    assert label.startswith("640 nodes: 635 ok, 1 warm, 1 warn, 1 fail, 1 silent, 1 drained")


def test_hostile_text_is_shown_as_it_is_and_nothing_leaves_the_page(page: Any, address: str) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    open_gallery(page, address, "hostile=1")
    at = marker_position(page, "loss_divergence/48210")
    page.mouse.move(at["x"], at["y"])
    page.wait_for_selector(".tv-chart .hoverlayer .legend, .tv-chart .hoverlayer .hovertext")
    page.locator(".tv-wall canvas").nth(1).hover(position={"x": 5, "y": 22})
    page.wait_for_selector(".tv-wall .tv-tip:not([hidden])")
    shown = page.inner_text("body")
    assert shown.count("<img src=x onerror") >= 5
    assert "![](http://evil.example/p.png)" in shown
    assert (
        page.locator(
            ".tv-band img, .tv-kpi img, .tv-checks img, .tv-chart a, .tv-wall img, .tv-strip img, [class^=tv-] a"
        ).count()
        == 0
    )
    assert [url for url in requests if "evil.example" in url or "stolen" in url] == []


def test_a_healthy_run_is_one_thin_line_whose_age_goes_on_without_a_server(page: Any, address: str) -> None:
    page.clock.install()
    open_gallery(page, address, "calm=1")
    assert "tv-thin" in page.get_attribute(".tv-band", "class")
    assert page.query_selector(".tv-band").bounding_box()["height"] < 40
    page.context.set_offline(True)
    page.clock.fast_forward(45_000)
    page.wait_for_function("/no answer from the dashboard/.test(document.querySelector('.tv-band').innerText)")
    assert "tv-stale" in page.get_attribute(".tv-band", "class")
    assert int(re.search(r"data (\d+) s old", page.inner_text(".tv-band")).group(1)) >= 10  # type: ignore[union-attr]


def test_a_chart_library_that_cannot_load_is_said_in_the_chart(page: Any, address: str) -> None:
    page.route("**/assets/plotly-*.js", lambda route: route.fulfill(status=404, body="gone"))
    page.goto(f"{address}/?embed=true")
    page.wait_for_selector(".tv-chart .tv-error:not([hidden])")
    assert "could not be loaded" in page.inner_text(".tv-chart .tv-error")
    page.wait_for_selector(".tv-band .tv-title")


def test_names_of_nodes_travel_once(page: Any, address: str) -> None:
    sizes: list[int] = []
    page.on(
        "websocket",
        lambda socket_: socket_.on(
            "framereceived", lambda frame: sizes.append(frame.count(b"rack20-node07") if isinstance(frame, bytes) else 0)
        ),
    )
    open_gallery(page, address, "every=0.5")
    wait_text(page, "ticks=([4-9]|[1-9][0-9]) ")
    with_names = [count for count in sizes if count]
    assert 1 <= len(with_names) <= 6, "the first frames hold the names of both walls, later ones do not"
    seen = ticks(page)
    sizes.clear()
    wait_text(page, "|".join(f"ticks={seen + more} " for more in range(3, 30)))
    assert not any(sizes)


def test_many_refreshes_leave_no_listeners_and_no_nodes_behind(page: Any, address: str) -> None:
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")

    def counted() -> dict[str, float]:
        client.send("HeapProfiler.collectGarbage")
        return {metric["name"]: metric["value"] for metric in client.send("Performance.getMetrics")["metrics"]}

    open_gallery(page, address, "every=0.4")
    wait_text(page, "ticks=([5-9]|[1-9][0-9]) ")
    before = counted()
    first = ticks(page)
    wait_text(page, "|".join(f"ticks={first + more} " for more in range(10, 60)))
    after = counted()
    assert after["Nodes"] - before["Nodes"] < 300
    assert after["JSEventListeners"] - before["JSEventListeners"] < 40
