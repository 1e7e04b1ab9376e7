"""Lines without a time in logs that are appended to: what was there at an earlier death is none of a later one."""

from __future__ import annotations

from test_cause_of_death import AT_NS, S, fault, file

from trainvitals.incidents.postmortem import MAX_KEYS, MAX_PATHS, ToldBefore, choose


def timeouts(ranks: int) -> object:
    return fault("nccl_timeout", ranks_seen=list(range(min(ranks, 8))), ranks_seen_count=ranks, world_size=ranks)


OOM = fault("out_of_memory", rank=3, memory="gpu")
CRASH = fault("exception", rank=1, exception="ValueError")


def test_timeouts_of_an_earlier_attempt_are_not_counted_as_followers_of_a_later_death() -> None:
    first = [file("job.log", OOM, timeouts(64))]
    told = choose(1, first)
    assert told.followers == 64
    second = [file("job.log", OOM, timeouts(64), CRASH)]
    found = choose(2, second, before=ToldBefore().with_files(1, first))
    assert (found.cause.name if found.cause else None, found.followers) == ("ValueError", 0)


def test_the_same_death_looked_into_twice_keeps_its_cause() -> None:
    files = [file("job.log", OOM, timeouts(64))]
    before = ToldBefore().with_files(2, files)
    assert choose(2, files, before=before).message == choose(2, files).message
    earlier = ToldBefore().with_files(1, [file("job.log", CRASH)]).with_files(2, [file("job.log", CRASH, OOM)])
    again = choose(2, [file("job.log", CRASH, OOM)], before=earlier)
    assert again.cause is not None
    assert again.cause.kind == "out_of_memory"


def test_the_same_words_again_in_a_file_that_was_written_to_are_a_cause_again() -> None:
    before = ToldBefore().with_files(1, [file("rank1.err", CRASH)])
    for events in ((CRASH,), (CRASH, CRASH)):
        found = choose(2, [file("rank1.err", *events)], before=before)
        assert found.cause is not None
        assert found.cause.kind == "exception"


def test_the_end_of_a_file_that_grew_begins_later_and_is_known_all_the_same() -> None:
    lines = [fault("exception", rank=rank, exception=f"Error{rank}") for rank in range(6)]
    before = ToldBefore().with_files(1, [file("job.log", *lines)])
    found = choose(2, [file("job.log", *lines[3:], OOM)], before=before)
    assert found.cause is not None
    assert (found.cause.kind, found.followers) == ("out_of_memory", 0)


def test_a_line_without_a_time_before_one_of_an_earlier_attempt_is_of_that_attempt() -> None:
    files = [file("job.log", OOM, fault("nccl_timeout", -7_200, rank=5), CRASH)]
    found = choose(2, files, started_ns=AT_NS - 3_600 * S)
    assert found.cause is not None
    assert (found.cause.kind, found.followers) == ("exception", 0)


def test_a_line_without_a_time_behind_one_of_a_later_attempt_is_of_that_attempt() -> None:
    files = [file("job.log", CRASH, fault("nccl_timeout", 7_200, rank=5), OOM)]
    found = choose(2, files, started_ns=AT_NS - 3_600 * S, until_ns=AT_NS + 3_600 * S)
    assert found.cause is not None
    assert (found.cause.kind, found.followers) == ("exception", 0)


def test_what_is_remembered_is_bounded() -> None:
    before = ToldBefore()
    for attempt in range(1, 5):
        before = before.with_files(attempt, [file("one.log", *[fault("exception", rank=n) for n in range(3 * MAX_KEYS)])])
    assert [(number, len(keys)) for number, keys in before.keys["one.log"]] == [(3, MAX_KEYS), (4, MAX_KEYS)]
    before = before.with_files(5, [file(f"{n}.log", CRASH) for n in range(MAX_PATHS + 10)])
    assert len(before.keys) == MAX_PATHS
