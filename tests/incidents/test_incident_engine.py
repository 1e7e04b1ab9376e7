"""What is told of incidents: once, in time, and only what somebody has to hear of."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incident_night import CRITICAL, MINUTE_NS, SECOND_NS, WARNING, Night, a_finding, a_silence

from trainvitals.detect.engine import Engine
from trainvitals.detect.rules import MENDED_BY_SUPERVISOR, RULES, who_is_told
from trainvitals.incidents.engine import IncidentEngine
from trainvitals.incidents.grouping import GROUPS, MAX_FINDINGS
from trainvitals.incidents.mending import MENDABLE
from trainvitals.incidents.suppression import SUPPRESSIONS
from trainvitals.records import Severity, Step


def test_a_warning_is_opened_once_and_over_after_a_while():
    night = Night()
    night.find()
    assert night.words() == [("opened", "warning", 1)]
    assert night.words(10) == []
    night.find(is_open=False)
    assert night.words(60) == []
    assert night.words(70) == [("recovered", "warning", 1)]
    assert night.words(10_000) == []


def test_what_becomes_critical_is_escalated_once():
    night = Night()
    night.find()
    night.words()
    night.find("loss_divergence", CRITICAL, step=150)
    changes = night.told()
    assert [(one.kind.value, one.rule) for one in changes] == [("escalated", "loss_divergence")]
    night.find("grad_norm_spike", CRITICAL, step=160)
    assert night.words(10) == []


def test_trouble_that_comes_back_at_once_is_no_second_message_and_each_return_waits_longer():
    night = Night()
    night.find()
    night.words()
    for _ in range(10):
        night.find(is_open=False)
        assert night.words(100) == []
        night.find()
        assert night.words(10) == []
    night.find(is_open=False)
    assert night.words(1_799) == [] and night.words(2) == [("recovered", "warning", 1)]


def test_trouble_that_comes_back_after_its_end_was_told_is_told_as_the_same_incident():
    night = Night()
    first = night.find()[0]
    night.words()
    night.engine.acknowledge(first.id, "ana", "", night.now_ns)
    night.words()
    night.find(is_open=False)
    assert night.words(130) == [("recovered", "warning", 1)]
    again = night.find(step=180)[0]
    assert again.id == first.id and again.acknowledged_by == ""
    assert night.words() == [("reopened", "warning", 1)]


def test_what_is_over_at_once_is_told_all_the_same():
    night = Night()
    night.find("loss_not_learning", is_open=False)
    assert night.words() == [("opened", "warning", 1)]
    assert night.words(121) == [("recovered", "warning", 1)]


def test_what_was_long_over_when_it_was_read_sends_nobody_looking():
    night = Night()
    long_ago_ns = night.now_ns - 3 * 3600 * SECOND_NS
    night.engine.add(a_finding("loss_divergence", CRITICAL), long_ago_ns)
    night.engine.add(a_finding("loss_divergence", CRITICAL, is_open=False), long_ago_ns + MINUTE_NS)
    changes = night.told()
    assert [(one.kind.value, one.is_healed) for one in changes] == [("recovered", True)]


def test_the_storm_of_five_hundred_steps_that_are_no_numbers_is_one_incident():
    detectors, night = Engine("r", {}), Night()
    changes, incidents = [], set()
    for step in range(1_000):
        is_bad = step >= 500
        record = Step(step, 1, night.now_ns, {} if is_bad else {"loss": 2.0}, {"loss": "nan"} if is_bad else {})
        for finding in detectors.update(record):
            incidents |= {incident.id for incident in night.engine.add(finding, night.now_ns)}
        changes += night.told(1)
    assert len(incidents) == 1
    kinds = [change.kind.value for change in changes]
    assert kinds in (["opened"], ["opened", "escalated"])
    assert changes[-1].incident.severity is CRITICAL


def test_five_hundred_findings_of_forty_rules_in_a_minute_are_a_few_incidents_and_messages():
    night = Night()
    rules = list(RULES)
    changes, incidents = [], set()
    for number in range(500):
        rule = rules[number % len(rules)]
        severity = (WARNING, CRITICAL)[number % 3 == 0]
        incidents |= {one.id for one in night.find(rule, severity, step=100 + number, is_open=number % 2 == 0)}
        changes += night.told(0.12)
    groups = {GROUPS.get(rule.family, rule.family) for rule in RULES.values()}
    assert len(incidents) <= len(groups)
    assert len(changes) <= 2 * len(groups)
    assert all(len(one.finding_ids) <= MAX_FINDINGS for one in night.engine.open_incidents)


def test_without_steps_nothing_is_said_of_their_pace_or_of_saves_that_are_late():
    night = Night()
    night.find("stall", CRITICAL)
    assert night.words() == [("opened", "critical", 1)]
    assert night.find("checkpoint_overdue", step=110) == []
    assert night.find("straggler", step=111) == []
    assert night.words(5_000) == []
    night.find("straggler", step=111, is_open=False)
    night.find("stall", CRITICAL, is_open=False)
    assert night.words(30) == []  # it mostly ends right after
    told = [(one.kind.value, one.rule) for one in night.told(100)]
    assert told == [("recovered", "stall"), ("opened", "checkpoint_overdue")]


def test_trouble_that_is_graver_than_what_explains_it_is_told():
    night = Night()
    night.find("stall", WARNING)
    night.words()
    assert night.find("straggler", WARNING, step=110) == []
    assert night.find("straggler", CRITICAL, step=110) != []
    assert night.words() == [("opened", "critical", 1)]


def test_a_spike_beside_a_loss_that_is_no_number_tells_nothing_more():
    night = Night()
    night.find("loss_nonfinite", CRITICAL)
    assert night.words() == [("opened", "critical", 1)]
    night.find("loss_spike", WARNING, step=101)
    night.find("grad_norm_nonfinite", WARNING, step=101)
    assert night.words(5) == []


# -- deaths and the supervisor ----------------------------------------------------------------------------------------


def test_a_death_without_a_supervisor_is_told_at_once():
    night = Night()
    night.find("run_dead", CRITICAL)
    assert night.words() == [("opened", "critical", 1)]


def test_a_death_that_the_supervisor_mends_is_a_line_and_no_message():
    night = Night(is_supervised=True)
    night.find("run_dead", CRITICAL)
    assert night.words(5) == []
    night.find("run_dead", CRITICAL, is_open=False)  # the trainer was started again
    assert night.words(200) == []  # it loads; that is no recovery yet
    night.engine.stepped(2)
    changes = night.told(1)
    assert [(one.kind.value, one.is_healed) for one in changes] == [("recovered", True)]
    assert night.words(10_000) == []


def test_a_death_that_is_not_mended_in_time_is_told():
    night = Night(is_supervised=True)
    night.find("run_dead", CRITICAL)
    assert night.words(599) == []
    assert night.words(2) == [("opened", "critical", 1)]


def test_a_restart_that_makes_no_step_in_time_is_told_and_so_is_its_end():
    night = Night(is_supervised=True)
    night.find("run_dead", CRITICAL)
    night.words(10)
    night.find("run_dead", CRITICAL, is_open=False)
    assert night.words(595) == [("opened", "critical", 1)]
    assert night.words(1_000) == []
    night.engine.stepped(2)
    assert night.words(1) == [("recovered", "critical", 1)]


@pytest.mark.parametrize("rule", ["restart_loop", "restart_failed"])
def test_a_supervisor_that_gives_up_is_told_at_once(rule):
    night = Night(is_supervised=True)
    night.find("run_dead", CRITICAL)
    assert night.words(5) == []
    night.find(rule, CRITICAL, step=101)
    assert night.words() == [("opened", "critical", 1)]


def test_a_supervisor_that_goes_away_holds_nothing_back():
    night = Night(is_supervised=True)
    night.find("out_of_memory", CRITICAL)
    assert night.words(5) == []
    night.is_supervised = False
    assert night.words() == [("opened", "critical", 1)]


def test_a_hang_is_told_also_with_a_supervisor_that_does_not_say_when_it_ends_one():
    night = Night(is_supervised=True)
    night.find("stall", CRITICAL)
    assert night.words() == [("opened", "critical", 1)]


def test_a_death_long_after_a_warning_is_held_back_from_when_it_died():
    night = Night(is_supervised=True)
    night.find("throughput_drop", WARNING)
    assert night.words() == [("opened", "warning", 1)]
    night.words(5_000)
    night.find("run_dead", CRITICAL, step=200)
    assert night.words(10) == []
    assert night.words(600) == [("escalated", "critical", 1)]


def test_of_deaths_in_a_row_each_that_was_told_is_told_to_be_over():
    night = Night()
    night.find("run_dead", CRITICAL)
    night.words()
    night.find("run_dead", CRITICAL, is_open=False)
    night.engine.stepped(2)
    night.words(5)
    night.find("run_dead", CRITICAL, step=120, attempt=2)
    kinds = [one[0] for one in night.words(1) + night.words(200)]
    assert sorted(kinds) == ["opened", "recovered"]


# -- bounds and state -------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["loss_spike", "loss_nonfinite", "run_dead", "stall", "checkpoint_overdue", "throughput_drop", "straggler"]),
        st.sampled_from(list(Severity)), st.booleans(), st.integers(1, 3), st.sampled_from([0, 1, 100, 700, 4000]),
        st.sampled_from(["", "step", "acknowledge", "silence", "unsilence", "supervisor"]),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(EVENTS, st.lists(st.integers(0, 39), max_size=5))
def test_an_engine_that_is_stored_and_read_at_any_point_tells_the_same(events, breaks):
    def play(breaks):
        night, rows, told = Night(), [], []
        for number, (rule, severity, is_open, attempt, wait_s, also) in enumerate(events):
            rows += night.find(rule, severity, step=100 * attempt, attempt=attempt, is_open=is_open)
            act(night, also, number)
            if number in breaks:
                state = json.loads(json.dumps(night.engine.to_state()))
                night.engine = IncidentEngine("r")
                night.engine.restore(state)
            told += night.told(wait_s)
        return rows, told

    def act(night, also, number):
        if also == "step":
            night.engine.stepped(3)
        elif also == "supervisor":
            night.is_supervised = not night.is_supervised
        elif also == "silence":
            night.engine.silence(replace(a_silence(night, 2000), id=f"silence-{number}"), night.now_ns)
        elif also == "unsilence" and night.engine.silences.all:
            night.engine.unsilence(night.engine.silences.all[0].id, night.now_ns)
        elif also == "acknowledge" and night.engine.open_incidents:
            night.engine.acknowledge(night.engine.open_incidents[0].id, "ana", "", night.now_ns)

    rows, told = play([])
    assert play(breaks) == (rows, told)
    names = [(one.incident.id, one.kind, one.number) for one in told]
    assert len(names) == len(set(names)), "no change has the name of another one"
    first = {}
    for change in told:
        first.setdefault(change.incident.id, change.kind.value)
        if change.kind.value == "escalated":
            assert first[change.incident.id] != "escalated"


def test_a_state_of_an_earlier_version_tells_nothing_again():
    night = Night()
    night.find("loss_divergence", CRITICAL)
    earlier = night.engine.to_state()["groups"]
    other = Night()
    other.engine.restore(json.loads(json.dumps(earlier)))
    assert other.words(10) == []
    other.find("loss_divergence", CRITICAL, is_open=False)
    assert other.words(121) == [("recovered", "critical", 1)]


def test_what_is_kept_stays_bounded_over_ten_thousand_deaths():
    night = Night()
    for attempt in range(1, 2_001):
        night.find("run_dead", CRITICAL, attempt=attempt)
        night.find("run_dead", CRITICAL, attempt=attempt, is_open=False)
    assert len(json.dumps(night.engine.to_state())) < 500_000


def test_a_clock_that_is_set_back_holds_nothing_up():
    night = Night()
    night.find()
    night.words()
    night.find(is_open=False)
    night.now_ns -= 7_200 * SECOND_NS
    assert night.words() == []
    assert night.words(121) == [("recovered", "warning", 1)]


def test_the_published_table_says_of_every_rule_who_is_told_and_what_a_supervisor_may_mend():
    assert MENDED_BY_SUPERVISOR == MENDABLE
    assert all(who_is_told(name) for name in RULES)
    assert who_is_told("loss_divergence") == "somebody now"
    assert who_is_told("loss_outlier") == "nobody, a mark on the chart"
    assert "as critical: somebody now; as warning: within hours" in who_is_told("run_dead")


def test_every_rule_that_explains_or_is_explained_is_a_rule():
    for row in SUPPRESSIONS:
        assert (row.by | row.mutes) <= set(RULES), (row.by | row.mutes) - set(RULES)
