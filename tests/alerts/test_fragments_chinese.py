"""Sentences of ours that stand inside Chinese messages: whole in Chinese, and what people and logs said left as it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notices import DIVERGENCE, notice

from trainvitals.alerts.findings_zh import state
from trainvitals.alerts.fragments_zh import in_chinese, is_wholly_known
from trainvitals.alerts.notice import Suspect
from trainvitals.alerts.words import body
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.view import describe
from trainvitals.incidents.symptoms import SYMPTOMS
from trainvitals.incidents.triage import Evidence, triage
from trainvitals.records import Event, NodeSample, Severity

#: English that people on call say in Chinese sentences, too.
TERMS = {"loss", "token", "checkpoint", "nan", "inf", "lr", "schedule", "max", "grad", "norm", "scale", "rank", "gpu"}
PIECES = ["paused at step 1", "(a: b", ", checkpoint 2", "Shards ", " and 1 more", "cause: ", "; ", ". ", "9" * 30]
NOW = 1_795_000_000 * 10**9


def english(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower())) - TERMS


@pytest.mark.parametrize("name", ["running", "pausing", "paused", "checkpointing", "resuming", "stopping", "stopped"])
@pytest.mark.parametrize("age_s", [1.0, 400.0])
def test_every_state_of_the_trainer_is_told_in_chinese(name, age_s):
    status = ControlStatus(
        state=name,
        step=3_351,
        applied_at_step=3_351,
        heartbeat_ns=NOW - round(age_s * 1e9),
        step_age_s=130.0,
        by="ana",
        reason="看一下",
    )
    told = state(describe(ControlRequest(), status, NOW, heartbeat_age_s=age_s).sentence)
    assert english(told) <= {"ana"}, told
    assert "3,351 步" in told


@pytest.mark.parametrize(
    "sentence",
    [
        "dry run: would have paused at step 48,310: loss has not come back since step 400: 3.5 instead of 2.1, for 41 points above 50 % of its peak (limit 40).",
        "asked the trainer to pause at step 5: loss is not a number for 10 points in a row (limit 10).",
        "cannot pause at step 9: the trainer reads no control file. Stop it by hand. 12 anomalous points in a row (limit 10)",
        "would have paused at step 9, but that was 3 h ago in attempt 2: loss is not a number for 10 points in a row (limit 10).",
        "3 of 10 non-finite points in a row (at step 9).",
        "The trainer has ended; it last said: running, last step 7.",
        "No trainer has reported here: not wired. Add the control client to the training loop (docs/control.md).",
    ],
)
def test_what_the_breaker_does_and_the_trainer_says_has_no_english_of_ours(sentence):
    assert is_wholly_known(sentence)
    assert not english(state(sentence)), state(sentence)


def test_evidence_of_the_checks_is_told_in_chinese_and_names_stay():
    data = [
        Event("data", NOW, step=step, attempt=1, data={"source": source, "sample_first": step})
        for step, source in ((1, "web-v2"), (90, "web-v3"))
    ]
    fault = Event("fault", NOW, step=95, attempt=1, severity=Severity.CRITICAL, text="x", data={"class": "nccl_timeout"})
    seen = Evidence(
        onset_step=100, onset_ns=NOW, attempt=2, attempt_first_step=60, resumed_from_step=59, events=[*data, fault], has_grad_norm=True,
        grad_norm_now=9.0, grad_norm_usual=1.0, lr_now=0.3, lr_usual=0.001, nodes=[NodeSample("node17", NOW, "fail")],
    )  # fmt: skip
    names = {"web", "nccl", "timeout", "node17", "node", "fail"}
    for check in triage("loss_spike", seen):
        assert english(in_chinese(check.evidence)) <= names, check
    assert any(check.mark == "!" for check in triage("loss_spike", seen))


def test_a_message_has_its_evidence_in_chinese():
    found = notice(suspects=(Suspect("code", "Learning rate 75× what it was", "0.15 now, 0.002 before the onset."),))
    assert dict(body(found, "zh").lines)["1. 代码"] == "发现线索：学习率是之前的 75 倍（0.15，之前为 0.002。）"
    assert DIVERGENCE.breaker


@pytest.mark.parametrize("name", sorted(SYMPTOMS))
def test_what_to_look_at_is_translated_for_every_symptom(name):
    assert is_wholly_known(SYMPTOMS[name].action)


def test_a_finding_of_a_log_stays_as_the_log_wrote_it():
    assert in_chinese("cause: CUDA out of memory on node17 rank 12, 63 others only followed; nodes: node18 silent") == (
        "原因：CUDA out of memory on node17 rank 12，另有 63 个只是随后退出；节点：node18 silent"
    )
    assert in_chinese("Something else.") == "Something else."


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_told_and_a_foreign_one_loses_no_word(text):
    told = in_chinese(text)
    if "\u4e00" not in text and not any("\u4e00" <= letter <= "\u9fff" for letter in told):
        assert set(re.findall(r"[a-z]{3,}", text)) == set(re.findall(r"[a-z]{3,}", told))
