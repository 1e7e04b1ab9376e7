"""The event of one burst of faults stays small and quick to make, whatever numbers a damaged line holds."""

from __future__ import annotations

from trainvitals.logs.faults.bursts import MAX_NAMED_RANKS, Seen, to_event


def timeout_of(ranks):
    seen = Seen("nccl_timeout", 2, 1, count=len(ranks), rank=ranks[0], ranks=set(ranks), has_job_rank=True)
    return to_event(seen, 1, [], 0, survived=False).data


def test_a_rank_of_a_damaged_line_makes_no_list_of_millions():
    data = timeout_of([3, 1_999_999])
    assert data["ranks_missing_count"] == 1_999_998 and len(data["ranks_missing"]) == MAX_NAMED_RANKS
    assert data["ranks_missing"][:4] == [0, 1, 2, 4]


def test_every_missing_rank_of_a_small_job_is_named():
    assert timeout_of([0, 2, 5])["ranks_missing"] == [1, 3, 4]
