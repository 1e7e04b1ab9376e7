"""What every sink promises beside taking points: state that is kept with them, both or neither (trainvitals.store.protocol)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainvitals.errors import StoreError
from trainvitals.identity import step_time_ns
from trainvitals.records import Point, Step
from trainvitals.store.encode import step_point
from trainvitals.store.protocol import Sink
from trainvitals.store.sqlite import SqliteStore

T0 = 1_767_323_045 * 10**9


def step(number: int) -> Point:
    return step_point("r", Step(number, 1, T0, {"loss": 1.0}), step_time_ns(T0, number))


@pytest.fixture
def open_sink(tmp_path: Path) -> Iterator[Callable[[], Sink]]:
    opened: list[SqliteStore] = []

    def open_one() -> Sink:
        opened.append(SqliteStore(tmp_path / "sink.db"))
        return opened[-1]

    yield open_one
    for sink in opened:
        sink.close()


def test_a_refused_batch_keeps_no_state(open_sink: Callable[[], Sink]) -> None:
    sink = open_sink()
    sink.commit([step(1)], {"log/offset": b"10"})
    with pytest.raises(StoreError):
        sink.commit([step(2), Point("node", {"node": "n"}, T0, {"nope": 1})], {"log/offset": b"20"})
    assert sink.load_state("log/") == {"log/offset": b"10"}


def test_state_is_kept_by_key_and_found_by_prefix(open_sink: Callable[[], Sink]) -> None:
    sink = open_sink()
    sink.commit([], {"r1/a": b"\0\xff", "r1/b": b"", "r10/a": b"other", "R1/a": b"case", "r1%": b"%", "'; DROP TABLE x": b"q"})
    sink.commit([], {"r1/b": None, "r1/never": None})
    assert open_sink().load_state("r1/") == {"r1/a": b"\0\xff"}
    assert set(sink.load_state("")) == {"r1/a", "r10/a", "R1/a", "r1%", "'; DROP TABLE x"}
    assert sink.load_state("'; DROP TABLE x") == {"'; DROP TABLE x": b"q"}
    assert sink.load_state("nothing") == {}
