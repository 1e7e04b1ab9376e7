"""The wall in a real browser: live in a frame of another origin without a cookie, by a link only, with nothing on it that acts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
from test_pages import CHROMIUM, HOSTILE  # noqa: E402
from wall_site import BLOCKED_COOKIES, WAIT_MS, Site, Wiki, command, link, open_wall, sample  # noqa: E402

SET_COOKIE = "document.cookie = 'probe=1; SameSite=None; Secure'; document.cookie"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def wiki() -> Iterator[Wiki]:
    opened = Wiki()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def site(wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A healthy run that trains, and one of which no link is made."""
    opened = open_wall(
        tmp_path_factory.mktemp("wall"), wiki, sick=False, more='[[runs]]\nname = "secret-run"\ndir = "elsewhere"\n'
    )
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=BLOCKED_COOKIES)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: playwright_api.Browser) -> Iterator[playwright_api.Page]:
    context = browser.new_context(viewport={"width": 1300, "height": 1100})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    yield opened
    context.close()


def framed(page: playwright_api.Page, wiki: Wiki, address: str, width: int = 800) -> playwright_api.FrameLocator:
    page.goto(wiki.frame(address, width, 1000))
    return page.frame_locator("#wall")


def text_of(frame: playwright_api.FrameLocator) -> str:
    return str(frame.locator("body").inner_text())


def test_a_wiki_of_another_origin_shows_it_live_without_any_cookie(page: playwright_api.Page, site: Site, wiki: Wiki) -> None:
    frame = framed(page, wiki, link(site))
    frame.get_by_text("nothing open").wait_for()
    frame.locator(".js-plotly-plot .main-svg").first.wait_for()
    frame.get_by_text("Nodes · 16").wait_for()
    frame.get_by_text(re.compile("Checkpoints · ")).wait_for()
    seen: set[str] = set()
    end = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < end:
        seen |= set(re.findall(r"step (2,4\d\d)", text_of(frame)))
        page.wait_for_timeout(300)
    assert len(seen) >= 3, "the step goes on by itself"
    assert page.context.cookies() == [], "none is needed, none is set"
    assert "probe" not in page.frames[1].evaluate(SET_COOKIE), "this browser lets no cookie into a frame of another site"
    page.goto(f"{site.url}/healthz")
    assert "probe" in page.evaluate(SET_COOKIE), "... but into a page of its own"


def test_there_is_nothing_to_press_and_no_other_page_in_it(page: playwright_api.Page, site: Site, wiki: Wiki) -> None:
    frame = framed(page, wiki, link(site))
    frame.locator(".js-plotly-plot .main-svg").first.wait_for()
    frame.get_by_text(re.compile("Checkpoints · ")).wait_for()
    inner = page.frames[1]
    assert inner.evaluate("document.querySelectorAll('button, input, textarea, select, form').length") == 0
    links = inner.evaluate("[...document.querySelectorAll('a')].map(one => one.getAttribute('href'))")
    assert all(one is None or one.startswith("#") for one in links), links
    for word in ("Pause", "Resume", "Control", "Overview", "Your decision", "Roll back"):
        assert word not in text_of(frame)
    frame.locator(".js-plotly-plot").click(position={"x": 300, "y": 100})
    frame.locator("canvas").first.click()
    frame.locator(".tv-cell").first.click()
    page.wait_for_timeout(1500)
    assert inner.url.split("?")[0].endswith("/wall") and "nothing open" in text_of(frame)


def test_a_session_of_the_wall_knows_no_other_page(page: playwright_api.Page, site: Site) -> None:
    page.goto(link(site))
    page.get_by_text("nothing open").wait_for()
    page.evaluate(
        "history.pushState({}, '', location.pathname.replace('wall', 'control') + location.search); dispatchEvent(new PopStateEvent('popstate'))"
    )
    page.wait_for_timeout(3000)
    told = page.locator("body").inner_text()
    assert (
        page.get_by_role("button", name=re.compile("^(Pause|Resume|Arm|Checkpoint)")).count() == 0 and "breaker armed" not in told
    )


def test_a_link_that_is_altered_expired_revoked_or_for_another_run_shows_a_sentence_and_no_data(
    page: playwright_api.Page, site: Site, wiki: Wiki
) -> None:
    good, short, gone = link(site), link(site, "--days", "0.00001"), link(site)
    id = command(site, "list").splitlines()[-1].split()[0]
    command(site, "revoke", id)
    head, _, key = good.partition("key=")
    cases = {
        head + "key=" + key[:-1] + ("A" if key[-1] != "A" else "B"): "was altered",
        short: "has expired",
        gone: "was revoked",
        good.replace(f"run={sample.RUN}", "run=secret-run"): "another run",
        head.rstrip("&"): "opens with a link",
    }
    page.wait_for_timeout(1000)  # 0.00001 days
    for address, says in cases.items():
        frame = framed(page, wiki, address)
        frame.get_by_text(says).wait_for()
        told = text_of(frame)
        assert sample.RUN not in told and "secret-run" not in told and "2,4" not in told and "healthy" not in told
        assert frame.locator(".tv-band, .tv-kpi, .js-plotly-plot, canvas").count() == 0


def test_a_wall_that_hangs_open_closes_when_its_link_is_revoked(page: playwright_api.Page, site: Site, wiki: Wiki) -> None:
    frame = framed(page, wiki, link(site))
    frame.get_by_text("nothing open").wait_for()
    command(site, "revoke", command(site, "list").splitlines()[-1].split()[0])
    frame.get_by_text("was revoked").wait_for()
    playwright_api.expect(frame.locator(".tv-band")).to_have_count(0, timeout=WAIT_MS)
    assert "healthy" not in text_of(frame)


@pytest.mark.parametrize(("theme", "language", "word"), [("dark", "zh", "正常"), ("light", "en", "healthy")])
def test_it_speaks_the_language_and_wears_the_colours_of_its_address(
    page: playwright_api.Page, site: Site, wiki: Wiki, theme: str, language: str, word: str
) -> None:
    frame = framed(page, wiki, link(site, "--theme", theme, "--lang", language))
    frame.get_by_text(word, exact=True).wait_for()
    frame.locator(f".tv-band[data-tv-theme={theme}]").wait_for()


@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits_from_400_to_1200_pixels(page: playwright_api.Page, site: Site, wiki: Wiki, width: int) -> None:
    frame = framed(page, wiki, link(site), width)
    frame.locator(".js-plotly-plot .main-svg").first.wait_for()
    frame.get_by_text(re.compile("Checkpoints · ")).wait_for()
    page.wait_for_timeout(500)
    assert page.frames[1].evaluate("document.documentElement.scrollWidth") <= width
    too_wide = page.frames[1].evaluate(
        "[...document.querySelectorAll('.tv-band, .tv-kpi, .tv-tile, .tv-chart, .tv-wall')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert too_wide == 0


def test_only_what_the_link_allows_is_shown(page: playwright_api.Page, site: Site, wiki: Wiki) -> None:
    address = link(site, "--show", "verdict")
    frame = framed(page, wiki, address.replace("show=verdict", "show=verdict,nodes,curves,checkpoints"))
    frame.get_by_text("nothing open").wait_for()
    page.wait_for_timeout(1000)
    assert frame.locator(".js-plotly-plot, canvas, .tv-strip").count() == 0


def test_hostile_names_and_texts_stay_letters_and_call_nobody(
    browser: playwright_api.Browser, wiki: Wiki, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = "![r](http://evil.invalid/run.png)<img src=x onerror=window.hacked=1>"
    site = open_wall(tmp_path_factory.mktemp("hostile"), wiki, hostile=HOSTILE, name=name)
    try:
        for run, shown in ((sample.RUN, HOSTILE.split(" ")[0]), (name, name)):
            for language in ("en", "zh"):
                context = browser.new_context(viewport={"width": 1300, "height": 1100})
                page = context.new_page()
                page.set_default_timeout(WAIT_MS)
                went_to: list[str] = []
                page.on("request", lambda request, went_to=went_to: went_to.append(request.url))
                frame = framed(page, wiki, link(site, "--lang", language, run=run))
                frame.locator(".tv-band").wait_for()
                if language == "en" or run == name:
                    frame.get_by_text(shown).first.wait_for()
                canvas = frame.locator("canvas").first
                canvas.hover()
                page.wait_for_timeout(1500)
                assert all(url.startswith((wiki.origin, site.url, "data:", "blob:")) for url in went_to), went_to
                assert page.frames[1].evaluate("window.hacked === undefined")
                assert frame.locator("img[src*=evil], a[href*=evil]").count() == 0
                context.close()
    finally:
        site.close()


def test_the_page_itself_asks_for_a_link_in_a_frame_even_on_this_machine(
    page: playwright_api.Page, site: Site, wiki: Wiki
) -> None:
    frame = framed(page, wiki, f"{site.url}/wall?embed=true&run={sample.RUN}")
    frame.get_by_text("opens with a link").wait_for()
    page.goto(f"{site.url}/wall?run={sample.RUN}")
    page.get_by_text("nothing open").wait_for()
