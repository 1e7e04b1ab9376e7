"""Each press opens its dialog, at the first press: also while the page is refreshed all the time on a machine that is busy."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

import test_pages  # noqa: E402
from dashboard_site import Site, open_site  # noqa: E402
from streamlit.proto.BackMsg_pb2 import BackMsg  # noqa: E402
from test_control_page import ACCESS, Trainer  # noqa: E402

from pages._shared import single_presses  # noqa: E402
from tests.services.backends import SqliteBackend  # noqa: E402

pytestmark = test_pages.pytestmark
PRESSES = 8
BUSY_PROCESSES = 3
#: The next press comes at any moment between two refreshes, which are a second apart.
PAUSE_MS = 1_000
DEADLINE_MS = 60_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = open_site(tmp_path_factory.mktemp("press"), SqliteBackend(), sick=False, more=ACCESS)
    trainer = Trainer(made)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROCESSES)]
    yield made
    for process in busy:
        process.kill()
        process.wait()
    trainer.close()
    made.close()


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[playwright_api.Page]:
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=test_pages.CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        come_on_call(opened, site)
        yield opened
        browser.close()


def come_on_call(page: playwright_api.Page, site: Site) -> None:
    page.set_default_timeout(DEADLINE_MS)
    page.goto(f"{site.url}/control")
    page.get_by_label("Your name").fill("ana")
    page.get_by_label("Your name").press("Enter")
    page.get_by_role("button", name="Pause…").last.wait_for()


def press_again_and_again(page: playwright_api.Page, button: playwright_api.Locator) -> None:
    dialog, chance = page.get_by_role("dialog"), random.Random(5)
    for number in range(PRESSES):
        button.click()
        try:
            dialog.get_by_label("Why").wait_for()
        except playwright_api.TimeoutError:
            pytest.fail(f"press {number + 1} opened no dialog")
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        page.wait_for_timeout(chance.uniform(0.0, PAUSE_MS))  # a person's own pace; nothing is waited for


def test_each_press_of_the_control_page_opens_its_dialog(page: playwright_api.Page) -> None:
    press_again_and_again(page, page.get_by_role("button", name="Pause…").last)


def test_each_press_of_the_band_on_the_overview_opens_its_dialog(page: playwright_api.Page) -> None:
    page.get_by_role("link", name="Overview").first.click()
    page.locator(".tv-kpi").first.wait_for()
    button = page.locator(".tv-band .tv-button:has-text('Pause')")
    press_again_and_again(page, button)


#: A press in the same moment as the link, before the browser has heard of the next page.
LEAVE_AND_PRESS = """([to, what]) => {
    const link = [...document.querySelectorAll("a")].find((one) => one.textContent.trim() === to);
    const button = [...document.querySelectorAll(".tv-band .tv-button")].find((one) => one.textContent.startsWith(what));
    link.click();
    button.click();
}"""


def close(dialog: playwright_api.Locator) -> None:
    dialog.get_by_label("Close").click()
    dialog.wait_for(state="hidden")


def test_a_press_on_the_page_that_is_being_left_opens_its_dialog_on_the_next_one(page: playwright_api.Page) -> None:
    dialog, band = page.get_by_role("dialog"), page.locator(".tv-band .tv-button:has-text('Pause')")
    for to, address in (("Checkpoints", "/checkpoints"), ("Curves", "/curves"), ("Control", "/control"), ("Overview", "/?")):
        band.wait_for()
        page.evaluate(LEAVE_AND_PRESS, [to, "Pause"])
        dialog.get_by_label("Why").wait_for()
        assert address in page.url
        close(dialog)


#: What a page does that is still being laid out: everything below moves, between the press and the release of a finger.
PUSH = """() => {
    const main = document.querySelector("[data-testid=stMain] [data-testid=stVerticalBlock]");
    main.style.paddingTop = main.style.paddingTop ? "" : "90px";
}"""


def pressed_while(
    page: playwright_api.Page, where: str, happens: Callable[[playwright_api.Locator], None], away: tuple[int, int]
) -> None:
    """Something happens between press and release: the dialog opens, and does not where the finger moves ``away`` (pixels) before."""
    page.get_by_role("link", name="Control").first.click()
    dialog, button = page.get_by_role("dialog"), page.locator(where, has_text="Pause…").first
    button.wait_for()
    test_pages.settled(page)
    for leaves in (False, True):
        box = button.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        happens(button)
        if leaves:
            page.mouse.move(x + away[0], y + away[1])
        page.mouse.up()
        if leaves:
            page.wait_for_timeout(3_000)
            assert dialog.count() == 0
        else:
            dialog.get_by_label("Why").wait_for()
            close(dialog)


@pytest.mark.parametrize("where", [".tv-band .tv-button", "[data-testid=stButton] button"])
def test_a_button_that_moves_away_under_the_finger_is_pressed_all_the_same(page: playwright_api.Page, where: str) -> None:
    def moves(button: playwright_api.Locator) -> None:
        before = button.bounding_box()
        page.evaluate(PUSH)
        assert button.bounding_box()["y"] != before["y"]

    pressed_while(page, where, moves, (60, 0))


def test_a_button_that_is_drawn_anew_under_the_finger_is_pressed_all_the_same(page: playwright_api.Page) -> None:
    def is_drawn_anew(button: playwright_api.Locator) -> None:
        button.evaluate("(node) => node.remove()")
        button.wait_for()  # the next refresh makes another one

    pressed_while(page, ".tv-band .tv-button", is_drawn_anew, (0, -40))


#: A press whose timer comes late, as on a busy machine: the clocks of the page come first. What opens is counted.
PRESS_HELD = """([selector, heldMs]) => {
    const button = [...document.querySelectorAll(selector)].find((one) => one.textContent.includes("Pause…"));
    const setTimer = window.setTimeout;
    window.tvOpened = 0;
    new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
        if (node.querySelector && (node.matches("[role=dialog]") || node.querySelector("[role=dialog]"))) window.tvOpened += 1;
    }))).observe(document.body, { childList: true, subtree: true });
    window.setTimeout = (call, ms, ...rest) => setTimer(call, ms || heldMs, ...rest);
    button.click();
    setTimer(() => { window.setTimeout = setTimer; }, 0);
}"""
HELD_MS = 3_000


def holds_press(message: BackMsg) -> bool:
    return any(state.WhichOneof("value") in single_presses.PRESSES for state in message.rerun_script.widget_states.widgets)


@pytest.mark.parametrize("where", [".tv-band .tv-button", "[data-testid=stButton] button"])
def test_a_press_that_the_browser_sends_twice_opens_its_dialog_once(page: playwright_api.Page, site: Site, where: str) -> None:
    own, sent = page.context.new_page(), list[BackMsg]()
    own.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(BackMsg.FromString(frame))))
    come_on_call(own, site)
    dialog = own.get_by_role("dialog")
    own.locator(where, has_text="Pause…").first.wait_for()
    test_pages.settled(own)
    own.evaluate(PRESS_HELD, [where, HELD_MS])
    dialog.get_by_label("Why").wait_for()
    close(dialog)
    own.wait_for_timeout(2 * HELD_MS)
    pressed = [message.rerun_script.is_auto_rerun for message in sent if holds_press(message)]
    assert pressed.count(False) == 1 and pressed.count(True) >= 1, (
        "the browser sends a press once: what is held here is no longer needed"
    )
    assert dialog.count() == 0 and own.evaluate("window.tvOpened") == 1
    own.close()
