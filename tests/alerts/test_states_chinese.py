"""Our own sentences on the trainer and the breaker are Chinese to their end; what is not known wholly keeps its English behind it."""

from __future__ import annotations

import pytest

from trainvitals.alerts.findings_zh import state
from trainvitals.detect.breaker import BreakerState, _progress
from trainvitals.settings_sections import BreakerSettings


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("Running, last step 3,351.", "运行中，最后一步：第 3,351 步"),
        ("Running, no step ended yet.", "运行中，尚未完成任何一步"),
        ("It is armed and has not tripped.", "已启用，尚未触发"),
        ("It is off for this run.", "未启用"),
    ],
)
def test_a_sentence_that_is_known_to_its_end_has_no_english_behind_it(english, chinese):
    assert state(english) == chinese


def test_what_the_breaker_counts_is_chinese_in_its_own_words():
    reason = _progress(BreakerState(counted=1, at_any_share=1), BreakerSettings()).reason
    assert state(f"{reason}.").startswith("loss 未回落，已计 1 个点") and "(" not in state(reason)
    assert "已计 1 个点，满 100 个点即触发（截至第 2,291 步）" in state(f"{reason} (at step 2,291).")


def test_what_is_not_known_wholly_keeps_its_english():
    assert state("Running backwards.") == "运行中（Running backwards.）"
    assert state("Something else.") == "Something else."
