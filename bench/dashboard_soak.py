"""Does a page that stays open for days grow? Many refreshes in a real browser, and what server and browser hold before and after.

    python bench/dashboard_soak.py [--ticks 500] [--viewers 1]

Starts its own dashboard on a made-up run (tests/web/sample_run.py) that goes on training, opens the overview in headless
Chromium, and prints the server's resident memory and the browser's JavaScript heap, DOM nodes and listeners at each stage.
A tick is one refresh of the page's fastest part, counted as frames of its websocket that carry data.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "web")]

import sample_run as sample  # noqa: E402

from trainvitals.store.sqlite import SqliteStore  # noqa: E402

CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
#: Asked for in the settings; ``refresh_s`` has a floor of 0.5 s in the pages.
REFRESH_S = 0.2
MEGABYTE = 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=500, help="refreshes until the last look")
    parser.add_argument("--first", type=int, default=50, help="refreshes until the first look")
    parser.add_argument("--viewers", type=int, default=1, help="pages open at once; the first one is measured")
    options = parser.parse_args()
    chromium = next((path for path in CHROMIUM if Path(path).exists()), None)
    if chromium is None:
        print("No Chromium on this machine: nothing to measure.", file=sys.stderr)
        return 1
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        return soak(Path(directory), chromium, options)


def soak(home: Path, chromium: str, options: argparse.Namespace) -> int:
    store = SqliteStore(home / "t.db")
    sample.write_run(store, home / "run", time.time_ns(), sick=False)
    config = home / "trainvitals.toml"
    config.write_text(
        f'store = "sqlite://{home / "t.db"}"\n[[runs]]\nname = "{sample.RUN}"\ndir = "{home / "run"}"\n'
        f'checkpoints = ["{home / "run" / "checkpoints"}"]\ntotal_steps = 12000\n[dashboard]\nrefresh_s = {REFRESH_S}\n'
    )
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = {**os.environ, "TRAINVITALS_CONFIG": str(config), "PYTHONPATH": str(ROOT)}
    stopping = threading.Event()
    trainer = threading.Thread(target=train, args=(store, home / "run", stopping))
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)
    trainer.start()
    try:
        wait_for(port)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            counted, page = open_viewers(browser, port, options.viewers)
            first = look(page, server.pid, counted, options.first)
            last = look(page, server.pid, counted, options.ticks)
            browser.close()
    finally:
        stopping.set()
        trainer.join()
        server.terminate()
        server.wait(20)
        store.close()
    for name in first:
        print(f"{name:28} {first[name]:12,.1f} {last[name]:12,.1f}   {last[name] - first[name]:+10,.1f}")
    return 0


def train(store: SqliteStore, run_dir: Path, stopping: threading.Event) -> None:
    """A step, a heartbeat and the nodes every half second, as watchdog and collectors write them."""
    step = 2390
    while not stopping.wait(0.5):
        step += 1
        now_ns = time.time_ns()
        sample.write_status(run_dir, sample.RUN, "running", 0, now_ns, now_ns, step)
        store.write(
            [sample.beat(sample.RUN, now_ns), sample.step_now(sample.RUN, step, now_ns), *sample.node_points(sample.RUN, now_ns)]
        )


def open_viewers(browser: Any, port: int, viewers: int) -> tuple[list[int], Page]:
    """(a counter of refreshes of the first page, that page)."""
    counted = [0]
    pages = [browser.new_page(viewport={"width": 1440, "height": 900}) for _ in range(max(1, viewers))]
    pages[0].on("websocket", lambda found: found.on("framereceived", lambda frame: count(counted, frame)))
    for page in pages:
        page.goto(f"http://127.0.0.1:{port}/")
    pages[0].wait_for_selector(".tv-chart .main-svg", timeout=60_000)
    return counted, pages[0]


def count(counted: list[int], frame: Any) -> None:
    """The band's data come once in every refresh of the page's top."""
    if isinstance(frame, bytes) and b"data_age_s" in frame:
        counted[0] += 1


def look(page: Page, server_pid: int, counted: list[int], ticks: int) -> dict[str, float]:
    """Numbers after so many refreshes, garbage collected."""
    while counted[0] < ticks:
        page.wait_for_timeout(200)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")
    client.send("HeapProfiler.collectGarbage")
    metrics = {metric["name"]: metric["value"] for metric in client.send("Performance.getMetrics")["metrics"]}
    client.detach()
    return {
        "refreshes": float(counted[0]),
        "server resident MB": resident_bytes(server_pid) / MEGABYTE,
        "browser JS heap MB": metrics["JSHeapUsedSize"] / MEGABYTE,
        "browser DOM nodes": metrics["Nodes"],
        "browser listeners": metrics["JSEventListeners"],
    }


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(150):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                json.load(answer)
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("The dashboard did not start within 30 s.")


if __name__ == "__main__":
    sys.exit(main())
