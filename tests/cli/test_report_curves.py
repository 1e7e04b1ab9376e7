"""The curves of a report: what is no finite number is a mark, and thinning loses no spike."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from trainvitals.cli.report import MAX_POINTS, _curves
from trainvitals.incidents.static_page_curve import Curve
from trainvitals.records import Incident, Severity, Step
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND


def curves(directory: Path, losses: list[float]) -> dict[str, Curve]:
    store = SqliteStore(directory / "store.db")
    times = [T0 + at * SECOND // 10 for at in range(len(losses))]
    store.write(
        [
            step_point("r", Step(at, 1, time, {"loss": loss}), time)
            for at, (time, loss) in enumerate(zip(times, losses, strict=True))
        ]
    )
    incident = Incident("i", "r", "loss", Severity.CRITICAL, ("loss_spike",), (), 1, None, T0, T0, None, "t", "m")
    found = {curve.name: curve for curve in _curves(store, "r", incident, frozenset({1}), T0 + 3600 * SECOND)}
    store.close()
    return found


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_finite_number_is_a_mark_and_no_point(tmp_path: Path, bad: float) -> None:
    loss = curves(tmp_path, [1.0, 1.0, bad, 1.0])["loss"]
    assert [step for step, _ in loss.points] == [0, 1, 3]
    assert loss.bad_steps == (2,)
    json.dumps(loss.points, allow_nan=False)  # the report as data is read by other programs


def test_a_spike_of_one_step_is_in_the_curve_of_a_long_incident(tmp_path: Path) -> None:
    losses = [2.0 + at % 3 / 100 for at in range(3 * MAX_POINTS + 5)]
    losses[7001], losses[9002] = 11.0, 0.5
    loss = curves(tmp_path, losses)["loss"]
    assert len(loss.points) <= MAX_POINTS
    assert (7001, 11.0) in loss.points and (9002, 0.5) in loss.points
    assert [step for step, _ in loss.points] == sorted({step for step, _ in loss.points})
