"""What the dialog of a pause offers: only what the trainer of this run can do."""

from __future__ import annotations

import pytest

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.settings import RunSettings
from trainvitals.web.control_words import has_choice_of_pause, pause_meaning
from trainvitals.web.view import ControlView, RunView


def view(way: str, *, can_park: bool = True, supervisor: str = "") -> RunView:
    control = ControlView("running", "Running.", can_act=True, can_park=can_park, supervisor=supervisor)
    verdict = Verdict(VerdictWord.HEALTHY, "healthy", "", 1)
    return RunView(RunSettings("r", control=way), 1, verdict, control)


@pytest.mark.parametrize("way", ["kill_switch", "signal"])
def test_a_trainer_in_its_own_way_is_offered_a_park_alone_and_who_starts_it_again(way: str) -> None:
    assert not has_choice_of_pause(view(way))
    told = pause_meaning(view(way))
    assert "saves, ends and gives its nodes back" in told and "holds" not in told and "somebody has to start it again" in told
    assert "the supervisor starts it again" in pause_meaning(view(way, supervisor="run-host"))


def test_a_trainer_with_a_client_is_offered_what_its_client_understands() -> None:
    assert has_choice_of_pause(view("hook")) and not has_choice_of_pause(view("hook", can_park=False))
    assert "holds its GPUs" in pause_meaning(view("hook"))
