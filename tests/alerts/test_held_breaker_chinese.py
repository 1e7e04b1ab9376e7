"""A Chinese message says in Chinese what holds an armed breaker, whatever it is; and a kept message with an older title stays Chinese."""

from __future__ import annotations

import re

import pytest

from trainvitals.alerts.findings_zh import state, title
from trainvitals.alerts.fragments_zh import is_wholly_known
from trainvitals.detect.breaker import BreakerState, obstacle
from trainvitals.settings import BreakerSettings

H = 3_600 * 10**9
NOW = 1_795_000_000 * 10**9
#: English that people on call say in Chinese sentences, too, and the name of a setting.
TERMS = {"loss", "nan", "inf", "warmup", "utc", "breaker", "pauses", "per", "day"}
FINITE_ONLY = "; a loss that is no number pauses all the same"


def words(state: BreakerState, limits: BreakerSettings, *, is_lr_rising: bool = False) -> str:
    forbidden = obstacle(state, limits, NOW, is_lr_rising=is_lr_rising)
    assert forbidden is not None
    return forbidden.words


HELD = [
    words(BreakerState(pauses_ns=(NOW - 2 * H,)), BreakerSettings(pauses_per_day=1)),
    words(BreakerState(pauses_ns=(None,)), BreakerSettings(pauses_per_day=1)),
    words(BreakerState(), BreakerSettings(pauses_per_day=0)),
    words(BreakerState(cool_down=120), BreakerSettings()),
    words(BreakerState(since_start=12), BreakerSettings(quiet_start_points=200)) + FINITE_ONLY,
    words(BreakerState(since_start=9_999), BreakerSettings(), is_lr_rising=True) + FINITE_ONLY,
    "a note explains the loss for 1,200 more points, unless it blows up",
]


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("mode", ["armed", "dry-run"])
def test_what_holds_a_breaker_now_has_no_english_of_ours(mode: str, held: str) -> None:
    sentence = f"It is {mode} and has not tripped. It is held now: {held}."
    assert is_wholly_known(sentence)
    told = state(sentence)
    assert set(re.findall(r"[a-z]{2,}", told.lower())) <= TERMS, told
    assert "尚未触发；目前不会自动暂停：" in told
    for number in re.findall(r"[0-9][0-9,:]*", held):
        assert number in told, told


def test_the_title_of_an_older_message_is_still_told_in_chinese() -> None:
    assert title("Weights on the disk are no numbers") == "已保存的权重含 NaN/Inf"
    assert title("Damaged numbers in the weights on the disk") == "已保存的权重中有异常数值"
