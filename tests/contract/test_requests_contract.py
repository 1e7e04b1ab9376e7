"""What every store promises of signed requests and of the control state that other hosts read (trainvitals.store.request_rows)."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.store.protocol import Store
from trainvitals.store.request_rows import control_point, read_control_row, read_request_rows, request_point

SECOND = 1_000_000_000
T0 = 1_767_323_045 * SECOND
AWKWARD = '{"reason": "it\'s \\"torn\\"\\n, = % \\\\ 损失 🙂"}'


def test_a_request_comes_back_byte_for_byte_whatever_is_written_in_it(store: Store) -> None:
    store.write([request_point("llama, 70 = b", "pause", T0 + 7, "one", AWKWARD, "v1 0a1b")])
    (row,) = read_request_rows(store, "llama, 70 = b", T0, T0 + SECOND, 10)
    assert (row.run, row.kind, row.id, row.text, row.signature) == ("llama, 70 = b", "pause", "one", AWKWARD, "v1 0a1b")
    assert T0 <= row.time_ns < T0 + SECOND


def test_a_request_written_again_is_one_row_and_two_of_one_moment_are_two(store: Store) -> None:
    points = [request_point("r", "pause", T0, name, "{}", "s") for name in ("a", "b", "a")]
    store.write(points)
    store.write(points)
    assert sorted(row.id for row in read_request_rows(store, "r", T0, T0 + SECOND, 10)) == ["a", "b"]


def test_only_the_asked_run_window_and_number_are_read_oldest_first(store: Store) -> None:
    store.write([request_point(run, kind, T0 + at * SECOND, f"{run}{at}", "{}", "s")
                 for run in ("r", "other") for at, kind in enumerate(("pause", "resume", "pause", "breaker"))])  # fmt: skip
    assert [row.id for row in read_request_rows(store, "r", T0 + SECOND, T0 + 4 * SECOND, 2)] == ["r1", "r2"]
    assert read_request_rows(store, "nobody", T0, T0 + 9 * SECOND, 10) == []


def test_a_place_where_nobody_asked_yet_holds_no_request(store: Store) -> None:
    assert read_request_rows(store, "r", 0, T0, 10) == [] and read_control_row(store, "r", SECOND, T0) is None


def test_the_newest_control_state_of_a_run_is_read_by_every_client(open_again: Callable[[], Store]) -> None:
    store = open_again()
    store.write([control_point("r", T0 + at * SECOND, at, f'{{"at": {at}}}') for at in range(3)])
    store.write([control_point("other", T0 + 9 * SECOND, 1, "{}")])
    assert read_control_row(open_again(), "r", 60 * SECOND, T0 + 5 * SECOND) == (T0 + 2 * SECOND, '{"at": 2}')
    assert read_control_row(store, "r", 60 * SECOND, T0 + 5 * SECOND) == (T0 + 2 * SECOND, '{"at": 2}')
