"""A sensitivity of nothing is refused with the way to silence a rule: it was taken for the usual one."""

from __future__ import annotations

import pytest

from trainvitals.detect.tunables import TUNABLES
from trainvitals.errors import SettingsError
from trainvitals.settings import parse


@pytest.mark.parametrize("value", [0, 0.0, 1e-9, -1, -0.0, float("nan"), True, "1"])
def test_what_is_no_sensitivity_is_refused(value):
    with pytest.raises(SettingsError, match=r"\[detect\.loss_spike\]: sensitivity must be"):
        parse({"detect": {"loss_spike": {"sensitivity": value}}})


def test_the_refusal_says_how_a_rule_is_silenced():
    with pytest.raises(SettingsError, match="It switches no rule off") as refused:
        parse({"detect": {"stall": {"floor_s": 5}, "straggler": {"sensitivity": 0}}})
    assert "incident silence RUN_DIR --rule straggler" in str(refused.value) and "--rules straggler" in str(refused.value)


def test_low_ones_and_other_zeros_are_taken():
    for rule in (rule for rule in TUNABLES if "sensitivity" in TUNABLES[rule]):
        assert parse({"detect": {rule: {"sensitivity": 0.01}}}).detect[rule] == {"sensitivity": 0.01}
    assert parse({"detect": {"loss_spike": {"min_excess": 0}}}).detect["loss_spike"] == {"min_excess": 0.0}
