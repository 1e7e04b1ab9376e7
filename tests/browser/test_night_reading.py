"""What somebody woken at three in the morning does with the pages: reads tables on a phone, picks by keyboard, takes numbers along, prints."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
import test_pages  # noqa: E402
from dashboard_site import Site, open_site, sample  # noqa: E402
from test_pages import WAIT_MS, settled, shows  # noqa: E402

from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark
TURNED = "loss \u202eniaga enif si\u202c, see part-\u20660412"


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright_api.Browser]:
    with playwright_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = open_site(tmp_path_factory.mktemp("night"), SqliteBackend())
    yield site
    site.close()


@pytest.fixture
def page(browser: playwright_api.Browser) -> Iterator[playwright_api.Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    yield opened
    context.close()


def drawn(page: playwright_api.Page) -> None:
    page.wait_for_selector(".js-plotly-plot .main-svg")
    settled(page)


def test_the_overview_leads_to_the_incident_and_that_shows_the_curve_around_the_moment(
    sick: Site, page: playwright_api.Page
) -> None:
    page.goto(sick.url)
    page.get_by_role("link", name="Open the incident · 1 more open").click()
    shows(page, "Around the onset: steps 2,197 to 2,460")
    drawn(page)
    shown = page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range")
    assert [round(x) for x in shown] == [2197, 2460]
    assert "incident=" in page.url
    page.get_by_role("link", name="All curves").click()
    shows(page, "Steps 2,197 to 2,797.")


def test_an_incident_is_picked_by_keyboard_alone_and_stays_in_the_address(sick: Site, page: playwright_api.Page) -> None:
    page.goto(f"{sick.url}/incidents")
    row = page.locator("button.tv-cell-text", has_text="checkpoint of step 2,400 cannot be restored")
    row.wait_for()
    settled(page)
    row.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    page.keyboard.press("Enter")
    shows(page, "Seen: a checkpoint cannot be trusted.")
    playwright_api.expect(row).to_have_attribute("aria-pressed", "true")
    assert "checkpoint_corrupt" in page.url
    page.locator("tr", has_text="loss is NaN at step 1,100").locator("td").last.click()
    shows(page, "Seen: occasional NaN.")


def test_the_tab_names_the_verdict_and_nothing_moves_while_nothing_changes(sick: Site, page: playwright_api.Page) -> None:
    page.goto(sick.url)
    shows(page, "Check in this order")
    drawn(page)
    page.wait_for_function(f"document.title === '▲ TRAINING-SICK · {sample.RUN}'")
    page.wait_for_timeout(2_000)
    moved = page.evaluate(
        """() => new Promise((done) => { let sum = 0; new PerformanceObserver((list) => { for (const one of list.getEntries()) sum += one.value; })
          .observe({ type: "layout-shift" }); setTimeout(() => done(sum), 6000); })"""
    )
    assert moved == 0, "a page that jumps at each refresh cannot be read"


def test_a_table_on_a_phone_shows_all_of_its_text_without_scrolling_sideways(sick: Site, page: playwright_api.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for name, text in (
        ("incidents", "asked the trainer to pause at step 2,458: loss not coming back"),
        ("nodes", "GPU 3: 92 °C"),
        ("checkpoints", "shard __7_0.distcp ends 8,192 bytes early"),
    ):
        page.goto(f"{sick.url}/{name}")
        cell = page.locator(".tv-records td", has_text=text).first
        cell.wait_for()
        settled(page)
        box, right = cell.bounding_box(), page.evaluate("document.documentElement.clientWidth")
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= right, name
        assert page.evaluate(
            "[...document.querySelectorAll('.tv-record-box')].every(box => box.scrollWidth <= box.clientWidth + 1)"
        ), name


def test_on_a_phone_no_card_of_the_overview_is_an_empty_box(sick: Site, page: playwright_api.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(sick.url)
    shows(page, "Not watched:")
    drawn(page)
    card = page.locator(".st-key-tv-card-checks").bounding_box()
    last = page.locator(".tv-checks li").last.bounding_box()
    assert card is not None and last is not None
    assert card["y"] + card["height"] - (last["y"] + last["height"]) < 40


def test_the_points_on_screen_are_saved_as_they_are_drawn(sick: Site, page: playwright_api.Page) -> None:
    page.goto(f"{sick.url}/curves?run={sample.RUN}&by=step&from=1050&to=1150")
    shows(page, "Steps 1,050 to 1,150.")
    drawn(page)
    page.wait_for_function(
        "document.querySelector('.js-plotly-plot')._fullData.some(t => t.meta && t.meta.metric === 'loss' && t.x.length > 90)"
    )
    with page.expect_download() as started:
        page.get_by_role("button", name="Save these points as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(started.value.path()).read_text(encoding="utf-8"))))
    loss = {int(row["step"]): row for row in rows if row["metric"] == "loss"}
    assert set(loss) == set(range(1050, 1151)), "each step on screen, and no other"
    assert loss[1100]["mean"] == "" and 1.9 < float(loss[1060]["mean"]) < 2.6
    assert {row["metric"] for row in rows} >= {"loss", "grad_norm", "tokens_per_s", "lr"}


def test_how_the_lines_are_drawn_is_in_the_address_and_comes_back_with_it(sick: Site, page: playwright_api.Page) -> None:
    page.goto(f"{sick.url}/curves")
    drawn(page)
    kind = "document.querySelector('.js-plotly-plot')._fullLayout.yaxis.type"
    smooth = "document.querySelector('.js-plotly-plot')._fullData.filter(t => t.meta && t.meta.kind === 'smooth').length"
    assert page.evaluate(kind) == "linear" and page.evaluate(smooth) == 0
    page.get_by_text("log loss").click()
    page.wait_for_url("**log=1**")
    page.get_by_text("smooth", exact=True).click()
    page.wait_for_url("**smooth=1**")
    page.wait_for_function(f"{kind} === 'log' && {smooth} > 0")
    page.reload()
    page.wait_for_function(f"document.querySelector('.js-plotly-plot') && {kind} === 'log' && {smooth} > 0")
    page.get_by_text("log loss").click()
    page.wait_for_function(f"{kind} === 'linear'")
    assert "log=1" not in page.url and "smooth=1" in page.url


def test_the_marks_are_explained(sick: Site, page: playwright_api.Page) -> None:
    page.goto(f"{sick.url}/curves")
    drawn(page)
    page.get_by_role("button", name="Marks").click()
    shows(page, "steps that a later start ran again")


def test_an_incident_is_printed_whole_and_without_buttons(sick: Site, page: playwright_api.Page) -> None:
    page.goto(f"{sick.url}/incidents")
    drawn(page)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 760, "height": 600})
    playwright_api.expect(page.get_by_role("button", name="Acknowledge…")).to_be_hidden()
    playwright_api.expect(page.locator(".tv-actions").first).to_be_hidden()
    height, last = page.evaluate(
        "[document.documentElement.scrollHeight, [...document.querySelectorAll('.tv-records')].at(-1).getBoundingClientRect().bottom]"
    )
    assert height >= last > 600, "nothing is left below the window's edge"


def test_every_small_text_of_the_overview_and_the_incident_has_contrast(browser: playwright_api.Browser, sick: Site) -> None:
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        for name in ("", "incidents", "curves"):
            page.goto(f"{sick.url}/{name}")
            drawn(page)
            assert page.evaluate(CONTRAST) == [], (scheme, name)
        context.close()


def test_a_text_that_turns_the_direction_of_writing_turns_no_word_of_ours(tmp_path: Path, page: playwright_api.Page) -> None:
    site = open_site(tmp_path, SqliteBackend(), hostile=TURNED)
    try:
        for name in ("", "incidents", "checkpoints", "nodes"):
            page.goto(f"{site.url}/{name}")
            shows(page, "TRAINING-SICK")
            settled(page)
            text = page.locator("[data-testid=stMain]").inner_text()
            assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), name
            assert "niaga enif si" in text or name in ("nodes", "checkpoints")
    finally:
        site.close()


#: Texts below 4.5 : 1 (3 : 1 where large), what cannot be pressed now and single signs in a coloured box aside.
CONTRAST = r"""() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1); const d = pen.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat([1]);
  const light = (c) => { const f = c.slice(0, 3).map((v) => { const s = v / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const found = [], walker = document.createTreeWalker(document.querySelector("[data-testid=stApp]"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), at = walker.currentNode.parentElement;
    if (text.length < 2 || at.closest("button:disabled, svg, style, script, [data-testid=stIconMaterial]")) continue;
    const box = at.getBoundingClientRect(), style = getComputedStyle(at);
    if (box.width < 2 || box.height < 2 || style.visibility === "hidden") continue;
    let opacity = 1; const behind = [];
    for (let node = at; node; node = node.parentElement) { const s = getComputedStyle(node); opacity *= Number(s.opacity); const c = rgba(s.backgroundColor); if (c[3] > 0) { behind.push(c); if (c[3] >= 1) break; } }
    let back = [255, 255, 255, 1]; for (const c of behind.reverse()) back = over(c, back);
    const ink = rgba(style.color), front = over([ink[0], ink[1], ink[2], ink[3] * opacity], back);
    const [a, b] = [light(front), light(back)], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) found.push(`${ratio.toFixed(2)} ${text.slice(0, 40)}`);
  }
  return found;
}"""
