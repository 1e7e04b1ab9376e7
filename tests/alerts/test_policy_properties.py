"""What holds of the policy whatever happens: no page lost, none twice, clocks that jump, summer time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st
from notices import T0_NS, notice

from trainvitals.alerts.notice import NoticeKind
from trainvitals.alerts.policy import Now, Policy
from trainvitals.alerts.quiet import day, is_quiet
from trainvitals.settings_alerts import TargetSettings

S = 10**9
TARGETS = {
    "pager": TargetSettings(kind="webhook", repeat_s=600, escalate_to="second", escalate_after_s=300),
    "second": TargetSettings(kind="webhook", severities=(), repeat_s=0),
    "team": TargetSettings(kind="feishu", severities=("info", "warning", "critical"), quiet_hours="22:00-07:00", quiet_timezone="Asia/Shanghai"),
    "pd": TargetSettings(kind="pagerduty", severities=("warning", "critical"), quiet_hours="01:30-02:30", quiet_timezone="Europe/Berlin"),
}  # fmt: skip
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["opened", "escalated", "acknowledged", "recovered", "reopened", "healed", "tick", "silence", "restart"]),
        st.sampled_from("abc"), st.sampled_from(["warning", "critical"]), st.integers(0, 4_000), st.integers(-100_000, 100_000),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(ACTS)
def test_nothing_is_told_twice_and_a_critical_opening_is_told_at_once_or_in_a_summary(acts):
    policy = Policy(TARGETS)
    steady, offset, number, seen, opened = T0_NS, 0, 0, set(), set()
    for act, incident, severity, pause_s, jump_s in acts:
        steady += pause_s * S
        offset += jump_s * S if abs(jump_s) > 90_000 else 0
        now, number = Now(steady + offset, steady), number + 1
        if act == "restart":
            state = json.loads(json.dumps(policy.to_state()))
            policy = Policy(TARGETS)
            policy.restore(state)
            continue
        if act == "tick":
            deliveries = policy.tick(now)
        elif act == "silence":
            policy.note(incident, silenced_until_ns=now.wall_ns + 100 * S, acknowledged_by="")
            deliveries = []
        else:
            kind = "recovered" if act == "healed" else act
            one = notice(kind, incident, severity, number, at_ns=now.wall_ns, opened_at_ns=now.wall_ns)
            deliveries = policy.take(one, now, is_healed=act == "healed")
            if kind == "opened" and severity == "critical":
                opened.add(one.id)
        for delivery in deliveries:
            key = (delivery.target, delivery.notice.id)
            assert key not in seen, f"told twice: {act}"
            seen.add(key)
            assert delivery.target in TARGETS
            if delivery.notice.kind is NoticeKind.REMINDER:
                assert act == "tick"
    last = Now(steady + offset + 3 * 86_400 * S, steady + 3 * 86_400 * S)
    before = len(policy.open_incidents)
    policy.tick(last)
    assert len(policy.open_incidents) == before
    assert not policy.to_state()["quiet"] or is_quiet(TARGETS["team"], last.wall_ns) or is_quiet(TARGETS["pd"], last.wall_ns)
    assert not policy.to_state()["flood"]


@given(st.integers(0, 366 * 24 * 60), st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "UTC"]),
       st.integers(0, 1439), st.integers(0, 1439))  # fmt: skip
def test_quiet_is_what_the_clock_on_the_wall_says(minute, zone, start, end):
    target = TargetSettings(
        kind="slack", quiet_hours=f"{start // 60:02d}:{start % 60:02d}-{end // 60:02d}:{end % 60:02d}", quiet_timezone=zone
    )
    moment = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    local = moment.astimezone(ZoneInfo(zone))
    now = local.hour * 60 + local.minute
    inside = start != end and ((start <= now < end) if start < end else (now >= start or now < end))
    assert is_quiet(target, round(moment.timestamp()) * S) == inside
    assert day(target, round(moment.timestamp()) * S) <= local.date().isoformat()


def test_in_the_night_of_a_change_what_was_kept_is_told_when_the_hours_end_on_the_wall():
    target = replace(TARGETS["pd"], kind="slack")  # 01:30-02:30 in Berlin; 02:00 to 03:00 does not exist on 2027-03-28
    spring = int(datetime(2027, 3, 28, 0, 29, tzinfo=UTC).timestamp()) * S
    assert not is_quiet(target, spring)
    assert is_quiet(target, spring + 60 * S)
    assert not is_quiet(target, spring + 31 * 60 * S), "02:00 is 03:00 there"
    autumn = int(datetime(2027, 10, 31, 0, 15, tzinfo=UTC).timestamp()) * S  # 02:15, the first time
    assert is_quiet(target, autumn)
    assert not is_quiet(target, autumn + 20 * 60 * S), "02:35"
    assert is_quiet(target, autumn + 3_600 * S), "02:15, the second time"


def test_a_clock_that_is_set_back_a_year_stops_no_reminder():
    policy = Policy({"pager": TARGETS["pager"]})
    year = 365 * 86_400 * S
    policy.take(notice("opened"), Now(T0_NS, T0_NS))
    state = policy.to_state()
    policy.restore(state)
    assert policy.tick(Now(T0_NS - year, T0_NS - year)) == []
    assert [one.notice.kind for one in policy.tick(Now(T0_NS - year, T0_NS - year + 600 * S))] == [NoticeKind.REMINDER]
