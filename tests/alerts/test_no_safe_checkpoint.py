"""That there is no way back decides whether somebody gets up: the headline says it."""

from __future__ import annotations

import pytest
from notices import notice

from trainvitals.alerts.notice import Verb
from trainvitals.alerts.words import HEADLINE_CHARACTERS, headline

NONE = {"safe_step": None, "safe_level": "", "lost_steps": None, "lost_gpu_hours": None}


@pytest.mark.parametrize("verb", [Verb.TRAINING_SICK, Verb.STOPPED, Verb.PAUSED])
def test_a_critical_message_says_that_no_checkpoint_is_safe(verb):
    told = headline(notice("opened", verb=verb, **NONE))
    assert "no safe ckpt" in told or "no safe checkpoint" in told
    assert len(told) <= HEADLINE_CHARACTERS and "step 48,210" in told
    assert "无安全 checkpoint" in headline(notice("opened", verb=verb, **NONE), "zh")


@pytest.mark.parametrize(
    "other",
    [notice("recovered", verb=Verb.RECOVERED, **NONE), notice("opened", severity="warning", **NONE), notice("opened", verb=Verb.HUNG, **NONE)],
)  # fmt: skip
def test_where_nobody_has_to_go_back_it_is_left_out(other):
    assert "no safe" not in headline(other) and "无安全" not in headline(other, "zh")


def test_with_a_safe_checkpoint_it_is_named():
    assert "safe ckpt 48,000" in headline(notice("opened")) and "no safe" not in headline(notice("opened"))
