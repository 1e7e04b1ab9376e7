"""What the overview says of logs that are not followed."""

from __future__ import annotations

from trainvitals.records import Event
from trainvitals.web.lost import reading_health


def note(time_ns, **data):
    return Event("watch", time_ns, id=str(time_ns), source="watch", text="", data=data)


def test_files_that_are_not_followed_are_said_until_they_are():
    many = note(1, files_beyond_limit=44)
    assert reading_health(0, [many]) == "44 files that `logs` names are not followed: name those of all ranks in `rank_logs`."
    assert reading_health(0, [many, note(2, files_beyond_limit=0)]) == ""
    both = reading_health(3, [many, note(3, lost_by_kind={"torn_lines": 3})])
    assert both.startswith("Reading: 3 not read or kept (torn lines: 3)") and both.endswith("in `rank_logs`.")


def test_a_count_that_is_no_number_is_none():
    assert reading_health(0, [note(1, files_beyond_limit="many")]) == ""
