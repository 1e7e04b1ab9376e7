"""A run that is over and one that nobody watches are no emergencies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_verdict import NOW, S, incident, well

from trainvitals.incidents.verdict import VerdictWord, verdict
from trainvitals.records import Event, Finding, Point, Severity, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import event_point, step_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.present import band
from trainvitals.web.process import read_control
from trainvitals.web.view import RunView, Snapshot

DAY_S = 86_400


def old(age_s: float, **changes: object):
    return well(last_step_time_ns=NOW - round(age_s * S), attempt_started_ns=NOW - round((age_s + 7200) * S), **changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


def view(store: SqliteStore, tmp_path: Path, **changes: object) -> RunView:
    run = replace(RunSettings(name="r", dir=str(tmp_path)), **changes)
    return run_view(Settings(store="", runs=(run,)), store, run, read_control(run, NOW), NOW)


def write(
    store: SqliteStore, age_s: float, *, beat_age_s: float | None, was_read: bool = True, events: tuple[Event, ...] = ()
) -> None:
    last_ns = NOW - round(age_s * S)
    start = Event("attempt_start", last_ns - 40 * S, attempt=1, id="start", data={"first_step": 1})
    points = [
        step_point("r", Step(n, 1, last_ns - (40 - n) * S, {"loss": 2.0}), last_ns - (40 - n) * S + n) for n in range(1, 41)
    ]
    points += [event_point("r", event) for event in (start, *events)]
    if beat_age_s is not None:
        fields = {"ranks": 1, "alive": 1, "lost_records": 0} | ({"step_max": 40} if was_read else {})
        points.append(Point("heartbeat", {"run": "r", "node": "h"}, NOW - round(beat_age_s * S), fields))
    store.write(points)


def done(age_s: float, step: int | None = None) -> Event:
    data = {"phase": "finished", "state": "begin"}
    return Event("phase", NOW - round(age_s * S), step=step, attempt=1, id=f"done/{age_s}", data=data)


@pytest.mark.parametrize("age_s", [5, 300, 7 * DAY_S])
def test_a_log_that_says_that_it_is_done_is_finished_however_long_ago(store: SqliteStore, tmp_path: Path, age_s: float) -> None:
    write(store, age_s, beat_age_s=1, events=(done(age_s - 1),))
    assert view(store, tmp_path).verdict.word is VerdictWord.FINISHED


def test_an_end_line_in_another_time_zone_counts_by_its_step(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 300, beat_age_s=1, events=(done(8 * 3600, step=40),))
    assert view(store, tmp_path).verdict.word is VerdictWord.FINISHED


def test_steps_after_an_end_line_take_it_back(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 2, beat_age_s=1, events=(done(30, step=12),))
    assert view(store, tmp_path).verdict.word is VerdictWord.HEALTHY


@pytest.mark.parametrize("age_s", [2, 3600, 7 * DAY_S])
def test_the_last_planned_step_is_the_end_without_a_line_that_says_so(store: SqliteStore, tmp_path: Path, age_s: float) -> None:
    write(store, age_s, beat_age_s=1)
    found = view(store, tmp_path, total_steps=40)
    assert found.verdict.word is VerdictWord.FINISHED and found.verdict.decision == "" and found.checks == ()


def test_steps_beyond_the_plan_are_training_while_they_come(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 2, beat_age_s=1)
    assert view(store, tmp_path, total_steps=30).verdict.word is VerdictWord.HEALTHY


def test_a_death_at_the_last_step_stays_a_death() -> None:
    dead = incident("run_dead")
    assert verdict(old(300, total_steps=48_310, incidents=[dead])).word is VerdictWord.STOPPED


def test_what_was_imported_is_history_whoever_beats(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 7 * DAY_S, beat_age_s=1, was_read=False)
    found = view(store, tmp_path).verdict
    assert (found.word, found.tone, found.decision) == (VerdictWord.HISTORY, "info", "")
    assert (
        "last step 40, 7 d 0 h ago" in found.headline and "imported" in found.headline and "trainvitals.toml" in found.automatic
    )


def test_a_run_that_was_never_watched_is_history_and_says_how_to_watch_it(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 7 * DAY_S, beat_age_s=None)
    found = view(store, tmp_path)
    assert found.verdict.word is VerdictWord.HISTORY and "nobody watches" in found.verdict.headline
    assert "python -m trainvitals up" in found.verdict.automatic and found.checks == () and found.eta_s is None


def test_an_incident_that_was_open_at_the_end_of_a_history_is_named_and_wakes_nobody() -> None:
    found = verdict(old(7 * DAY_S, watch_seen_ns=None, incidents=[incident("stall")]))
    assert found.word is VerdictWord.HISTORY and "loss 2.31" in found.headline


def test_a_watchdog_that_died_an_hour_ago_is_no_history() -> None:
    assert verdict(old(3600, watch_seen_ns=NOW - 3590 * S)).word is VerdictWord.UNKNOWN
    assert verdict(old(3 * DAY_S, watch_seen_ns=NOW - 3 * DAY_S * S)).word is VerdictWord.HISTORY


def test_a_hang_that_was_watched_stays_a_hang_for_days() -> None:
    assert verdict(old(3 * DAY_S)).word is VerdictWord.HUNG


def test_a_log_that_was_silent_before_it_was_watched_is_history() -> None:
    silent = Finding("f", "stall", "liveness", Severity.INFO, 1, 1, None, 3, NOW, 1.0, 1.0, "m", True, {"is_history": True})
    assert verdict(old(9 * 3600, findings=[silent])).word is VerdictWord.HISTORY


def fault(age_s: float, **data: object) -> Event:
    return Event(
        "fault", NOW - round(age_s * S), attempt=1, id=f"fault/{age_s}", severity=Severity.CRITICAL, text="CUDA error", data=data
    )


def test_a_grave_fault_that_no_step_followed_yet_is_not_called_healthy(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 39, beat_age_s=1, events=(fault(38),))
    found = view(store, tmp_path).verdict
    assert (found.word, found.tone) == (
        VerdictWord.ATTENTION,
        "warning",
    ) and "failure after step 40: CUDA error" in found.headline


def test_a_run_that_may_be_dead_is_not_called_hung_in_the_seconds_before_it_is_called_dead(
    store: SqliteStore, tmp_path: Path
) -> None:
    write(store, 65, beat_age_s=1, events=(fault(64),))
    assert view(store, tmp_path).verdict.word is VerdictWord.ATTENTION


def test_what_began_on_another_day_is_told_with_its_date(store: SqliteStore, tmp_path: Path) -> None:
    write(store, 7 * DAY_S, beat_age_s=None)
    run = view(store, tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", band(Snapshot(NOW, (run,)), run, NOW, 1.0)["since"])


@pytest.mark.parametrize("event", [fault(41), fault(38, survived=True), fault(-3600)])
def test_a_fault_that_steps_followed_or_of_a_clock_ahead_worries_nobody(store: SqliteStore, tmp_path: Path, event: Event) -> None:
    write(store, 39, beat_age_s=1, events=(event,))
    assert view(store, tmp_path).verdict.word is VerdictWord.HEALTHY


def test_a_restart_is_not_called_an_end_without_help() -> None:
    closed = incident("run_dead", closed_s_ago=60, opened_s_ago=300)
    found = verdict(well(incidents=[closed], attempt_started_ns=NOW - 90 * S, attempt=4))
    assert found.word is VerdictWord.RECOVERED and found.automatic.startswith("Attempt 4 goes on since.")


@pytest.mark.parametrize(
    ("source", "told"), [("hook", "no ControlClient in the trainer"), ("log", "steps come from the log only")]
)
def test_a_run_without_a_pause_button_says_whether_a_hook_records(
    store: SqliteStore, tmp_path: Path, source: str, told: str
) -> None:
    start = Event("attempt_start", NOW - 10 * S, attempt=2, id="second", data={"source": source})
    write(store, 20, beat_age_s=1, events=(start,))
    assert any(told in line for line in view(store, tmp_path).not_watched)
