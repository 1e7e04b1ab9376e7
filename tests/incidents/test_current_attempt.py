"""Which start runs now: a restart at once, an old log that was found later never."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.detect import engine
from trainvitals.incidents import current_attempt as current
from trainvitals.incidents.current_attempt import RunningAttempt, current_attempt, in_order, later_numbers
from trainvitals.incidents.lineage import Lineage
from trainvitals.incidents.suspect import suspect_checkpoints
from trainvitals.records import CheckpointReport, CheckpointState, Finding, Incident, Severity

S = 10**9
NOW = 1_700_000_000 * S
DAY = 86_400 * S


@dataclass(frozen=True)
class Ran:
    number: int
    newest_ns: int | None = None
    started_ns: int = 0
    first_step: int | None = 1
    last_step: int | None = 1_000
    resumed_from_step: int | None = None


def numbers(*attempts: Ran) -> list[int]:
    return [one.number for one in in_order(attempts)]


def test_the_margin_is_that_of_detection() -> None:
    assert current.GOES_ON_AFTER_NS == engine.GOES_ON_AFTER_NS


def test_an_old_log_that_was_numbered_last_ran_before_what_goes_on() -> None:
    assert numbers(Ran(1, NOW), Ran(2, NOW - DAY)) == [2, 1]
    assert numbers(Ran(1, NOW - 3 * DAY), Ran(2, NOW), Ran(3, NOW - DAY), Ran(4, NOW - 2 * DAY)) == [1, 4, 3, 2]


@pytest.mark.parametrize("behind_s", [-5, 0, 1, 599])
def test_a_restart_is_current_at_once_also_on_a_machine_whose_clock_is_some_minutes_behind(behind_s: int) -> None:
    found = current_attempt([Ran(1, NOW), Ran(2, NOW - behind_s * S)])
    assert found is not None and found.number == 2


@pytest.mark.parametrize("times", [(None, None), (NOW, None), (None, NOW - DAY)])
def test_the_number_decides_where_a_time_is_not_known(times: tuple[int | None, int | None]) -> None:
    assert numbers(*(Ran(number, time_ns) for number, time_ns in enumerate(times, 1))) == [1, 2]


def test_nothing_runs_where_nothing_began() -> None:
    assert current_attempt([]) is None and in_order([]) == ()


@given(st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(NOW - DAY, NOW)), unique_by=lambda one: one[0], min_size=1))
def test_the_order_keeps_everyone_and_nobody_goes_on_after_the_last(told: list[tuple[int, int | None]]) -> None:
    ordered = in_order([Ran(*one) for one in told])
    assert sorted(one.number for one in ordered) == sorted(number for number, _ in told)
    last = ordered[-1]
    assert last.number == max(number for number, _ in told) or last.newest_ns is not None
    assert later_numbers(ordered, last.number) == frozenset()
    assert later_numbers(ordered, ordered[0].number) == {one.number for one in ordered[1:]}


def test_one_that_is_not_known_is_before_the_higher_numbers() -> None:
    assert later_numbers([Ran(3, NOW), Ran(5, NOW)], 4) == {5}


def test_step_by_step_a_restart_takes_over_and_an_old_log_does_not() -> None:
    running = RunningAttempt().with_step(1, NOW)
    assert running.with_step(2, NOW - DAY).number == 1
    restarted = running.with_step(2, NOW + 5 * S)
    assert restarted.number == 2 and restarted.with_step(1, NOW + 60 * S).number == 2
    assert restarted.with_step(1, NOW + 700 * S).number == 1, "it goes on, and the other is silent for long"
    assert running.with_step(2, None).number == 2


def test_an_old_log_gives_no_history_up_and_heals_no_checkpoint() -> None:
    runs = Ran(1, NOW, NOW - 1_000 * S, 1, 1_000)
    old = Ran(2, NOW - 6 * DAY, NOW - 7 * DAY, 1, 400)
    saved = CheckpointReport(
        "/c/900", 900, "hf", CheckpointState.VERIFIED, None, True, 4, 1, modified_at_ns=NOW - 100 * S
    )  # fmt: skip
    assert Lineage([runs, old]).abandoned_by(saved) is None
    found = Finding("f", "loss_divergence", "loss", Severity.CRITICAL, 850, 870, None, 1, NOW - 150 * S, 3.0, 2.0, "worse", True)
    incident = Incident(
        "i", "r", "loss", Severity.CRITICAL, (found.rule,), ("f",), 850, None, NOW - 130 * S, NOW, None, "worse", "worse"
    )
    assert suspect_checkpoints([saved], [incident], [found], [runs, old]) == {"/c/900": 850}
