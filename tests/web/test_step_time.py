"""How long a step takes, as people read it, also where the log tells whole seconds only."""

from __future__ import annotations

import pytest

from trainvitals.web import format as fmt
from trainvitals.web.metrics import Row, pace


def rows(step_s: float, count: int = 200, resolution_s: float = 0.001) -> list[Row]:
    """As they are stored: times cut to ``resolution_s``, and the step's own nanoseconds."""
    made = []
    for step in range(count):
        at_s = 1_000 + step * step_s
        made.append(Row(step, 1, round(at_s / resolution_s - 0.5) * round(resolution_s * 1000) * 10**6 + step))
    return made


@pytest.mark.parametrize("step_s", [0.02, 0.1, 0.7, 1.3, 2.5])
def test_a_log_with_times_in_whole_seconds_tells_the_pace_by_its_count(step_s: float) -> None:
    found = pace(rows(step_s, resolution_s=1.0))
    assert found.step_s == pytest.approx(step_s, rel=0.15)
    assert found.gap_s == pytest.approx(step_s, rel=0.15)


def test_a_pause_in_such_a_log_is_not_its_pace() -> None:
    late = [Row(row.step, 1, row.time_ns + (3600 * 10**9 if row.step > 150 else 0)) for row in rows(0.1, resolution_s=1.0)]
    assert pace(late).step_s == pytest.approx(0.1, rel=0.15)


def test_times_in_milliseconds_give_the_median_as_before() -> None:
    assert pace(rows(0.35)).step_s == pytest.approx(0.35)


def test_steps_of_one_moment_tell_no_pace() -> None:
    found = pace([Row(step, 1, 10**18 + step) for step in range(50)])
    assert (found.step_s, found.gap_s) == (None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.4, "12.40 s"), (0.35, "0.350 s"), (0.0042, "4.2 ms"), (1e-9, "less than 0.1 ms"), (0.0, "–"), (None, "–")],
)
def test_a_step_time_is_written_without_powers_of_ten(seconds: float | None, text: str) -> None:
    assert fmt.step_time(seconds) == text
    assert fmt.step_time(seconds, "nan") == "NaN"
