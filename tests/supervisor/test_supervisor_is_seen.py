"""That a run is supervised is seen by everybody, for as long as it is and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.clock import SystemClock
from trainvitals.control import supervised
from trainvitals.supervisor import desk
from trainvitals.supervisor.desk import Desk


def test_a_long_turn_does_not_look_as_if_nobody_supervised_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's commands may take minutes; somebody who is told that nobody is here starts a second trainer."""
    monkeypatch.setattr(desk, "ANNOUNCE_EVERY_S", 0.02)
    place = Place(tmp_path)
    supervised.make_directories(place.run_dir)
    own = Desk(place.run, SystemClock())
    file = supervised.directory_of(place.run_dir) / supervised.ALIVE_FILE
    own.announce()
    for _ in range(2):  # the same turn goes on
        file.unlink()
        wait_until(file.exists, "that it is told again")
    monkeypatch.setattr(desk, "TURN_LIMIT_S", 0.0)
    own.close()
    assert supervised.supervisor_of(place.run_dir) is None


def test_what_keeps_it_from_being_told_is_said_by_the_next_turn(tmp_path: Path) -> None:
    place = Place(tmp_path)
    own = Desk(place.run, SystemClock())
    own.announce()
    own.close()
    assert "cannot tell that this run is supervised" in place.events()[-1]["text"]
