"""The poller: pages never wait, the last good look stays with its reason, and it heals by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sample_run as sample

from trainvitals.clock import ManualClock
from trainvitals.errors import StoreUnavailable
from trainvitals.incidents.verdict import VerdictWord
from trainvitals.settings import DashboardSettings, RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.poller import INTEREST_S, MAX_INTERESTS, Poller
from trainvitals.web.process import read_control
from trainvitals.web.stale import verdict_now
from trainvitals.web.view import CurveQuery, RunView

NOW = 1_795_000_000 * 10**9
QUERY = CurveQuery(sample.RUN, ("loss",))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "t.db")
    sample.write_run(store, tmp_path / "run", NOW, sick=False)
    store.close()
    return tmp_path


def settings_for(home: Path) -> Settings:
    run = RunSettings(name=sample.RUN, dir=str(home / "run"))
    return Settings(store=f"sqlite://{home / 't.db'}", runs=(run,), dashboard=DashboardSettings(refresh_s=1.0))


class Drawing:
    """Counts what is drawn; ``gate`` holds it back like a slow store."""

    def __init__(self) -> None:
        self.queries: list[CurveQuery] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def __call__(self, store: Store, run: RunView, query: CurveQuery, now_ns: int) -> str:
        assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        self.queries.append(query)
        return f'{{"drawn":{len(self.queries)}}}'


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW + 10**9)


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


@pytest.fixture
def poller(home: Path, clock: ManualClock, drawing: Drawing) -> Iterator[Poller]:
    settings = settings_for(home)
    made = Poller(settings, lambda: open_store(settings.store, read_only=True), drawing, read_control, clock)
    yield made
    drawing.gate.set()
    made.start()
    made.stop()


def test_a_tick_gives_a_snapshot_of_every_run(poller: Poller, clock: ManualClock) -> None:
    assert poller.snapshot().taken_at_ns == 0
    poller.tick()
    snapshot = poller.snapshot()
    run = snapshot.run(sample.RUN)
    assert run is not None and run.verdict.word is VerdictWord.HEALTHY and snapshot.error == ""
    assert snapshot.run("nobody") is None and len(snapshot.nodes) == 16


def test_a_store_that_is_gone_keeps_the_last_good_look_and_heals_by_itself(
    poller: Poller, home: Path, clock: ManualClock
) -> None:
    poller.tick()
    hidden = [path.rename(home / f"hidden-{path.name}") for path in home.glob("t.db*")]
    clock.advance(3)
    poller.tick()
    first = poller.snapshot()
    assert "that was here at" in first.error and "is gone" in first.error and " yet" not in first.error
    assert first.run(sample.RUN) is not None
    clock.advance(60)
    poller.tick()
    later = poller.snapshot()
    assert later.error_since_ns == first.error_since_ns and later.taken_at_ns == first.taken_at_ns
    run = later.run(sample.RUN)
    assert run is not None
    found = verdict_now(later, run, clock.time_ns())
    assert found.word is VerdictWord.UNKNOWN and "1 min 3 s ago it was healthy" in found.headline
    for path in hidden:
        path.rename(home / path.name.removeprefix("hidden-"))
    poller.tick()
    assert poller.snapshot().error == ""


def test_a_damaged_store_is_a_sentence_and_not_an_end(poller: Poller, home: Path) -> None:
    poller.tick()
    for path in home.glob("t.db*"):
        path.unlink()
    (home / "t.db").write_bytes(b"this is no database at all, whatever it is called" * 100)
    poller.tick()
    assert "not a SQLite database" in poller.snapshot().error


def test_an_unexpected_error_stays_out_of_the_page_and_goes_to_the_log(
    home: Path, clock: ManualClock, drawing: Drawing, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Store:
        raise RuntimeError("secret-token in a message")

    made = Poller(settings_for(home), broken, drawing, read_control, clock)
    made.tick()
    assert "RuntimeError" in made.snapshot().error and "secret-token" not in made.snapshot().error
    assert "secret-token" in caplog.text


def test_a_slow_store_does_not_hold_up_anybody_who_asks(home: Path, clock: ManualClock, drawing: Drawing) -> None:
    entered, release = threading.Event(), threading.Event()
    settings = settings_for(home)

    def slow() -> Store:
        entered.set()
        assert release.wait(20)
        raise StoreUnavailable("The store is locked.")

    made = Poller(settings, slow, drawing, read_control, clock)
    made.start()
    assert entered.wait(20)
    assert made.snapshot().taken_at_ns == 0
    assert made.curves(QUERY, wait_s=0) is None
    release.set()
    made.stop()
    assert "locked" in made.snapshot().error


def test_a_snapshot_that_gets_old_without_an_error_says_that_the_store_is_slow(poller: Poller, clock: ManualClock) -> None:
    poller.tick()
    clock.advance(12)
    assert "has not answered for 12 s" in poller.snapshot().error
    poller.tick()
    assert poller.snapshot().error == ""


def test_a_curve_is_drawn_once_for_all_who_look_at_it(poller: Poller, drawing: Drawing, clock: ManualClock) -> None:
    poller.tick()
    assert poller.curves(QUERY, wait_s=0) is None
    assert poller.draw_due() == 1
    results = {id(poller.curves(QUERY, wait_s=0)) for _ in range(50)}
    assert len(results) == 1 and poller.draw_due() == 0
    clock.advance(1.5)
    assert poller.draw_due() == 1 and len(drawing.queries) == 2


def test_the_first_request_gets_its_figure_from_the_thread(poller: Poller) -> None:
    poller.tick()
    poller.start()
    found = poller.curves(QUERY, wait_s=20)
    assert found is not None and found.figure_json == '{"drawn":1}' and found.error == ""


def test_a_window_in_the_past_is_redrawn_less_often(poller: Poller, drawing: Drawing, clock: ManualClock) -> None:
    poller.tick()
    poller.curves(replace(QUERY, start=1, end=5), wait_s=0)
    poller.draw_due()
    clock.advance(10)
    assert poller.draw_due() == 0
    clock.advance(25)
    assert poller.draw_due() == 1


def test_a_curve_nobody_looks_at_is_forgotten(poller: Poller, clock: ManualClock) -> None:
    poller.tick()
    poller.curves(QUERY, wait_s=0)
    poller.draw_due()
    clock.advance(INTEREST_S + 1)
    assert poller.draw_due() == 0
    assert poller.curves(QUERY, wait_s=0) is None


def test_many_different_windows_do_not_pile_up(poller: Poller, clock: ManualClock, drawing: Drawing) -> None:
    poller.tick()
    for start in range(3 * MAX_INTERESTS):
        poller.curves(replace(QUERY, start=start, end=start + 5), wait_s=0)
        clock.advance(0.01)
    assert poller.draw_due() == MAX_INTERESTS
    assert min(query.start or 0 for query in drawing.queries) >= 2 * MAX_INTERESTS


def test_a_curve_keeps_its_last_good_figure_with_the_reason(poller: Poller, drawing: Drawing, clock: ManualClock) -> None:
    poller.tick()
    poller.curves(QUERY, wait_s=0)
    poller.draw_due()
    drawing.error = StoreUnavailable("The store is locked by another process.")
    clock.advance(5)
    poller.draw_due()
    found = poller.curves(QUERY, wait_s=0)
    assert found is not None and found.figure_json == '{"drawn":1}' and "locked" in found.error
    since = found.error_since_ns
    clock.advance(5)
    poller.draw_due()
    again = poller.curves(QUERY, wait_s=0)
    assert again is not None and again.error_since_ns == since
    drawing.error = None
    clock.advance(5)
    poller.draw_due()
    healed = poller.curves(QUERY, wait_s=0)
    assert healed is not None and healed.error == "" and healed.figure_json == '{"drawn":2}'


def test_a_run_that_is_not_in_the_settings_is_a_sentence(poller: Poller) -> None:
    poller.tick()
    query = CurveQuery("../../etc", ("loss",))
    poller.curves(query, wait_s=0)
    poller.draw_due()
    found = poller.curves(query, wait_s=0)
    assert found is not None and "No run '../../etc'" in found.error
