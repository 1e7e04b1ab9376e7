"""The breaker pauses a trainer a moment after people were woken: they are told that it holds now, and are not woken again."""

from __future__ import annotations

import json

import pytest
from test_alerting import Night

from trainvitals.alerts.words import body, headline
from trainvitals.clock import ManualClock
from trainvitals.control.view import ControlState
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.settings import parse
from trainvitals.watch.alert_facts import AlertFacts, Seen
from trainvitals.watch.alerting import PAUSED_WITHIN_NS, Alerting

S = 10**9
NOW_NS = ManualClock().time_ns()
SICK = Finding(
    "f1",
    "loss_divergence",
    "loss",
    Severity.CRITICAL,
    900,
    940,
    None,
    1,
    NOW_NS,
    3.4,
    2.3,
    "loss 2.30 → 3.40 since step 900",
    True,
)
TRIP = Finding(
    "trip", "breaker_trip", "breaker", Severity.CRITICAL, 940, 943, None, 1, NOW_NS, None, None, "the breaker trips", True
)
BEFORE = Incident(
    "llama/loss/1", "llama", "loss", Severity.CRITICAL, ("loss_divergence",), ("f1",), 900, None, NOW_NS, NOW_NS, None, SICK.message, ""
)  # fmt: skip
INCIDENT = Incident(
    "llama/loss/1", "llama", "loss", Severity.CRITICAL, ("loss_divergence", "breaker_trip"), ("f1", "trip"), 900, None, NOW_NS, NOW_NS, None,
    SICK.message, "",
)  # fmt: skip
PAUSED = Event(
    "breaker", NOW_NS, step=943, attempt=1, id="e", severity=Severity.CRITICAL, source="watch",
    text="asked the trainer to pause at step 943: 40 points in a row", data={"decision": "paused", "finding": "trip", "reason": "40 points in a row"},
)  # fmt: skip
SEEN = Seen(last_step=943, last_step_ns=NOW_NS, breaker="armed")


class Box:
    def __init__(self):
        self.given = []

    def enqueue(self, notice, target, not_before_ns=0):
        self.given.append((target, notice))
        return True


class Desk:
    """One ``Alerting`` with a trainer whose state a test sets. team takes warnings only in the day."""

    def __init__(self):
        self.clock, self.box, self.state, self.steady_ns = ManualClock(), Box(), "running", 10**12
        self.settings = parse(
            {
                "store": "sqlite:///nowhere/store.db", "runs": [{"name": "llama", "dir": "/nowhere"}],
                "alerts": {"targets": {"pager": {"kind": "webhook", "url": "https://pager.example", "quiet_hours": "00:00-23:59"}}},
            }
        )  # fmt: skip
        self.alerting = self.start()

    def start(self):
        run = self.settings.runs[0]
        facts = AlertFacts(
            self.settings,
            run,
            lambda _dir, _now: ControlState(self.state, "The trainer is paused.", True),
        )
        self.alerting = Alerting(self.settings, run, self.box, self.clock, lambda _text: None, facts=facts)
        self.alerting.found(SICK)
        return self.alerting

    def poll(self, *changes, incident=INCIDENT, seconds=1):
        self.clock.advance(seconds)
        self.steady_ns += seconds * S
        events = self.alerting.poll(list(changes), [incident], SEEN, self.steady_ns)
        self.alerting.flush()
        return events

    @property
    def told(self):
        return [(notice.severity.value, notice.kind.value) for _, notice in self.box.given]


OPENED = IncidentChange(BEFORE, ChangeKind.OPENED, 1, NOW_NS, "loss_divergence")


def test_whoever_was_told_before_the_pause_is_told_that_it_holds_once_and_not_as_a_second_page():
    desk = Desk()
    desk.poll(OPENED, incident=BEFORE)
    desk.alerting.take(PAUSED)
    desk.poll()
    assert desk.told == [("critical", "opened")], "it was asked to pause, and does not hold yet"
    desk.state = "paused"
    for _ in range(5):
        desk.poll()
    assert desk.told == [("critical", "opened"), ("info", "paused")]
    notice = desk.box.given[-1][1]
    assert notice.incident_id == INCIDENT.id
    assert headline(notice).startswith("PAUSED llama: loss 2.30 → 3.40 since step 900") and "(the breaker paused it)" in headline(
        notice
    )
    assert "（熔断已暂停训练）" in headline(notice, "zh") and headline(notice, "zh").startswith("【训练已暂停】")
    assert dict(body(notice).lines)["Breaker"].startswith("asked the trainer to pause at step 943")


def test_a_kill_between_the_request_and_the_pause_loses_nothing_and_tells_nothing_twice():
    desk = Desk()
    desk.poll(OPENED, incident=BEFORE)
    desk.alerting.take(PAUSED)
    desk.poll()
    state = json.loads(json.dumps(desk.alerting.to_state()))
    desk.state = "paused"
    ids = []
    for _ in range(2):
        desk.start()
        desk.alerting.restore(state)
        desk.box.given.clear()
        desk.poll()
        ids.append([notice.id for _, notice in desk.box.given])
    assert ids[0] == ids[1] and len(ids[0]) == 1, "the outbox takes the same message once"


def test_a_first_message_that_says_paused_already_is_all():
    desk = Desk()
    desk.state = "paused"
    desk.alerting.take(PAUSED)
    desk.poll(OPENED)
    desk.poll()
    assert desk.told == [("critical", "opened")] and headline(desk.box.given[0][1]).startswith("PAUSED llama: ")


@pytest.mark.parametrize("decision", ["would_pause", "refused", "stale", "count", "hold"])
def test_what_paused_nothing_is_no_message(decision):
    desk = Desk()
    desk.poll(OPENED, incident=BEFORE)
    desk.alerting.take(
        Event("breaker", NOW_NS, step=943, source="watch", text="x", data={"decision": decision, "finding": "trip"})
    )
    desk.state = "paused"
    desk.poll()
    assert desk.told == [("critical", "opened")]


def test_a_trainer_that_does_not_come_to_hold_is_waited_for_only_so_long():
    desk = Desk()
    desk.poll(OPENED, incident=BEFORE)
    desk.alerting.take(PAUSED)
    desk.poll()
    desk.poll(seconds=PAUSED_WITHIN_NS // S + 1)
    desk.state = "paused"
    desk.poll()
    assert desk.told == [("critical", "opened")] and desk.alerting.to_state()["pauses"] == {}


def test_a_whole_watchdog_says_still_open_when_the_next_attempt_is_sick_before_the_end_of_the_first_was_told(tmp_path):
    night = Night(tmp_path)
    try:
        night.begin()
        night.train(0, 100)
        night.watchdog.turn()
        night.train(100, 10, float("nan"))
        night.pass_time(1, 3)
        assert night.told() == ["opened"]
        night.train(110, 100)
        night.pass_time(1, 3)
        night.clock.advance(1)
        night.begin()  # another start, from far before
        night.train(20, 100)
        night.watchdog.turn()
        for part in range(10):
            night.train(120 + 20 * part, 20, float("nan"))
            night.pass_time(1, 2)
        told = [(notice.kind.value, notice.verb.value) for notice in night.notices()]
        assert told == [("opened", "TRAINING-SICK"), ("recovered", "STILL-OPEN"), ("opened", "TRAINING-SICK")]
        (over,) = [text for text in night.said if text.startswith("incident recovered")]
        assert over.endswith("; but still open: 1 critical")
    finally:
        night.door.store.close()
        night.box.outbox.close()
