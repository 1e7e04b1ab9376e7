"""Which XID speaks for a GPU: the gravest of the hour, and never one that only follows the end of a process."""

from hypothesis import given
from hypothesis import strategies as st

from collectors.gpu import grade
from collectors.nvml import GpuReading
from collectors.xids import FATAL_XIDS, XID_COUNTS_S, speaking


def state(xid):
    return grade(GpuReading(0, "u", {"xid_last": xid, "xid_age_s": 1.0}), None).state


def test_the_end_of_a_job_leaves_no_node_to_be_looked_at():
    assert [state(xid) for xid in (45, 154, 43)] == ["ok"] * 3
    assert [state(xid) for xid in (79, 9999)] == ["fail", "warn"]


def test_what_follows_a_lost_gpu_does_not_hide_it():
    assert speaking({79: 30.0, 45: 1.0, 154: 0.5}) == (79, 30.0)
    assert speaking({79: 30.0, 9999: 1.0}) == (79, 30.0)
    assert speaking({31: 5.0, 45: 1.0}) == (31, 5.0)


def test_an_old_one_makes_room_for_what_came_since():
    assert speaking({79: XID_COUNTS_S + 1, 31: 10.0}) == (31, 10.0)
    assert speaking({79: XID_COUNTS_S + 9, 31: XID_COUNTS_S + 1}) == (31, XID_COUNTS_S + 1)


@given(st.dictionaries(st.integers(1, 200), st.floats(0, 10_000), min_size=1, max_size=32))
def test_a_fatal_one_within_the_hour_is_always_heard(ages_s):
    xid, age_s = speaking(ages_s)
    assert ages_s[xid] == age_s
    if any(one in FATAL_XIDS and age < XID_COUNTS_S for one, age in ages_s.items()):
        assert xid in FATAL_XIDS
