"""A page is never taken for one that was told before, nor told after its trouble is over, nor kept from a new target; secrets stay secret."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from urllib.parse import quote

import pytest
from notices import DIVERGENCE, notice
from test_compose import CHANGE, KNOWN
from test_policy import DAY, MORNING, NIGHT, PAGER, TEAM, at, told

from trainvitals.alerts.compose import compose
from trainvitals.alerts.http import MAX_ANSWER_BYTES, Answer
from trainvitals.alerts.notice import NoticeKind
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.policy import Policy
from trainvitals.alerts.secret import Credentials, Secret
from trainvitals.alerts.sentences import SENTENCES
from trainvitals.alerts.targets.pagerduty import PagerDuty
from trainvitals.alerts.targets.protocol import by_code, by_status, shortened
from trainvitals.alerts.targets.slack import Slack
from trainvitals.alerts.words import body, headline

TOKEN = "B8ZZqwertyuiopASDFGHJK12"


def test_a_run_that_begins_anew_under_its_name_is_another_incident_for_the_outbox(tmp_path):
    box = Outbox(str(tmp_path / "alerts.db"))
    again = replace(CHANGE, incident=replace(CHANGE.incident, opened_at_ns=CHANGE.incident.opened_at_ns + 3 * 86_400 * 10**9))
    assert box.enqueue(compose(CHANGE, KNOWN), "pager")
    assert not box.enqueue(compose(CHANGE, KNOWN), "pager")
    assert box.enqueue(compose(again, KNOWN), "pager")
    box.close()


def test_a_summary_of_other_things_is_another_message_although_its_number_begins_anew():
    ids = []
    for night in ("a", "b"):
        policy = Policy({"team": TEAM})  # its state was lost
        for number in range(3):
            policy.take(notice("opened", f"{night}-{number}", "warning"), at(number, NIGHT))
        ids.append(policy.tick(at(5, MORNING))[0].notice.id)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("kind", ["slack", "pagerduty"])
def test_a_warning_that_waited_is_not_told_in_the_morning_when_it_was_told_as_critical_meanwhile(kind):
    policy = Policy({"t": replace(TEAM, kind=kind, repeat_s=0)})
    assert policy.take(notice("opened", severity="warning"), at(0, NIGHT)) == []
    assert told(policy.take(notice("escalated"), at(60, NIGHT))) == [("t", "escalated")]
    assert told(policy.take(notice("recovered"), at(600, NIGHT))) == [("t", "recovered")]
    assert policy.tick(at(1, MORNING)) == []


def test_the_same_holds_for_a_flood_and_the_others_in_it_are_told():
    policy = Policy({"t": replace(TEAM, quiet_hours="", repeat_s=0)})
    for number in range(8):
        policy.take(notice("opened", f"inc-{number}", "warning"), at(0, DAY))
    assert told(policy.take(notice("escalated", "inc-7"), at(1, DAY))) == [("t", "escalated")]
    (one,) = policy.tick(at(61, DAY))
    assert one.notice.incident_id == "inc-6"


def test_a_new_target_is_told_once_of_what_is_critical_and_open():
    before = Policy({"pager": PAGER})
    before.take(notice("opened", "bad"), at(0))
    before.take(notice("opened", "mild", "warning"), at(0))
    before.take(notice("opened", "over"), at(0))
    before.take(notice("recovered", "over"), at(1))
    after = Policy({"pager": PAGER, "new": replace(PAGER, severities=("warning", "critical"))})
    after.restore(json.loads(json.dumps(before.to_state())))
    assert after.is_waiting(at(10))
    assert [(one.target, one.notice.incident_id) for one in after.tick(at(10))] == [("new", "bad")]
    assert after.tick(at(20)) == []
    assert told(after.take(notice("recovered", "bad"), at(30))) == [("pager", "recovered"), ("new", "recovered")]


def test_a_pager_that_was_told_of_it_in_the_day_is_told_in_the_morning_that_it_is_over():
    policy = Policy({"pd": replace(TEAM, kind="pagerduty", repeat_s=0)})
    assert told(policy.take(notice("opened", severity="warning"), at(0, DAY))) == [("pd", "opened")]
    for kind, number in (("recovered", 1), ("reopened", 1), ("recovered", 2)):
        assert policy.take(notice(kind, severity="warning", number=number), at(1, NIGHT)) == []
    assert told(policy.tick(at(2, MORNING))) == [("pd", "recovered")]


def test_reminders_leave_places_in_a_minute_to_what_is_new():
    policy = Policy({"pager": replace(PAGER, repeat_s=600)})
    for number in range(9):
        policy.take(notice("opened", f"inc-{number}"), at(number * 30))
    assert len(policy.tick(at(900))) == 3
    assert told(policy.take(notice("opened", "new"), at(901))) == [("pager", "opened")]


@pytest.mark.parametrize("rule", sorted(SENTENCES))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_value_that_is_no_number_is_told_too(rule, value, language):
    for expected in (None, 3.0, value):
        one = replace(DIVERGENCE, rule=rule, value=value, expected=expected, metric="")
        assert headline(one, language) and body(one, language)


def test_a_pager_gets_no_signs_of_a_runs_name_that_cannot_be_seen():
    held = Credentials(Secret(""), (Secret("R" * 32),))
    named = replace(DIVERGENCE, run="a\u202eb\x1b[31mc", kind=NoticeKind.OPENED)
    sent = PagerDuty().letter(named, body(named), held, "id", 0).body.decode()
    assert "\u202e" not in sent and "u001b" not in sent and "u202e" not in sent.replace("\\", "")


def test_a_test_that_was_refused_is_no_page_that_was_missed(tmp_path):
    box = Outbox(str(tmp_path / "alerts.db"))
    for kind, number in ((NoticeKind.TEST, 0), (NoticeKind.OPENED, 1)):
        box.enqueue(replace(DIVERGENCE, id=f"n{number}", kind=kind), "t")
        claim = box.claim("t", 60)
        box.settle(claim, "permanent", status=404, duration_ms=1.0, error="no", wait_s=None)
        assert box.health(["t"])[0].dead == number
    box.close()


def said(form: str, padding: int) -> bytes:
    return ("x" * padding + " cannot POST " + form).encode()


FORMS = [
    f"/hook/{TOKEN}", f"/HOOK/{TOKEN.upper()}", quote(f"/hook/{TOKEN}", safe=""), json.dumps({"e": f"/hook/{TOKEN}-"}),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("padding", [0, 150, 165, 180, 250, 1_990, 2_010, 2_020])
def test_no_part_of_an_address_that_a_receiver_echoes_is_kept(form, padding):
    held = Credentials(Secret(f"https://hooks.example/hook/{TOKEN}"))
    answered = said(form, padding)[:MAX_ANSWER_BYTES]
    for status, judge in ((404, by_status), (200, lambda answer: by_code(answer, "code", frozenset())), (200, Slack().verdict)):
        error = shortened(held.mask(judge(Answer(status, answered)).error)).lower()
        assert not any(TOKEN[at : at + 6].lower() in error for at in range(len(TOKEN) - 6)), error


def test_a_secret_with_signs_is_masked_however_it_is_quoted():
    held = Credentials(Secret("https://x.example/"), (Secret('a-b_c/d+e"é='),))
    for form in (
        'A-B_C/D+E"é=',
        quote('a-b_c/d+e"é='),
        quote('a-b_c/d+e"é=', safe=""),
        "a%2Db%5Fc%2Fd%2Be%22%C3%A9%3D",
        'a-b_c\\/d+e"é=',
        json.dumps('a-b_c/d+e"é='),
    ):
        assert held.mask(f"<{form.strip()}>").strip('<>"') == "***", form
