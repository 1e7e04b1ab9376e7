"""The checkpoints page in a real browser: the safe one, what a restart would load, stories by click, hostile names, many checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
from dashboard_site import Site, open_site, sample  # noqa: E402
from dashboard_site import checkpoint_night as night  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402
from trainvitals.records import CheckpointState, Event  # noqa: E402
from trainvitals.store.encode import event_point  # noqa: E402
from trainvitals.store.protocol import Store  # noqa: E402

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if Path(path).exists()), None
)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
HOSTILE = '![x](http://evil.invalid/p.png) <img src=http://evil.invalid/i.png onerror="window.hacked=1"> [l](http://evil.invalid) $$x$$ :red[r]'
WAIT_MS = 25_000
MANY = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def paused(home: Path, fill) -> Site:  # type: ignore[no-untyped-def]
    site = open_site(home, SqliteBackend(), fill=fill)
    site.state, site.seq = "paused", 1
    return site


@pytest.fixture(scope="module")
def bad_night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = paused(tmp_path_factory.mktemp("night"), night.write_night)
    yield site
    site.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = paused(tmp_path_factory.mktemp("hostile"), partial(night.write_night, hostile=HOSTILE))
    yield site
    site.close()


def write_many(store: Store, run_dir: Path, now_ns: int) -> None:
    """A run of years that deletes nearly all it saved."""
    night.write_night(store, run_dir, now_ns)
    points = []
    for number in range(MANY):
        state = CheckpointState.VERIFIED if number % 1000 == 0 else CheckpointState.DELETED
        made = night.report(run_dir, 5 + number, now_ns, path=f"/old/{number}", state=state)
        at_ns = now_ns - (2 * MANY - number) * 10**9
        points.append(
            event_point(sample.RUN, Event("checkpoint", at_ns, step=made.step, attempt=1, id=f"many/{number}", data=asdict(made)))
        )
    store.write(points)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = paused(tmp_path_factory.mktemp("many"), write_many)
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
    seen.page.on("request", lambda request: seen.went_to.append(request.url))
    seen.page.set_default_timeout(WAIT_MS)
    yield seen
    context.close()


def shows(page: playwright_api.Page, text: str) -> None:
    playwright_api.expect(page.get_by_text(text).first).to_be_visible(timeout=WAIT_MS)


def drawn(page: playwright_api.Page) -> None:
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT_MS)
    page.wait_for_timeout(300)


def click_checkpoint(page: playwright_api.Page, ending: str) -> None:
    """Click the marker of the checkpoint whose path ends so."""
    page.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    place = page.evaluate(
        """(ending) => { const plot = document.querySelector('.js-plotly-plot'), full = plot._fullLayout, box = plot.getBoundingClientRect();
          for (const points of plot.calcdata) { const trace = points[0].trace;
            if (!trace.meta || trace.meta.kind !== 'checkpoint' || trace.meta.metric === 'start') continue;
            for (const point of points) if (trace.customdata[point.i].endsWith(ending))
              return [box.left + full.xaxis._offset + full.xaxis.c2p(point.x), box.top + full.yaxis._offset + full.yaxis.c2p(point.y)]; }
          return null; }""",
        ending,
    )
    assert place is not None, ending
    page.mouse.click(*place)


def test_the_page_says_first_what_is_safe_and_that_a_restart_would_load_another(bad_night: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{bad_night.url}/checkpoints")
    shows(page, "Safe: step 2,200, content verified, 197 steps before the onset at step 2,397, kept from deletion.")
    shows(page, "would load step 2,400 (highest step-N with .metadata), which is corrupt; the newest verified is step 2,200.")
    shows(page, "Going back runs 260 steps again")
    drawn(page)
    tops = [
        page.locator(f".st-key-{key}").bounding_box()["y"]
        for key in ("tv-card-way-back", "tv-card-timeline", "tv-card-judgements")
    ]
    assert tops == sorted(tops) and tops[0] < 300
    assert page.locator("[data-testid=stException]").count() == 0
    assert watched.complaints == []
    assert [url for url in watched.went_to if not url.startswith((bad_night.url, "data:", "blob:"))] == []


def test_saves_are_bars_starts_are_arrows_and_the_card_judges_each_point(bad_night: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{bad_night.url}/checkpoints")
    drawn(page)
    kinds = page.evaluate(
        "document.querySelector('.js-plotly-plot')._fullData.map(t => t.type + '/' + (t.meta.metric || t.meta.kind))"
    )
    assert {"bar/blocked_s", "bar/staged_s", "bar/persisted_s", "scatter/start", "scatter/kept", "scatter/save"} <= set(kinds)
    arrows = page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.annotations.filter(a => a.showarrow).length")
    assert arrows == 1
    rows = page.locator(".tv-judgements li")
    playwright_api.expect(rows).to_have_count(9)
    assert "tv-judged-look" in (rows.nth(2).get_attribute("class") or "")
    playwright_api.expect(rows.nth(2)).to_contain_text("no data position")
    playwright_api.expect(rows.nth(8)).to_contain_text("1.29 TB of 40 TB free")
    shows(page, "went on from step 1,200")


def test_a_click_on_a_checkpoint_tells_its_story(bad_night: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{bad_night.url}/checkpoints")
    drawn(page)
    click_checkpoint(page, "step-0002400")
    shows(page, "shard __7_0.distcp ends 8,192 bytes early")
    story = page.locator(".st-key-tv-card-checkpoint")
    playwright_api.expect(story).to_contain_text("not recommended")
    click_checkpoint(page, "step-0002200")
    playwright_api.expect(story).to_contain_text("against the hashes that the writer took")
    playwright_api.expect(story).to_contain_text("128 ranks · dp 16 × tp 8")
    playwright_api.expect(story).to_contain_text("random state: yes · data position: NO")
    playwright_api.expect(story).to_contain_text("the training waited 3 s, copied after 8 s, on disk after 1 min 54 s")
    assert watched.complaints == []


def test_the_overview_warns_of_the_restart_and_still_fits_one_screen(bad_night: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(bad_night.url)
    shows(page, "▲ a restart now would load step 2,400")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    shows(page, "Not watched:")
    drawn(page)
    heights = page.evaluate(
        "(() => { const m = document.querySelector('[data-testid=stMain]'); return [m.scrollHeight, m.clientHeight] })()"
    )
    assert heights[0] <= heights[1]


def test_a_phone_shows_all_of_it_without_scrolling_sideways(bad_night: Site, watched: Watched) -> None:
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{bad_night.url}/checkpoints")
    shows(page, "Safe: step 2,200")
    drawn(page)
    wide = page.evaluate(
        "(() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth })()"
    )
    assert wide <= 0
    click_checkpoint(page, "step-0002200")
    shows(page, "against the hashes that the writer took")


def test_hostile_texts_are_shown_letter_by_letter_and_call_nobody(hostile: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{hostile.url}/checkpoints")
    shows(page, "Safe: step 2,200")
    drawn(page)
    click_checkpoint(page, "step-0002400")
    playwright_api.expect(page.locator(".st-key-tv-card-checkpoint")).to_contain_text("<img src=http://evil.invalid/i.png")
    page.get_by_text("Why not a newer one").click()
    drawn(page)
    assert page.evaluate("window.hacked") is None
    assert [url for url in watched.went_to if "evil.invalid" in url] == []
    assert page.locator("img[src*=evil]").count() == 0
    assert watched.complaints == []


def test_ten_thousand_checkpoints_are_drawn_soon_and_bounded(many: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{many.url}/checkpoints")
    shows(page, "Safe: step")
    begun = time.monotonic()
    page.reload()
    shows(page, "Safe: step")
    drawn(page)
    took_s = time.monotonic() - begun
    shows(page, "older ones are not shown")
    markers = page.evaluate(
        "document.querySelector('.js-plotly-plot')._fullData.filter(t => t.meta.kind === 'checkpoint').reduce((n, t) => n + t.x.length, 0)"
    )
    assert 0 < markers <= 310
    assert page.evaluate("document.querySelectorAll('*').length") < 8000
    assert took_s < 15, took_s
    assert watched.complaints == []
