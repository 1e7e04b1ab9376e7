"""A parked run is shaded until it is started again or goes on, whoever told of the park: its client or its watchdog."""

from __future__ import annotations

import pytest

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.happenings import curve_lines, curve_spans
from trainvitals.records import Event

MINUTE_NS = 60 * 10**9


def event(kind: str, minute: int, **data: object) -> Event:
    return Event(kind, minute * MINUTE_NS, step=50, attempt=1, id=f"{kind}{minute}", source="hook", text="", data=data)


def told(minute: int, state: str, desired: str = "paused") -> Event:
    return event("control", minute, state=state, desired=desired, by="ana", source="ui")


def spans(*events: Event) -> list[tuple[float, float | None, str]]:
    return [(span.x0, span.x1, span.label) for span in curve_spans((), events, "time", StepTimes({}))]


@pytest.mark.parametrize("state", ["parked", "stopped"])
@pytest.mark.parametrize("end", [event("attempt_start", 9), told(9, "running", "running")])
def test_a_park_is_a_span_with_who_parked_it_until_it_goes_on(state: str, end: Event) -> None:
    begin = told(2, state)
    ((x0, x1, label),) = spans(begin, end)
    assert x1 is not None and x1 > x0 and label == "parked by ana, step 50"
    ((_, still, _),) = spans(begin)
    assert still is None
    assert [line.kind for line in curve_lines([begin, end], (), (), (), "time", StepTimes({}))] == ["pause", "resume"]


def test_a_start_that_refuses_because_of_the_park_ends_nothing_for_long() -> None:
    first, second = spans(told(2, "stopped"), event("attempt_start", 4), told(5, "refused_to_start"))
    assert first[1] is not None and second[1] is None and second[2] == "parked by ana, step 50"


def test_a_hold_that_becomes_a_park_is_told_as_both() -> None:
    held = [told(1, "paused"), event("phase", 1, phase="paused", state="begin")]
    parked = [event("phase", 3, phase="paused", state="end"), told(3, "stopped")]
    assert [label for _, _, label in spans(*held, *parked)] == ["paused by ana, step 50", "parked by ana, step 50"]


@pytest.mark.parametrize("state", ["stopped", "refused_to_start"])
def test_a_stop_is_no_park(state: str) -> None:
    assert spans(told(2, state, "stopped")) == []
