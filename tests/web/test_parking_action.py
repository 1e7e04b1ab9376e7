"""A pause from the page may say whether the trainer holds its nodes or gives them back, where it understands that."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainvitals import settings as settings_module
from trainvitals.control import ControlClient, look, read_request
from trainvitals.web.actions import ask


@pytest.mark.parametrize("how", [None, "hold", "park"])
def test_how_a_run_is_to_be_paused_stands_in_the_request(tmp_path: Path, how: str | None) -> None:
    settings = settings_module.parse({"runs": [{"name": "r1", "dir": str(tmp_path)}]})
    assert ask(settings, "r1", "pause", "ana", "a long night", 0, how=how).is_done
    assert read_request(tmp_path).how == how


def test_another_word_is_refused(tmp_path: Path) -> None:
    settings = settings_module.parse({"runs": [{"name": "r1", "dir": str(tmp_path)}]})
    outcome = ask(settings, "r1", "pause", "ana", "a long night", 0, how="explode")
    assert not outcome.is_done and "hold, park" in outcome.sentence and read_request(tmp_path).seq == 0


@pytest.mark.parametrize("can_park", [True, False])
def test_the_choice_is_offered_where_the_trainer_understands_it(tmp_path: Path, can_park: bool) -> None:
    client = ControlClient(tmp_path, run="r1", poll_s=0.01, can_park=can_park)
    client.at_step(1)
    client.close()
    assert look(tmp_path, time.time_ns()).can_park is can_park
