"""What quiet hours hold back lies with the watchdogs: lists that do not have it say at least until when."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from trainvitals import settings as settings_module
from trainvitals.alerts.outbox_rows import TargetHealth
from trainvitals.alerts.quiet import held_until
from trainvitals.cli.alert import _target_line
from trainvitals.settings_alerts import TargetSettings
from trainvitals.web.alerts_view import alerts_view, state_words


def at(hour: int, minute: int = 0) -> int:
    return int(datetime(2026, 11, 30, hour, minute, tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize(("hour", "said"), [(23, "07:00 (UTC)"), (6, "07:00 (UTC)"), (7, ""), (12, "")])
def test_a_target_is_quiet_until_its_hours_are_over(hour: int, said: str) -> None:
    assert held_until(TargetSettings(kind="webhook", quiet_hours="22:00-07:00"), at(hour)) == said


def test_the_hours_are_those_of_the_targets_own_zone_and_without_hours_nothing_waits() -> None:
    target = TargetSettings(kind="webhook", quiet_hours="22:00-07:30", quiet_timezone="Asia/Shanghai")
    assert held_until(target, at(16)) == "07:30 (Asia/Shanghai)" and held_until(target, at(0)) == ""
    assert held_until(TargetSettings(kind="webhook"), at(3)) == ""


def test_the_list_and_the_page_say_until_when_a_quiet_target_is_told_of_what_is_critical_only() -> None:
    now = datetime.now(UTC)
    hours = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=1):%H:%M}"
    chatty = {"kind": "webhook", "url_file": "/dev/null", "quiet_hours": hours}
    settings = settings_module.parse({"alerts": {"targets": {"chatty": chatty}}})
    until = f"{now + timedelta(hours=1):%H:%M} (UTC)"
    assert _target_line(settings, TargetHealth("chatty")).endswith(f"what is not critical is held by the watchdog until {until}")
    (view,) = alerts_view(settings, (), ()).targets
    assert state_words(view, settings.alert_targets["chatty"], time.time_ns()).endswith(f"held until {until}")
    assert state_words(view, None, time.time_ns()) == "not used yet"
