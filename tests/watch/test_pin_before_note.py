"""A note silences what would say that a way back is needed: the last one before it is kept until the silence is over."""

from __future__ import annotations

import pytest
from test_safe_checkpoint import Place

from trainvitals.records import Event


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.header()
    made.run_on(1, 450)
    yield made
    made.store.close()


def note(place: Place, change: str = "data_mix", **data: object) -> None:
    place.safe.take(Event("annotation", place.clock.time_ns(), step=450, data={"change": change, "points": 300, **data}))
    place.settle()


def test_the_last_one_before_it_outlives_the_trainers_deletion_and_goes_when_the_silence_is_over(place) -> None:
    note(place)
    assert place.pinned() == ["checkpoint-400"]
    place.run_on(451, 740)
    assert place.pinned() == ["checkpoint-400"] and not (place.checkpoints / "checkpoint-400").exists()
    place.run_on(741, 760)
    assert place.pinned() == [] and "newer" in place.told("let_go")[-1]


def test_a_restart_of_the_watchdog_keeps_it(place) -> None:
    note(place)
    state = place.safe.to_state()
    place.safe.restore(state)
    assert place.safe.to_state()["before_note"] == [450, 750]


def test_a_note_that_silences_nothing_of_the_weights_keeps_nothing(place) -> None:
    note(place, "free", rules=["throughput_drop"])
    assert place.pinned() == []


def test_a_note_for_a_step_to_come_keeps_nothing_before_that_step_and_a_second_note_moves_it_not_forward(place) -> None:
    place.safe.take(Event("annotation", place.clock.time_ns(), step=550, data={"change": "data_mix", "points": 300}))
    place.settle()
    assert place.pinned() == []
    place.run_on(451, 560)
    assert place.pinned() == ["checkpoint-500"]
    place.safe.take(Event("annotation", place.clock.time_ns(), step=560, data={"change": "data_mix", "points": 300}))
    assert place.safe.to_state()["before_note"] == [550, 860]
