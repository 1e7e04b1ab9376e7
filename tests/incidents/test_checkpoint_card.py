"""The checkpoint card: each point with its verdict, its value and the evidence; nothing is said without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.checkpoint_card import CardInputs, CardRow, Judgement, Room, card
from trainvitals.incidents.failure_rate import best_interval_s, failure_rate, lost_share
from trainvitals.incidents.saves import SaveTime
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

HOUR = 3600.0
GB = 10**9


def report(step: int, state: CheckpointState = CheckpointState.VERIFIED, **more: object) -> CheckpointReport:
    made = CheckpointReport(
        f"/c/{step}", step, "dcp", state, VerificationLevel.CONTENT if state is CheckpointState.VERIFIED else None, True, 64, 200 * GB,
        modified_at_ns=step * 10**9, has_rng=True, has_data_position=True, world_size=64, largest_file_bytes=4 * GB,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def saves(steps: range, blocked_s: float | None = 1.0, persisted_s: float | None = 60.0) -> list[SaveTime]:
    return [SaveTime(step, f"/c/{step}", 1, step * 10**9, blocked_s, blocked_s, persisted_s, True) for step in steps]


STEPS = range(1000, 11_000, 1000)
GOOD = CardInputs(
    [report(step, CheckpointState.DELETED if step < 8000 else CheckpointState.VERIFIED) for step in STEPS], saves(STEPS),
    failure_rate(10, 1000 * HOUR), 3.0, 64, 0, [Room("/c", 9000 * GB, 10_000 * GB, 0)],
)  # fmt: skip


def row(inputs: CardInputs, key: str) -> CardRow:
    return next(one for one in card(inputs) if one.key == key)


def test_no_checkpoint_has_no_card_and_a_good_run_has_nothing_to_look_at() -> None:
    assert card(CardInputs([])) == ()
    rows = card(GOOD)
    assert {one.judgement for one in rows} == {Judgement.GOOD}, [one for one in rows if one.judgement is not Judgement.GOOD]
    assert len({one.key for one in rows}) == len(rows)
    assert all(one.value and one.why.endswith(".") for one in rows)


def test_what_is_not_known_is_unknown_and_never_good() -> None:
    bare = CheckpointReport("/c/5", 5, "f", CheckpointState.COMPLETE, None, None, 1, 0)
    found = {one.key: one.judgement for one in card(CardInputs([bare]))}
    assert found.pop("verified") is Judgement.BAD
    assert set(found.values()) == {Judgement.UNKNOWN}


@pytest.mark.parametrize(
    ("has", "judgement", "value"),
    [(True, Judgement.GOOD, "in it"), (False, Judgement.BAD, "missing"), (None, Judgement.UNKNOWN, "not known")],
)
def test_the_newest_whole_checkpoint_answers_for_the_optimizer(has: bool | None, judgement: Judgement, value: str) -> None:
    damaged = report(12_000, CheckpointState.CORRUPT, has_optimizer=True)
    found = row(replace(GOOD, reports=[report(9000), report(10_000, has_optimizer=has), damaged]), "optimizer")
    assert (found.judgement, found.value) == (judgement, value) and "10,000" in found.why


def test_a_missing_random_state_or_data_position_is_named() -> None:
    found = row(replace(GOOD, reports=[report(1, has_rng=False, has_data_position=False)]), "state")
    assert (found.judgement, found.value) == (Judgement.LOOK, "no random state and no data position")
    assert row(replace(GOOD, reports=[report(1, has_rng=None)]), "state").value == "random state not known"


def test_two_failures_are_too_few_to_say_anything() -> None:
    found = row(replace(GOOD, failures=failure_rate(2, 90 * HOUR)), "young_daly")
    assert (found.judgement, found.value) == (Judgement.UNKNOWN, "too few failures") and "2 failures" in found.why


def test_the_interval_is_weighed_by_what_it_loses_with_the_limits_of_the_evidence() -> None:
    # 10 failures in 1,000 h, saves that block 1 s: best sqrt(2 x 1 x 360,000) = 849 s = 283 steps; 1,000 steps lose little more.
    found = row(GOOD, "young_daly")
    assert (found.judgement, found.value) == (Judgement.GOOD, "best: 280 steps")
    assert "one every 4 d 4 h (95 %: 2 d 6 h to 8 d 16 h)" in found.why
    rare = replace(GOOD, reports=[report(step) for step in range(0, 400_000, 40_000)], saves=saves(range(0, 400_000, 40_000)))
    assert row(rare, "young_daly").judgement is Judgement.BAD
    dear = replace(GOOD, saves=saves(STEPS, blocked_s=600.0, persisted_s=600.0))
    assert row(dear, "young_daly").judgement is Judgement.BAD


def test_without_save_times_the_failures_are_told_and_no_interval_is_advised() -> None:
    found = row(replace(GOOD, saves=()), "young_daly")
    assert (found.judgement, found.value) == (Judgement.UNKNOWN, "save time not known") and "10 failures" in found.why


@pytest.mark.parametrize(
    ("every", "blocked_s", "judgement"),
    [(500, 1.0, "good"), (2000, 1.0, "good"), (3000, 1.0, "look"), (100, 0.1, "good"), (100, 30.0, "look"), (100, None, "look")],
)
def test_an_interval_beyond_the_usual_one_is_looked_at_unless_it_costs_nothing(
    every: int, blocked_s: float | None, judgement: str
) -> None:
    steps = range(every, 11 * every, every)
    found = row(replace(GOOD, reports=[report(step) for step in steps], saves=saves(steps, blocked_s)), "interval")
    assert (found.judgement.value, found.value) == (judgement, f"every {every:,} steps")


def test_a_synchronous_save_is_judged_by_what_it_costs() -> None:
    found = row(GOOD, "async")
    assert (found.judgement, found.value) == (Judgement.GOOD, "1 s of 1 min 0 s") and "under 0.1 %" in found.why
    dear = row(replace(GOOD, saves=saves(STEPS, 120.0, 120.0)), "async")
    assert dear.judgement is Judgement.LOOK and dear.why.startswith("Synchronous") and "3.8 %" in dear.why
    cheap = row(replace(GOOD, saves=saves(STEPS, 2.0, 2.0)), "async")
    assert cheap.judgement is Judgement.GOOD and "too little to matter" in cheap.why
    logged = row(replace(GOOD, saves=saves(STEPS, 200.0, None)), "async")
    assert logged.judgement is Judgement.BAD and "log" in logged.why


def test_one_file_of_everything_is_bad_only_where_it_is_large_and_many_wait_for_it() -> None:
    one = replace(GOOD, reports=[report(1, files=2, largest_file_bytes=190 * GB)])
    assert row(one, "sharded").judgement is Judgement.BAD
    assert row(replace(one, gpus=1, reports=[replace(one.reports[0], world_size=1)]), "sharded").judgement is Judgement.GOOD
    small = replace(GOOD, reports=[report(1, files=2, bytes=3 * GB, largest_file_bytes=2 * GB)])
    assert row(small, "sharded").judgement is Judgement.GOOD
    assert row(replace(GOOD, reports=[report(1, largest_file_bytes=None)]), "sharded").judgement is Judgement.UNKNOWN


@pytest.mark.parametrize(("kept", "judgement"), [(1, Judgement.BAD), (2, Judgement.LOOK), (3, Judgement.GOOD)])
def test_how_many_the_trainer_keeps_is_what_was_left_when_it_deleted(kept: int, judgement: Judgement) -> None:
    steps = range(1000, 9000, 1000)
    reports = [report(step, CheckpointState.VERIFIED if step > 8000 - 1000 * kept else CheckpointState.DELETED) for step in steps]
    assert row(replace(GOOD, reports=reports), "kept").judgement is judgement


def test_a_pinned_copy_is_no_part_of_what_the_trainer_keeps() -> None:
    reports = [report(1000, CheckpointState.DELETED), report(2000)]
    pinned = replace(report(1000), path="/c/.trainvitals-pinned/1000")
    assert row(replace(GOOD, reports=[*reports, pinned]), "kept").value == "only the newest"


def test_a_disk_that_fills_is_bad_before_it_is_full_and_the_fullest_one_counts() -> None:
    kept = [report(step) for step in STEPS]  # nothing was ever deleted
    rooms = [Room("/a", 9000 * GB, 9000 * GB, 0), Room("/b", 500 * GB, 9000 * GB, 0)]
    found = row(replace(GOOD, reports=kept, rooms=rooms), "disk")
    assert (found.judgement, found.value) == (Judgement.BAD, "2 saves") and "only fills" in found.why
    assert row(replace(GOOD, rooms=rooms[1:]), "disk").judgement is Judgement.LOOK, "with retention each save frees one"
    assert row(replace(GOOD, rooms=()), "disk").judgement is Judgement.UNKNOWN


def test_verified_says_how_far() -> None:
    structure = [report(step, level=VerificationLevel.STRUCTURE) for step in (1, 2)]
    found = row(replace(GOOD, reports=structure), "verified")
    assert found.judgement is Judgement.LOOK and "no bytes were compared" in found.why
    assert row(replace(GOOD, reports=[report(1), report(2, CheckpointState.CORRUPT)]), "verified").judgement is Judgement.LOOK
    assert row(replace(GOOD, reports=[report(1, CheckpointState.COMPLETE)]), "verified").judgement is Judgement.BAD
    assert row(replace(GOOD, reports=[report(1, CheckpointState.DELETED)]), "verified").judgement is Judgement.BAD


@pytest.mark.parametrize(("count", "lowest", "highest"), [(3, 0.6187, 8.7673), (10, 4.7954, 18.3904), (100, 81.364, 121.627)])
def test_the_limits_of_a_rate_are_garwoods(count: int, lowest: float, highest: float) -> None:
    rate = failure_rate(count, 1.0)
    assert rate.least_s == pytest.approx(1 / highest, rel=1e-4) and rate.most_s == pytest.approx(1 / lowest, rel=1e-4)


def test_young_s_interval_loses_least() -> None:
    best = best_interval_s(30.0, 24 * HOUR)
    assert best == pytest.approx(math.sqrt(2 * 30 * 86_400))
    assert all(lost_share(best * factor, 30.0, 24 * HOUR) > lost_share(best, 30.0, 24 * HOUR) for factor in (0.5, 0.9, 1.1, 2))


NUMBERS = st.one_of(st.none(), st.floats(0, 1e6))


@given(
    st.lists(
        st.builds(
            lambda step, state, size, largest, files: report(step, state, bytes=size, largest_file_bytes=largest, files=files),
            st.integers(0, 10**7), st.sampled_from(CheckpointState), st.integers(0, 10**15), st.one_of(st.none(), st.integers(0, 10**15)),
            st.integers(0, 10**6),
        ),
        max_size=12,
    ),
    st.lists(st.builds(lambda step, a, b: SaveTime(step, "", 1, None, a, None, b), st.integers(0, 10**7), NUMBERS, NUMBERS), max_size=12),
    st.integers(0, 500), st.floats(0, 1e9), NUMBERS, st.integers(0, 10**15),
)  # fmt: skip
def test_any_run_gets_its_card(
    reports: list[CheckpointReport], made: list[SaveTime], failures: int, observed_s: float, step_s: float | None, free: int
) -> None:
    inputs = CardInputs(reports, made, failure_rate(failures, observed_s), step_s, 0, 0, [Room("/c", free, 10**15, 0)])
    for one in card(inputs):
        assert one.value and one.why and "nan" not in one.why


def test_a_checkpoint_that_nobody_has_looked_into_yet_leaves_the_newest_known_one_to_speak() -> None:
    fresh = report(
        11_000, CheckpointState.COMPLETE, has_optimizer=None, has_rng=None, has_data_position=None, largest_file_bytes=None, world_size=None
    )  # fmt: skip
    inputs = replace(GOOD, reports=[*GOOD.reports, fresh])
    for key in ("optimizer", "state", "sharded"):
        assert row(inputs, key) == row(GOOD, key)
    assert "10,000" in row(inputs, "optimizer").why


def test_gpus_are_not_called_ranks() -> None:
    said = row(replace(GOOD, reports=[report(1, world_size=None)], gpus=8), "sharded").why
    assert "8 GPUs" in said and "rank" not in said
    assert "1 rank" in row(replace(GOOD, reports=[report(1, world_size=1)], gpus=8), "sharded").why


def test_one_that_was_taken_out_of_turn_says_nothing_of_how_many_are_kept() -> None:
    there, gone = CheckpointState.VERIFIED, CheckpointState.DELETED
    states = [gone, there, there, gone, there, there]
    reports = [report(step, state) for step, state in zip(range(1000, 7000, 1000), states, strict=True)]
    assert row(replace(GOOD, reports=reports), "kept").value == "the newest 4"
    # A trainer that keeps every so many for good deletes around them all the time.
    states = [gone, there, gone, gone, there, there]
    reports = [report(step, state) for step, state in zip(range(1000, 7000, 1000), states, strict=True)]
    assert row(replace(GOOD, reports=reports), "kept").value == "the newest 2"
