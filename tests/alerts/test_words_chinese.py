"""The Chinese messages: every rule has its sentence, and the table's terms are those of the handbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notices import DIVERGENCE, notice

from trainvitals.alerts import findings_zh, words_zh
from trainvitals.alerts.notice import NoticeKind, Suspect, Verb
from trainvitals.alerts.summary import FLOOD, HEALED, QUIET, Heap, summary
from trainvitals.alerts.words import body, headline, sentence
from trainvitals.detect.rules import RULES
from trainvitals.incidents import triage
from trainvitals.incidents.symptoms import SYMPTOMS


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= c <= "\u9fff" for c in text)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_has_a_chinese_sentence(rule):
    assert rule in words_zh.SENTENCES, f"give {rule} a sentence in trainvitals/alerts/words_zh.py"
    for value, expected, step in ((2.94, 2.31, 48_210), (3.0, None, 7), (None, None, None)):
        told = sentence(notice(rule=rule, value=value, expected=expected, step=step), "zh")
        assert is_chinese(told)
        assert "{" not in told
        assert "None" not in told


def test_every_verb_kind_severity_group_and_symptom_is_translated():
    assert set(words_zh.VERBS) == set(Verb)
    assert set(words_zh.KINDS) == set(NoticeKind)
    assert set(words_zh.SYMPTOMS) == set(SYMPTOMS)
    assert set(words_zh.SUMMARIES) == {QUIET, FLOOD, HEALED}
    for text in (*words_zh.VERBS.values(), *words_zh.KINDS.values(), *(a + b for a, b in words_zh.SYMPTOMS.values())):
        assert is_chinese(text) or text.startswith("checkpoint")


def test_the_lock_screen_in_chinese():
    assert headline(DIVERGENCE, "zh") == (
        "【训练异常】llama-70b：第 48,210 步起 loss 发散，2.31 → 2.94，未回落 · 安全 checkpoint 48,000 · 5,120 张 GPU"
    )


def test_the_order_of_the_checks_is_the_handbooks():
    lines = dict(body(DIVERGENCE, "zh").lines)
    assert lines["排查顺序"] == "先数据、再代码、后集群"
    assert lines["第一嫌疑"] == "数据问题：检查最近数据批次：重复、异常 token、清洗规则误杀"
    assert [label for label in lines if label[0].isdigit()] == ["1. 数据", "2. 代码", "3. 集群"]
    assert lines["1. 数据"] == "发现线索：第 48,150 步开始换了新数据（比问题出现早 60 步。）"
    assert lines["熔断"] == "演练模式，不会真的暂停：本应在第 48,310 步暂停"
    assert lines["安全 checkpoint"] == "第 48,000 步，内容校验通过，回退需重算 310 步 = 2,650 GPU-h"


def test_a_rule_of_tomorrow_still_says_its_name_and_step():
    assert sentence(notice(rule="node_ecc"), "zh") == "第 48,210 步节点异常"
    assert sentence(notice(rule="of_tomorrow"), "zh") == "第 48,210 步规则 of_tomorrow 触发"


def test_what_the_log_said_of_a_death_stands_behind_the_chinese_sentence():
    told = headline(
        notice(
            rule="run_dead", verb=Verb.STOPPED, value=None, expected=None, step=4_910,
            what="the trainer ended after step 4,910: out of memory on host-17", suspects=(Suspect("cluster", "x"),),
        ),
        "zh",
    )  # fmt: skip
    assert told.startswith("【训练中断】llama-70b：训练进程在第 4,910 步之后退出：out of memory on host-17")


def test_a_summary_in_chinese():
    heap = Heap()
    heap.add(notice("opened", "a", "warning"))
    heap.add(notice("recovered", "a", "warning", verb=Verb.RECOVERED))
    told = headline(summary(heap, QUIET, "team", 1, DIVERGENCE.at_ns), "zh")
    assert told.startswith("【告警汇总】llama-70b：免打扰时段内共 2 条；第 48,210 步起 loss 发散")


def test_where_the_evidence_is_elsewhere_the_first_suspect_says_so_in_both_languages():
    found = notice(suspects=(Suspect("data", "No new source"), Suspect("code", "Learning rate 75× what it was", "0.15 now")))
    assert dict(body(found, "zh").lines)["第一嫌疑"] == "通常是数据问题，但本次线索在代码：学习率是之前的 75 倍"
    assert dict(body(found).lines)["First suspect"] == (
        "the data, as a rule. Here the evidence is in code: Learning rate 75× what it was"
    )


def test_every_title_that_the_triage_can_find_is_known_in_chinese():
    source = Path(triage.__file__).read_text(encoding="utf-8")
    literal = set(re.findall(r'"!",\s+"([A-Z][^"]+)"', source))
    assert len(literal) >= 6
    for english in (
        *literal, "New data began at step 48,150", "Learning rate 75× what it was", "Grad norm 9× what it was", "Grad norm rose 3 steps before the loss",
        "Grad norm rose 1 step after the loss", "Attempt 2 began 12 steps before", "Not a finite number: loss nan", "3 skipped or overflowing steps",
        "The logs name the cause", "Faults in the log", "Nodes not well", "Ranks differ", "The launch picks the checkpoint",
    ):  # fmt: skip
        assert is_chinese(findings_zh.title(english)) or "checkpoint" in findings_zh.title(english), english
    assert findings_zh.title("of tomorrow") == "of tomorrow"
