"""Times in lines: what was remembered of the line before must never change what a line says."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainvitals.logs.times import LineTimes, rfc3339

_PARTS = st.sampled_from(
    [
        "[2026-01-02 03:04:",
        "2026-01-02 03:04:",
        "2026-03-29 02:59:",
        "9999-12-31 23:59:",
        "1970-01-01 00:00:",
        "2025-13-01 00:00:",
    ]
)
_SECONDS = st.sampled_from(
    ["05", "59", "60", "5", "", "05.1", "05,123456", "05.1234567890", "05.", "05.\u0661", "\u0661\u0661", "+5", "05Z"]
)
_ENDS = st.sampled_from(["", "]", "] [INFO] x", " - root", "Z", "+08:00", "1", " 2026-01-02 03:05:00"])
_LINES = st.lists(st.builds(lambda a, b, c: a + b + c, _PARTS, _SECONDS, _ENDS) | st.text(max_size=30), min_size=1, max_size=6)


@settings(max_examples=400, deadline=None)
@given(lines=_LINES, zone=st.sampled_from(["UTC", "Europe/Berlin"]))
@example(lines=["[2026-01-02 03:04:05]", "[2026-01-02 03:04:5]"], zone="UTC")
def test_a_time_does_not_depend_on_the_lines_before(lines, zone):
    remembering = LineTimes(zone)
    for line in lines:
        assert remembering.find(line) == LineTimes(zone).find(line)


def test_the_last_time_of_a_line_is_that_of_its_record():
    times = LineTimes()
    for second in (5, 6):
        assert (
            rfc3339(times.find(f"2026-01-02 03:00:00 [2026-01-02 03:04:0{second}.25] x")) == f"2026-01-02T03:04:0{second}.250000Z"
        )
