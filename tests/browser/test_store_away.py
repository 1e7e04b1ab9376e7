"""A store that is there but no store: the pages say so with the age of what they show, and go on by themselves afterwards.

A store that is gone altogether is in ``test_pages``.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import Site, open_site  # noqa: E402
from test_pages import WAIT_MS, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Site]:
    site = open_site(tmp_path, SqliteBackend(), sick=False)
    yield site
    site.close()


@pytest.fixture
def page(healthy: Site) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def healthz(site: Site) -> int:
    try:
        with urllib.request.urlopen(f"{site.url}/healthz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def stop_writing(site: Site) -> None:
    site.stopping.set()
    if site.thread is not None:
        site.thread.join(10)


def go_on_writing(site: Site) -> None:
    site.stopping.clear()
    site.thread = threading.Thread(target=site.live, daemon=True)
    site.thread.start()


WRONG: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"this is no database\n" * 500),
    "an empty file": Path.touch,
    "a directory": Path.mkdir,
}


def test_something_else_in_the_store_s_place_is_said_with_its_age_and_forgotten_afterwards(
    healthy: Site, page: playwright_api.Page
) -> None:
    page.goto(healthy.url)
    shows(page, "nothing open")
    for what, put in WRONG.items():
        stop_writing(healthy)
        kept = healthy.home / "kept"
        kept.mkdir()
        for path in healthy.home.glob("t.db*"):
            path.rename(kept / path.name)
        put(healthy.home / "t.db")
        trouble = page.locator(".st-key-tv-trouble")
        playwright_api.expect(trouble).to_contain_text("What you see is", timeout=WAIT_MS)
        assert healthz(healthy) == 503, what
        page.goto(f"{healthy.url}/curves")
        playwright_api.expect(trouble).to_contain_text("What you see is", timeout=WAIT_MS)
        assert page.locator("[data-testid=stException]").count() == 0, what
        (healthy.home / "t.db").rename(healthy.home / f"was {what}")
        for path in healthy.home.glob("t.db-*"):
            path.unlink()
        for path in kept.iterdir():
            path.rename(healthy.home / path.name)
        kept.rmdir()
        go_on_writing(healthy)
        playwright_api.expect(trouble).to_have_count(0, timeout=WAIT_MS)
        shows(page, "nothing open")
        assert healthz(healthy) == 200, what
