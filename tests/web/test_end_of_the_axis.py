"""What happened at the last step lies on the axis by step, however many steps a drawn row stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sample_run as sample

from trainvitals.records import Finding, Severity
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.draw import draw
from trainvitals.web.process import read_control
from trainvitals.web.view import CurveQuery, RunView

NOW = 1_795_000_000 * 10**9
LAST = 2390


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    sample.write_run(opened, tmp_path / "run", NOW, sick=False)
    yield opened
    opened.close()


def hung_view(store: SqliteStore, tmp_path: Path, attempt: int, step: int) -> RunView:
    run = RunSettings(name=sample.RUN, dir=str(tmp_path / "run"))
    seen = run_view(Settings(store="", runs=(run,)), store, run, read_control(run, NOW), NOW)
    stall = Finding(
        "f/stall", "stall", "throughput", Severity.CRITICAL, step, step, None, attempt, NOW, 180.0, 3.0, "no step", True
    )
    return replace(seen, findings=(*seen.findings, stall))


def end_of_axis(store: SqliteStore, run: RunView, **asked: object) -> float:
    drawn = json.loads(draw(store, run, CurveQuery(run.name, ("loss", "throughput"), by="step", **asked), NOW))
    return float(drawn["layout"]["xaxis"]["range"][1])


@pytest.mark.parametrize("asked", [{}, {"last_s": 1800.0}])
def test_the_axis_reaches_the_last_step_where_rows_stand_for_many(
    store: SqliteStore, tmp_path: Path, asked: dict[str, float]
) -> None:
    assert end_of_axis(store, hung_view(store, tmp_path, 2, LAST), **asked) >= LAST


def test_the_axis_of_one_start_reaches_what_happened_at_its_end_and_not_what_came_later(
    store: SqliteStore, tmp_path: Path
) -> None:
    run = hung_view(store, tmp_path, 1, sample.FIRST_END)
    assert sample.FIRST_END <= end_of_axis(store, run, until_attempt=1) < sample.FIRST_END + 20
