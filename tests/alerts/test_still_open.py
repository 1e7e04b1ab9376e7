"""One incident of a run is over and another is not: nobody may read that as all-clear."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notices import DIVERGENCE, T0_NS

from trainvitals.alerts.compose import Known, compose
from trainvitals.alerts.notice import Item, Notice, NoticeKind, Verb
from trainvitals.alerts.summary import QUIET, Heap, summary
from trainvitals.alerts.targets.feishu import _colour
from trainvitals.alerts.words import HEADLINE_CHARACTERS, body, headline
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.records import Finding, Incident, Severity

S = 10**9
FIRST = Finding(
    "f1", "loss_divergence", "loss", Severity.CRITICAL, 3_833, 3_860, 3_900, 1, T0_NS, 3.44, 2.30, "loss 2.30 → 3.44 since step 3,833", False
)  # fmt: skip
SECOND = Finding(
    "f2", "loss_divergence", "loss", Severity.CRITICAL, 4_538, 4_560, None, 3, T0_NS + 40 * S, 8.5, 2.61, "loss 2.61 → 8.50 since step 4,538", True
)  # fmt: skip


def incident(finding: Finding, *, is_open: bool) -> Incident:
    closed_ns = None if is_open else T0_NS + 35 * S
    return Incident(
        f"hookrun/loss/{finding.attempt}/loss_divergence/{finding.detected_step}", "hookrun", "loss", finding.severity, (finding.rule,),
        (finding.id,), finding.first_step, finding.last_step, finding.time_ns, finding.time_ns, closed_ns, finding.message, finding.message,
    )  # fmt: skip


OVER, OPEN = incident(FIRST, is_open=False), incident(SECOND, is_open=True)
KNOWN = Known(findings=(FIRST,), others=(OPEN,), other_findings=(SECOND,), public_url="https://health.example", last_step=4_700)
CHANGE = IncidentChange(OVER, ChangeKind.RECOVERED, 1, T0_NS + 100 * S, "loss_divergence")


def test_what_is_open_stands_before_what_is_over_and_the_word_recovered_is_not_there():
    told = compose(CHANGE, KNOWN)
    assert (told.kind, told.verb, told.incident_id) == (NoticeKind.RECOVERED, Verb.STILL_OPEN, OVER.id)
    assert headline(told) == (
        "STILL-OPEN hookrun: loss 2.61 → 8.50 since step 4,538, not coming back · over: loss 2.30 → 3.44 since…(after 35 s)"
    ) or headline(told).startswith("STILL-OPEN hookrun: loss 2.61 → 8.50 since step 4,538")
    assert len(headline(told)) <= HEADLINE_CHARACTERS and "RECOVERED" not in headline(told)
    lines = dict(body(told).lines)
    assert "recovered" not in " ".join(lines.values()).lower()
    assert list(lines)[1] == "Still open" and lines["Still open"].startswith(
        "TRAINING-SICK · loss 2.61 → 8.50 since step 4,538 (since "
    )
    assert "but still open" in lines["Over"] and "3,833" in lines["Over"]
    assert "incident=hookrun%2Floss%2F3" in told.link, "the link leads to what is open"
    assert Notice.from_mapping(told.to_mapping()) == told


def test_in_chinese_too():
    told = compose(CHANGE, KNOWN)
    assert headline(told, "zh").startswith("【仍有异常】hookrun：第 4,538 步起 loss 发散，2.61 → 8.50，未回落 · 已结束：")
    words = headline(told, "zh") + " ".join(text for _, text in body(told, "zh").lines)
    assert "已恢复" not in words
    assert dict(body(told, "zh").lines)["仍未恢复"].startswith("第 4,538 步起 loss 发散")


def test_a_warning_that_is_left_is_counted_behind_recovered_and_named_in_the_body():
    slow = replace(SECOND, id="f3", rule="throughput_drop", severity=Severity.WARNING, message="throughput 37 % below usual")
    told = compose(CHANGE, replace(KNOWN, others=(incident(slow, is_open=True),), other_findings=(slow,)))
    assert headline(told) == "RECOVERED hookrun: loss 2.30 → 3.44 since step 3,833 (after 35 s) · but still open: 1 warning"
    assert headline(told, "zh").endswith(" · 但仍有 1 项警告")
    assert dict(body(told).lines)["Still open"].startswith("TRAINING-SLOW · throughput 37 % below usual")


@pytest.mark.parametrize(
    "others",
    [(), (OVER,), (incident(replace(SECOND, severity=Severity.INFO), is_open=True),), (incident(SECOND, is_open=False),)],
)
def test_with_nothing_else_open_it_reads_as_before(others):
    told = compose(CHANGE, replace(KNOWN, others=others))
    assert told.verb is Verb.RECOVERED and not told.still_open
    assert headline(told) == "RECOVERED hookrun: loss 2.30 → 3.44 since step 3,833 (after 35 s)"
    assert list(dict(body(told).lines))[1] == "What" and _colour(told) == "green"


def test_news_of_a_trouble_say_nothing_of_the_others():
    opened = compose(
        replace(CHANGE, incident=OPEN, kind=ChangeKind.OPENED), replace(KNOWN, findings=(SECOND,), others=(OVER, OPEN))
    )
    assert opened.verb is Verb.TRAINING_SICK and opened.still_open == ()


def test_it_is_no_green_card_and_a_line_of_a_summary_tells_of_its_own_incident_only():
    told = compose(CHANGE, KNOWN)
    assert _colour(told) == "red"
    heap = Heap()
    heap.add(told)
    heap.add(replace(told, id="another", kind=NoticeKind.OPENED, verb=Verb.TRAINING_SICK, still_open=()))
    assert [one.verb for one in summary(heap, QUIET, "team", 1, T0_NS).items] == [Verb.RECOVERED, Verb.TRAINING_SICK]


@given(
    st.text(max_size=300),
    st.integers(1, 3),
    st.sampled_from(["en", "zh"]),
    st.none() | st.integers(0, 10**12),
    st.text(max_size=300),
)
def test_whatever_the_names_are_the_headline_fits_and_does_not_say_recovered(run, count, language, step, what):
    item = Item(NoticeKind.OPENED, Verb.HUNG, Severity.CRITICAL, "stall", what, T0_NS, step, 900.0, 6.0)
    told = replace(
        DIVERGENCE, run=run, kind=NoticeKind.RECOVERED, verb=Verb.STILL_OPEN, what=what, step=step, still_open=(item,) * count
    )
    line = headline(told, language)
    assert len(line) <= HEADLINE_CHARACTERS and line.startswith(("STILL-OPEN ", "【仍有异常】"))
    assert body(told, language).lines
