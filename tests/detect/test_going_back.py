"""A start that goes back as the recommendation says is no fault of the restart; one that begins anew by mistake stays one."""

from __future__ import annotations

import math

import pytest
from checkpoint_runs import at, findings, live_run, of, start, step, steps

from trainvitals.records import Severity, Step


def sick(first: int, last: int, second: float, loss: float) -> list[Step]:
    nonfinite = {"loss": "nan"} if math.isnan(loss) else {}
    values = {} if math.isnan(loss) else {"loss": loss}
    return [Step(number, 1, at(second + number - first), values, nonfinite) for number in range(first, last + 1)]


def gone_back(loss: float, resumed_from: int):
    healthy = live_run(504, 100)
    second = max(item.time_ns for item in healthy if isinstance(item, Step)) / 1e9 - step(1, 0).time_ns / 1e9
    return [
        *healthy, *sick(505, 560, second + 1, loss), at(second + 70), start(2, second + 90, resumed_from),
        *steps(resumed_from + 1, resumed_from + 60, second + 100, attempt=2),
    ]  # fmt: skip


@pytest.mark.parametrize("loss", [9.0, math.nan])
def test_passing_over_a_checkpoint_that_lies_too_near_an_onset_is_a_mark(loss):
    (found,) = of(findings(gone_back(loss, 400)), "resume_behind")
    assert found.severity is Severity.INFO and found.expected == 500
    assert "goes back before the incident of step 505" in found.message


@pytest.mark.parametrize("loss", [9.0, math.nan])
def test_a_start_from_scratch_stays_a_warning_although_the_loss_was_sick(loss):
    (found,) = of(findings(gone_back(loss, 0)), "resume_behind")
    assert found.severity is not Severity.INFO and "from scratch" in found.message


def test_without_an_incident_it_is_a_warning():
    (found,) = of(findings(gone_back(2.0, 400)), "resume_behind")
    assert found.severity is Severity.WARNING
