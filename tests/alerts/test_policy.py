"""Who is told what and when."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from notices import T0_NS, notice

from trainvitals.alerts.notice import NoticeKind, Verb
from trainvitals.alerts.policy import PER_MINUTE, Now, Policy
from trainvitals.settings_alerts import TargetSettings

S = 10**9
PAGER = TargetSettings(kind="webhook", url="https://pager")
TEAM = TargetSettings(
    kind="slack",
    url="https://team",
    severities=("warning", "critical"),
    quiet_hours="22:00-07:00",
    quiet_timezone="Asia/Shanghai",
)


def at(seconds: float = 0.0, wall_ns: int = T0_NS) -> Now:
    return Now(wall_ns + round(seconds * S), T0_NS + round(seconds * S))


def wall(text: str, zone: str = "Asia/Shanghai") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * S


def told(deliveries) -> list[tuple[str, str]]:
    return [(one.target, one.notice.kind.value) for one in deliveries]


DAY = wall("2027-01-15T12:00:00")
NIGHT = wall("2027-01-15T23:30:00")
MORNING = wall("2027-01-16T07:00:00")


def test_each_target_hears_of_its_severities_and_runs_only():
    other = replace(PAGER, runs=("gpt-*",))
    policy = Policy({"pager": PAGER, "team": TEAM, "other": other})
    assert told(policy.take(notice("opened", severity="warning"), at(0, DAY))) == [("team", "opened")]
    assert told(policy.take(notice("escalated"), at(1, DAY))) == [("pager", "escalated"), ("team", "escalated")]
    assert told(policy.take(notice("opened", "inc-2", run="gpt-9"), at(2, DAY))) == [
        ("pager", "opened"), ("team", "opened"), ("other", "opened"),
    ]  # fmt: skip


def test_what_is_over_is_told_to_those_only_who_were_told_that_it_began():
    quiet = replace(PAGER, send_recovered=False)
    policy = Policy({"pager": PAGER, "team": TEAM, "mute": quiet})
    policy.take(notice("opened", severity="warning"), at(0, DAY))
    assert told(policy.take(notice("recovered", severity="warning"), at(9, DAY))) == [("team", "recovered")]
    policy.take(notice("opened", "inc-2"), at(10, DAY))
    assert told(policy.take(notice("recovered", "inc-2"), at(19, DAY))) == [("pager", "recovered"), ("team", "recovered")]
    assert policy.take(notice("recovered", "inc-2", number=2), at(20, DAY)) == []


def test_an_incident_that_was_told_as_critical_is_not_told_again_as_escalated():
    policy = Policy({"pager": PAGER})
    assert len(policy.take(notice("opened"), at(0))) == 1
    assert policy.take(notice("escalated"), at(1)) == []
    assert len(policy.take(notice("escalated"), at(2), is_apart=True)) == 1, "another trouble joined it"


def test_quiet_hours_keep_what_is_not_critical_and_end_in_one_summary():
    policy = Policy({"team": replace(TEAM, repeat_s=0)})
    for number in range(3):
        assert policy.take(notice("opened", f"inc-{number}", "warning"), at(number, NIGHT)) == []
    assert policy.take(notice("recovered", "inc-0", "warning"), at(5, NIGHT)) == []
    assert told(policy.take(notice("opened", "inc-9"), at(6, NIGHT))) == [("team", "opened")], "critical is told at once"
    assert policy.tick(at(8, MORNING - 10 * S)) == []
    (one,) = policy.tick(at(27_000, MORNING - 27_000 * S))
    assert one.notice.kind is NoticeKind.SUMMARY
    assert [item.kind.value for item in one.notice.items] == ["opened", "opened", "opened", "recovered"]
    assert policy.tick(at(27_001, MORNING)) == []


def test_a_single_notice_that_waited_is_told_as_it_is():
    policy = Policy({"team": TEAM})
    first = notice("opened", severity="warning")
    policy.take(first, at(0, NIGHT))
    (one,) = policy.tick(at(1, MORNING))
    assert one.notice == first


def test_what_got_critical_in_quiet_hours_is_over_at_once_too():
    policy = Policy({"team": TEAM})
    policy.take(notice("opened", severity="warning"), at(0, NIGHT))
    assert told(policy.take(notice("escalated"), at(1, NIGHT))) == [("team", "escalated")]
    assert told(policy.take(notice("recovered"), at(2, NIGHT))) == [("team", "recovered")]


def test_a_pager_gets_what_is_still_open_in_the_morning_one_by_one():
    policy = Policy({"pd": replace(TEAM, kind="pagerduty")})
    for incident in ("a", "b"):
        policy.take(notice("opened", incident, "warning"), at(0, NIGHT))
    policy.take(notice("recovered", "a", "warning"), at(1, NIGHT))
    assert [(one.notice.incident_id, one.notice.kind.value) for one in policy.tick(at(2, MORNING))] == [("b", "opened")]


def test_an_open_incident_is_told_again_until_somebody_has_it():
    policy = Policy({"pager": replace(PAGER, repeat_s=600)})
    policy.take(notice("opened"), at(0))
    assert policy.tick(at(599)) == []
    (first,) = policy.tick(at(600))
    assert (first.notice.kind, first.notice.number) == (NoticeKind.REMINDER, 1)
    assert policy.tick(at(601)) == []
    (second,) = policy.tick(at(1200))
    assert second.notice.number == 2
    assert second.notice.id != first.notice.id
    assert told(policy.take(notice("acknowledged", acknowledged_by="ann"), at(1300))) == [("pager", "acknowledged")]
    assert policy.tick(at(9_999)) == []
    assert told(policy.take(notice("recovered"), at(10_000))) == [("pager", "recovered")]


def test_no_reminder_when_none_is_wanted():
    policy = Policy({"pager": replace(PAGER, repeat_s=0)})
    policy.take(notice("opened"), at(0))
    assert policy.tick(at(10**7)) == []


def test_a_warning_that_waits_for_the_morning_is_no_reason_for_reminders_in_the_night():
    policy = Policy({"team": replace(TEAM, repeat_s=60)})
    policy.take(notice("opened", severity="warning"), at(0, DAY))
    for minute in range(1, 60):
        assert policy.tick(at(60 * minute, NIGHT)) == []
    deliveries = policy.tick(at(60 * 600, MORNING))
    assert len([one for one in deliveries if one.notice.kind is NoticeKind.SUMMARY]) == 1


def test_a_second_target_is_told_when_nobody_has_it_in_time():
    targets = {
        "pager": replace(PAGER, escalate_to="boss", escalate_after_s=900, repeat_s=0),
        "boss": replace(PAGER, severities=()),
    }
    policy = Policy(targets)
    first = notice("opened")
    policy.take(first, at(0))
    assert policy.tick(at(899)) == []
    (one,) = policy.tick(at(900))
    assert (one.target, one.notice.id) == ("boss", first.id)
    assert policy.tick(at(5_000)) == []
    assert told(policy.take(notice("recovered"), at(5_001))) == [("pager", "recovered"), ("boss", "recovered")]


def test_whoever_has_it_in_time_keeps_the_second_target_asleep():
    targets = {
        "pager": replace(PAGER, escalate_to="boss", escalate_after_s=900, repeat_s=0),
        "boss": replace(PAGER, severities=()),
    }
    policy = Policy(targets)
    policy.take(notice("opened"), at(0))
    policy.note("inc-1", silenced_until_ns=0, acknowledged_by="ann")
    assert policy.tick(at(100_000)) == []


def test_a_silenced_incident_is_told_when_the_silence_ends_and_it_is_still_open():
    policy = Policy({"pager": PAGER})
    assert policy.take(notice("opened"), at(0), silenced_until_ns=T0_NS + 100 * S) == []
    assert policy.tick(at(99)) == []
    assert told(policy.tick(at(100))) == [("pager", "opened")]
    other = Policy({"pager": PAGER})
    other.take(notice("opened"), at(0), silenced_until_ns=T0_NS + 100 * S)
    assert other.take(notice("recovered"), at(50)) == []
    assert other.tick(at(101)) == []


def test_a_silence_that_begins_later_stops_reminders():
    policy = Policy({"pager": replace(PAGER, repeat_s=60)})
    policy.take(notice("opened"), at(0))
    policy.note("inc-1", silenced_until_ns=T0_NS + 1_000 * S, acknowledged_by="")
    assert policy.tick(at(500)) == []
    assert told(policy.tick(at(1_000))) == [("pager", "reminder")]


def test_a_flood_ends_in_one_summary_and_a_page_gets_through_all_the_same():
    policy = Policy({"team": replace(TEAM, quiet_hours="")})
    sent = [one for n in range(500) for one in policy.take(notice("opened", f"inc-{n}", "warning"), at(n / 10))]
    assert len(sent) == PER_MINUTE
    assert told(policy.take(notice("opened", "grave"), at(50))) == [("team", "opened")]
    (one,) = policy.tick(at(61))
    assert one.notice.kind is NoticeKind.SUMMARY
    assert len(one.notice.items) + one.notice.more == 500 - PER_MINUTE
    assert one.notice.severity.value == "warning"


def test_a_restart_that_healed_is_a_line_of_the_days_summary():
    policy = Policy({"pager": PAGER, "pd": replace(PAGER, kind="pagerduty")})
    for number in (1, 2):
        healed = notice("recovered", f"death-{number}", rule="run_dead", verb=Verb.RECOVERED, at_ns=NIGHT, opened_at_ns=NIGHT)
        assert policy.take(healed, at(number, NIGHT), is_healed=True) == []
    assert policy.tick(at(0, wall("2027-01-16T08:59:00", "UTC"))) == []
    (one,) = policy.tick(at(0, wall("2027-01-16T09:00:00", "UTC")))
    assert (one.target, one.notice.kind, len(one.notice.items)) == ("pager", NoticeKind.SUMMARY, 2)


def test_the_state_goes_through_json_and_goes_on_exactly():
    policy = Policy({"pager": replace(PAGER, repeat_s=60), "team": TEAM})
    policy.take(notice("opened", severity="warning"), at(0, NIGHT))
    policy.take(notice("opened", "inc-2"), at(1, NIGHT))
    policy.tick(at(70, NIGHT))
    other = Policy({"pager": replace(PAGER, repeat_s=60), "team": TEAM})
    other.restore(json.loads(json.dumps(policy.to_state())))
    for seconds, base in ((130, NIGHT), (200, MORNING)):
        assert policy.tick(at(seconds, base)) == other.tick(at(seconds, base))
    assert policy.take(notice("recovered", "inc-2"), at(300)) == other.take(notice("recovered", "inc-2"), at(300))
    assert policy.to_state() == other.to_state()


def test_a_target_that_is_no_longer_named_is_told_nothing():
    policy = Policy({"pager": replace(PAGER, repeat_s=60, escalate_to="team"), "team": TEAM})
    policy.take(notice("opened"), at(0, DAY))
    other = Policy({})
    other.restore(json.loads(json.dumps(policy.to_state())))
    assert other.tick(at(10_000, DAY)) == []
    assert other.take(notice("escalated"), at(10_001, DAY)) == []
    assert other.take(notice("recovered"), at(10_002, DAY)) == []
