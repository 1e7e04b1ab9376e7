"""What the disks of the checkpoint directories have left: read, told when it matters, and not again after a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from trainvitals.incidents.checkpoint_card import Room
from trainvitals.records import CheckpointReport, CheckpointState
from trainvitals.store.encode import event_point
from trainvitals.watch.checkpoint_events import CheckpointEvents
from trainvitals.watch.checkpoint_room import AGAIN_NS, rooms_of
from trainvitals.web.checkpoints import room_of

NOW = 1_800_000_000 * 10**9
ROOM = Room("/c", 500_000, 1_000_000, NOW)


def test_a_directory_that_is_there_has_room_and_one_that_is_not_has_none(tmp_path: Path) -> None:
    (room,) = rooms_of([str(tmp_path), str(tmp_path / "not there")], NOW)
    assert room.directory == str(tmp_path) and 0 < room.free_bytes <= room.total_bytes


def test_ten_thousand_checkpoints_of_one_look_are_ten_thousand_rows() -> None:
    reports = [CheckpointReport(f"/c/{n}", n, "f", CheckpointState.COMPLETE, None, None, 1, 1) for n in range(10_000)]
    events = CheckpointEvents().of(reports, [], 1, NOW)
    assert len({event_point("run", event).time_ns for event in events}) == len(events)
    assert [event.step for event in events] == list(range(9_999, -1, -1)) and events[-1].time_ns == NOW


def test_room_is_told_when_it_changed_enough_and_at_least_every_hour() -> None:
    events = CheckpointEvents()
    told = events.of([], [], 1, NOW, [ROOM])
    assert [event.kind for event in told] == ["room"] and room_of(told[0]) == ROOM
    assert events.of([], [], 1, NOW, [replace(ROOM, free_bytes=499_000, time_ns=NOW + 10)]) == []
    assert events.of([], [], 1, NOW, [replace(ROOM, free_bytes=480_000, time_ns=NOW + 20)])
    assert events.of([], [], 1, NOW, [replace(ROOM, free_bytes=480_000, time_ns=NOW + 20 + AGAIN_NS)])


def test_a_restarted_watchdog_tells_nothing_twice_and_takes_the_state_of_an_older_one() -> None:
    first = CheckpointEvents()
    first.of([], [], 1, NOW, [ROOM])
    second = CheckpointEvents()
    second.restore(json.loads(json.dumps(first.to_state())))
    assert second.of([], [], 1, NOW, [replace(ROOM, time_ns=NOW + 10**9)]) == []
    second.restore({"choices": {}})
    assert second.of([], [], 1, NOW, [ROOM])
