"""A trainer that its own way of control can only park: the supervisor waits for the resume and starts it again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.control import ControlRequest, submit
from trainvitals.settings import RunSettings
from trainvitals.supervisor.exits import Evidence, classify
from trainvitals.supervisor.wishes import is_to_end

TRAINER = """
import os, sys, time
kill, done, starts = sys.argv[1:4]
with open(starts, "a") as file:
    file.write("start\\n")
while not os.path.exists(kill) and not os.path.exists(done):
    time.sleep(0.02)
"""


class OwnWay(Place):
    """A trainer with a kill switch; the test makes and removes the file in place of ``watch``."""

    @property
    def kill(self) -> Path:
        return self.path / "KILL"

    @property
    def run(self) -> RunSettings:
        return replace(super().run, control="kill_switch", kill_switch_path=str(self.kill))

    def command(self) -> list[str]:
        return [sys.executable, "-c", TRAINER, str(self.kill), str(self.path / "done"), str(self.path / "starts")]

    @property
    def starts(self) -> int:
        path = self.path / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0


def ask(place: Place, action: str) -> None:
    submit(place.run_dir, "small", action=action, by="ana", source="cli", reason="a look")


def test_a_parked_trainer_is_started_again_by_the_resume_and_not_before(tmp_path: Path) -> None:
    place = OwnWay(tmp_path)
    with place.running():
        wait_until(lambda: place.starts == 1, "the start")
        ask(place, "pause")
        place.kill.touch()
        wait_until(
            lambda: "stopped" in place.states() and place.history.hold_seq is not None, "that it waits, and that this is kept"
        )
        assert place.kinds == ["stopped"] and place.starts == 1
        place.kill.unlink()
        ask(place, "resume")
        wait_until(lambda: place.starts == 2, "the second start")
        (tmp_path / "done").touch()
        wait_until(lambda: place.codes == [0], "the end")
    assert place.kinds == ["stopped", "finished"]


@pytest.mark.parametrize(
    ("control", "desired", "ends"),
    [("hook", "paused", False), ("hook", "stopped", True), ("signal", "paused", True), ("kill_switch", "running", False)],
)
def test_a_pause_ends_a_trainer_only_where_nothing_else_can_be_done(control: str, desired: str, ends: bool) -> None:
    run = RunSettings(name="r", dir="/x", control=control)
    assert is_to_end(run, ControlRequest(seq=1, desired=desired)) is ends
    assert not is_to_end(run, None)


def test_a_trainer_is_not_started_while_its_kill_switch_is_still_there(tmp_path: Path) -> None:
    """It would end with exit code 0, as if the training were finished."""
    place = OwnWay(tmp_path)
    with place.running():
        wait_until(lambda: place.starts == 1, "the start")
        ask(place, "pause")
        place.kill.touch()
        wait_until(lambda: place.history.hold_seq is not None, "that it waits")
        ask(place, "resume")
        wait_until(lambda: any("kill switch" in event["text"] for event in place.events()), "that it is said")
        assert place.starts == 1
        place.kill.unlink()
        wait_until(lambda: place.starts == 2, "the second start")
        (tmp_path / "done").touch()
        wait_until(lambda: place.codes == [0], "the end")


def test_an_end_that_a_kill_switch_makes_is_not_taken_for_the_end_of_the_training() -> None:
    assert classify(Evidence(0, may_be_off=True)).kind == "unknown"
    assert classify(Evidence(0, may_be_off=True, has_steps=True)).kind == "finished"
    assert classify(Evidence(0, may_be_off=True, end_reason="finished")).kind == "finished"
    assert classify(Evidence(0, may_be_off=True, is_stop_asked=True)).kind == "stopped"
