"""Times without a zone, in the night in which a clock shows an hour twice."""

from __future__ import annotations

import json

from reading import seconds

from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

#: 2026-10-25: at 03:00 in Berlin the clock goes back to 02:00.
TWICE = ["02:50:00", "02:58:00", "02:59:59", "02:00:01", "02:05:00", "02:30:00", "02:59:00", "03:00:00", "03:05:00"]
LINE = "[2026-10-25 {},000] iteration       {}/    9000 | consumed samples: 64 | elapsed time per iteration (ms): 9.0 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"


def at(times, clock):
    found = times.find(f"2026-10-25 {clock}")
    assert found is not None
    return found // 10**9


def test_the_hour_that_comes_twice_is_read_in_its_order():
    times = LineTimes("Europe/Berlin")
    found = [at(times, clock) for clock in TWICE]
    assert found == sorted(found)
    assert found[3] - found[2] == 2
    assert found[7] - found[6] == 60


def test_a_zone_that_is_written_counts_whatever_the_hour():
    times = LineTimes("Europe/Berlin")
    at(times, "02:50:00")
    assert times.find("2026-10-25T02:10:00+02:00") == times.find("2026-10-25T00:10:00Z")


def test_the_hour_that_is_left_out_in_spring_is_no_step_back():
    times = LineTimes("Europe/Berlin")
    before, inside, behind = (times.find(f"2026-03-29 {clock}") for clock in ("01:59:00", "02:30:00", "03:01:00"))
    assert before is not None
    assert behind is not None
    assert inside is not None
    assert behind - before == 120 * 10**9
    assert abs(inside - before) <= 3_600 * 10**9


def test_the_night_can_be_cut_anywhere():
    log = "".join(LINE.format(clock, step) for step, clock in enumerate(TWICE, 1)).encode()
    whole = Parser(timezone="Europe/Berlin")
    expected = [seconds(one) for one in whole.feed(log) if isinstance(one, Step)]
    assert expected == sorted(expected)
    for cut in range(0, len(log), 97):
        first, second = Parser(timezone="Europe/Berlin"), Parser(timezone="Europe/Berlin")
        records = first.feed(log[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        records += second.feed(log[cut:])
        assert [seconds(one) for one in records if isinstance(one, Step)] == expected


def test_a_date_with_slashes_is_a_date():
    times = LineTimes()
    assert times.find("2026/01/02 03:04:05 - mmengine - INFO - x") == times.find("2026-01-02 03:04:05")
    assert times.find("see 2026/01/02") is None
