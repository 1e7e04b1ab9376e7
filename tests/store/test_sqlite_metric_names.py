"""Why a metric is not stored is said as it is: a run with too many names, or a table that the names of all runs fill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainvitals.records import Point, Step
from trainvitals.store import sqlite_write
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore

T0 = 1_767_326_400_000_000_000


def step(run: str, number: int, **values: float) -> Point:
    return step_point(run, Step(number, 1, T0 + number, {"loss": 2.0, **values}), T0 + number)


def test_a_run_with_too_many_names_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    for number in range(11):
        store.write([step("r", number, **{f"m{number}_{at}": 1.0 for at in range(10)})])
    health = store.health()
    assert health.dropped == 10
    assert re.search(r"run 'r' logs more extra metrics than are stored \(100 a run\), for example 'm10_0'", health.text)
    store.close()


def test_a_table_that_the_names_of_other_runs_fill_is_no_fault_of_the_run_that_logs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_write, "MAX_COLUMNS", 200)
    store = SqliteStore(tmp_path / "store.db")
    for run in range(3):
        store.write([step(f"older{run}", 0, **{f"of_{run}_{at}": 1.0 for at in range(95)})])
    before = store.health().dropped
    store.write([step("newest", 0, mine=1.0), step("newest", 1, mine=float("nan"))])
    health = store.health()
    assert health.dropped == before + 2
    assert re.search(
        r"names of metrics of all runs together fill train \(200 columns\), so that 'mine(_nf)?' of run 'newest'", health.text
    )
    assert "name a new file in store" in health.text
    assert store.raw("train", ["loss"], {"run": "newest"}, 0, 2**62)["loss"].to_list() == [2.0, 2.0]
    store.close()
