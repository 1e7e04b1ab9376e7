"""How long saves took, out of what the hook and the log told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.saves import saves_of
from trainvitals.records import Event

SECOND = 10**9


def save(state: str, at_s: float, step: int | None = 100, attempt: int = 1, path: str = "/c/100", **more: object) -> Event:
    return Event("save", round(at_s * SECOND), step=step, attempt=attempt, data={"state": state, "path": path, **more})


def phase(state: str, at_s: float, step: int, attempt: int = 1) -> Event:
    return Event("phase", round(at_s * SECOND), step=step, attempt=attempt, data={"phase": "checkpoint", "state": state})


def test_a_save_of_the_hook_is_one_with_its_three_times() -> None:
    (found,) = saves_of([
        save("persisted", 45, blocked_s=0.5, staged_s=2.0, persisted_s=44.0, is_async=True), save("begun", 1, is_async=True),
        save("staged", 3, blocked_s=0.5, staged_s=2.0), save("manifest", 50, is_written=True),
    ])  # fmt: skip
    assert (found.step, found.attempt, found.blocked_s, found.staged_s, found.persisted_s) == (100, 1, 0.5, 2.0, 44.0)
    assert found.is_async is True and found.problem == "" and found.longest_s == 44.0


def test_a_save_under_way_has_no_end_and_a_failed_one_its_reason() -> None:
    under_way, failed = saves_of([
        save("staged", 3, blocked_s=0.5, staged_s=2.0),
        Event("save", 9 * SECOND, step=200, attempt=1, text="no space left", data={"state": "failed", "path": "/c/200"}),
    ])  # fmt: skip
    assert under_way.persisted_s is None and failed.problem == "no space left"


def test_the_same_step_saved_again_begins_anew_and_another_attempt_is_another_save() -> None:
    first, second = saves_of([
        save("begun", 1), save("failed", 2, reason="full"), save("begun", 5), save("persisted", 9, persisted_s=4.0),
        save("persisted", 99, attempt=2, persisted_s=7.0),
    ])  # fmt: skip
    assert (first.attempt, first.persisted_s, first.problem) == (1, 4.0, "")
    assert (second.attempt, second.persisted_s) == (2, 7.0)


def test_a_copy_and_another_rank_are_no_saves_of_their_own_and_a_deletion_is_kept() -> None:
    (found,) = saves_of([
        save("persisted", 9, persisted_s=4.0), save("persisted", 20, path="/shared/100", copy_of="/c/100"),
        save("failed", 21, rank=3, reason="x"), save("deleted", 99),
    ])  # fmt: skip
    assert found.problem == "x" and found.persisted_s == 4.0  # a rank whose part failed makes the save one that failed
    assert found.deleted_ns == 99 * SECOND


def test_begin_and_end_in_the_log_tell_how_long_it_blocked_unless_the_hook_tells() -> None:
    logged = [phase("begin", 10, 100), phase("end", 14, 100), phase("end", 50, 200)]
    first, second = saves_of(logged)
    assert (first.blocked_s, first.persisted_s, first.is_from_hook) == (4.0, None, False)
    assert second.blocked_s is None
    assert [one.is_from_hook for one in saves_of([*logged, save("persisted", 14, persisted_s=4.0)])] == [True]


def test_a_time_that_cannot_be_is_not_told() -> None:
    values = [float("nan"), float("inf"), -1.0, 1e9, True, "3"]
    found = saves_of(save("persisted", n, step=n, path=f"/c/{n}", blocked_s=value) for n, value in enumerate(values))
    assert [one.blocked_s for one in found] == [None] * len(values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)


@given(
    st.lists(
        st.builds(
            lambda kind, time_ns, step, attempt, data: Event(kind, time_ns, step=step, attempt=attempt, data=data),
            st.sampled_from(["save", "phase"]), st.one_of(st.none(), st.integers(0, 2**62)), st.one_of(st.none(), st.integers(0, 9)),
            st.one_of(st.none(), st.integers(1, 3)),
            st.dictionaries(st.sampled_from(["state", "path", "phase", "blocked_s", "staged_s", "persisted_s", "is_async", "rank"]), JSON)
            | st.fixed_dictionaries({"state": st.sampled_from(["begun", "persisted", "failed", "end"]), "path": st.just("/c"),
                                     "phase": st.just("checkpoint"), "blocked_s": JSON}),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_any_events_are_read_and_times_are_sound(events: list[Event]) -> None:
    for found in saves_of(events):
        assert found.longest_s is None or 0 <= found.longest_s < 1e6
