"""Steps without times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.records import Step
from trainvitals.watch.times import SECOND_NS, dated

NOW = 1_700_000_000 * SECOND_NS


def steps(count, **values):
    return [Step(number, 1, None, values) for number in range(count)]


def test_a_lone_new_step_has_the_time_at_which_it_was_seen():
    (step,) = dated(steps(1), NOW, NOW - 5 * SECOND_NS)
    assert step.time_ns == NOW and not step.time_estimated


def test_what_stood_there_before_goes_back_by_its_own_step_times():
    found = dated(steps(3, step_time_s=10.0), NOW, None)
    assert [(NOW - step.time_ns) // SECOND_NS for step in found] == [20, 10, 0]
    assert all(step.time_estimated for step in found)


def test_without_step_times_a_second_lies_between_two_steps():
    found = dated(steps(3), NOW, None)
    assert [(NOW - step.time_ns) // SECOND_NS for step in found] == [2, 1, 0]


def test_steps_read_together_share_the_time_since_the_step_before_them():
    found = dated(steps(4), NOW, NOW - 2 * SECOND_NS)
    assert [NOW - step.time_ns for step in found] == [SECOND_NS * 3 // 2, SECOND_NS, SECOND_NS // 2, 0]


@given(
    st.lists(st.none() | st.floats(allow_nan=True), max_size=40),
    st.none() | st.integers(NOW - 10**12, NOW + 10**12),
)
def test_times_rise_strictly_and_never_fall_behind_the_step_before(gaps, previous_ns):
    given_steps = [Step(n, 1, None, {} if gap is None else {"step_time_s": gap}) for n, gap in enumerate(gaps)]
    times = [step.time_ns for step in dated(given_steps, NOW, previous_ns)]
    before = [] if previous_ns is None else [previous_ns]
    assert all(a < b for a, b in zip(before + times, times if before else times[1:], strict=False))
