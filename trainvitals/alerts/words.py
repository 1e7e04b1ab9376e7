"""A notice in words: the headline for the lock screen, and the body. English and Chinese. Pure.

Everything is plain text of one line a part, unescaped: each target escapes for its own form. What came from logs, names and people
is cut and freed of what cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainvitals.alerts import findings_zh, sentences, still_open, words_zh
from trainvitals.alerts.fragments_zh import in_chinese
from trainvitals.alerts.notice import REFUSALS, Item, Notice, NoticeKind, Suspect, Verb
from trainvitals.alerts.text import cut, cut_middle, finite, number, numbers, percent, plain, whole
from trainvitals.incidents.amounts import gpu_hours, span
from trainvitals.incidents.symptoms import symptom
from trainvitals.records import Severity

#: What a phone shows of a message before it is opened.
HEADLINE_CHARACTERS = 110
LINE_CHARACTERS = 600
#: A run's name in a headline: in full where it fits, then cut to these.
NAME_CHARACTERS = (40, 24, 12)
#: Where a person asks first whether there is a way back.
_GOES_BACK = frozenset({Verb.TRAINING_SICK, Verb.STOPPED, Verb.PAUSED})
_BETWEEN_CHINESE = re.compile(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")
#: Rules whose value is a time in seconds.
_IN_SECONDS = frozenset({"stall", "checkpoint_stuck", "checkpoint_blocking"})
#: What the value is of, for rules that judge one.
_METRICS: Mapping[str, str] = {
    "loss_": "loss", "resume_rebound": "loss", "resume_drop": "loss", "grad_norm": "grad_norm", "lr_": "lr", "resume_lr": "lr",
    "throughput": "throughput", "stall": "s", "checkpoint_stuck": "s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """headline: at most 110 characters. lines: (label, text) in the order of reading. link: "" = none. All plain text."""

    headline: str
    lines: tuple[tuple[str, str], ...]
    link: str = ""


def headline(notice: Notice, language: str = "en") -> str:
    """At most 110 characters: verb, run, what, since which step, safe checkpoint, cost. What does not fit goes from the end; verb,
    run, what and step stay. language: en or zh, any other reads as en."""
    is_chinese = language == "zh"
    name, suffix = plain(notice.run, 200), _suffix(notice, is_chinese=is_chinese)
    names = [cut_middle(name, limit) for limit in NAME_CHARACTERS]
    short = sentence(notice, language)
    long = _with_cause(notice, short) if is_chinese else _with_step(plain(notice.what, LINE_CHARACTERS), notice.step) or short
    if notice.kind is NoticeKind.SUMMARY:
        long = short = _summed_up(notice, is_chinese=is_chinese)
    if notice.verb is Verb.STILL_OPEN and notice.still_open:
        return _partly_over(notice, names, short, suffix, language)
    tails = _tails(notice, is_chinese=is_chinese)
    close = [tail.replace("safe checkpoint", "safe ckpt") for tail in tails]
    room = HEADLINE_CHARACTERS - len(_line(notice.verb, names[1], suffix, close[:1], is_chinese=is_chinese))
    cut_long = cut(long, max(0, room))
    tried = [(names[0], long, tails), (names[0], long, close), (names[0], long, tails[:1]), (names[1], long, close[:1])]
    if not _has_numbers(notice) and (notice.step is None or f"{notice.step:,}" in cut_long or notice.rule in REFUSALS):
        tried.append((names[1], cut_long, close[:1]))  # a cause, cut, says more than the rule alone
    tried += [(names[0], short, tails), (names[0], short, close[:1]), (names[1], short, close[:1]), (names[1], short, [])]
    for run, what, told in tried:
        text = _line(notice.verb, run, what + suffix, told, is_chinese=is_chinese)
        if len(text) <= HEADLINE_CHARACTERS:
            return text
    return cut(_line(notice.verb, names[2], short + suffix, [], is_chinese=is_chinese), HEADLINE_CHARACTERS)


def _partly_over(notice: Notice, names: Sequence[str], over: str, suffix: str, language: str) -> str:
    """What is open before what is over."""
    is_chinese = language == "zh"
    parts = still_open.headline_parts(notice, over, suffix, lambda one: sentence(one, language), is_chinese=is_chinese)
    for what, ended in parts:
        for name in names[:2]:
            text = _line(notice.verb, name, what, [ended] if ended else [], is_chinese=is_chinese)
            if len(text) <= HEADLINE_CHARACTERS:
                return text
    what = sentence(notice.still_open[0], language)
    return cut(_line(notice.verb, names[2], what, [], is_chinese=is_chinese), HEADLINE_CHARACTERS)


def body(notice: Notice, language: str = "en") -> Message:
    """Everything a person needs before opening the link, in the order of reading."""
    lines = _lines_zh(notice) if language == "zh" else _lines_en(notice)
    kept = tuple((label, plain(text, LINE_CHARACTERS)) for label, text in lines if text)
    return Message(headline(notice, language), kept, notice.link)


def sentence(notice: Notice | Item, language: str = "en") -> str:
    """What happened, by the rule's own sentence and the numbers of this notice."""
    is_chinese = language == "zh"
    forms = (words_zh.SENTENCES if is_chinese else sentences.SENTENCES).get(notice.rule)
    if forms is None:
        forms = ("", "", _unknown(notice.rule, is_chinese=is_chinese) if is_chinese else plain(notice.what, 90) + " {at}")
        if not is_chinese:
            return _with_step(plain(notice.what, 90), notice.step) or f"{plain(notice.rule, 60)} fired"
    fields = _fields(notice, is_chinese=is_chinese)
    for form, needs in zip(forms, (("value", "expected"), ("value",), ()), strict=True):
        if form and all(fields[need] for need in needs) and ("{percent}" not in form or fields["percent"]):
            return _joined(form.format_map(fields))
    return _joined(forms[-1].format_map(fields))


def _joined(text: str) -> str:
    """Without the spaces that an empty field leaves, and without any between two Chinese characters."""
    return _BETWEEN_CHINESE.sub("", " ".join(text.split()))


def _fields(notice: Notice | Item, *, is_chinese: bool) -> dict[str, str]:
    value, expected, step = finite(notice.value), finite(notice.expected), notice.step
    fields = dict.fromkeys(("value", "expected", "percent", "count", "usual_count", "time", "usual_time"), "")
    told = words_zh.duration if is_chinese else span
    if value is not None:
        fields |= {"value": number(value), "count": whole(value), "time": told(value)}
    if expected is not None:
        fields |= {"expected": number(expected), "usual_count": whole(expected), "usual_time": told(expected)}
    if value is not None and expected is not None:
        before, after = numbers(expected, value)
        fields |= {"value": after, "expected": before, "percent": percent(expected, value)}
    shown = "" if step is None else f"{step:,}"
    if is_chinese:
        fields |= {
            "since": shown and f"第 {shown} 步起",
            "at": shown and f"第 {shown} 步",
            "after": shown and f"在第 {shown} 步之后",
        }
    else:
        fields |= {
            "since": shown and f"since step {shown}",
            "at": shown and f"at step {shown}",
            "after": shown and f"after step {shown}",
        }
    return fields | {"rule": plain(notice.rule, 60)}


def _unknown(rule: str, *, is_chinese: bool) -> str:
    by_family = (form for start, form in words_zh.FAMILIES.items() if rule.startswith(start))
    return next(by_family, words_zh.OTHER) if is_chinese else ""


def _with_step(what: str, step: int | None) -> str:
    """A finding's message, with its step when it names none."""
    if not what or step is None or "step" in what or f"{step:,}" in what:
        return what
    return f"{what} (step {step:,})"


def _line(verb: Verb, run: str, what: str, tails: Sequence[str], *, is_chinese: bool) -> str:
    head = f"【{words_zh.VERBS[verb]}】{run}：{what}" if is_chinese else f"{verb.value} {run}: {what}"
    return " · ".join((head, *tails))


def _has_numbers(notice: Notice) -> bool:
    """Whether the rule's own sentence holds what matters; else the finding's message does: which host, which rank, which error."""
    forms = sentences.SENTENCES.get(notice.rule)
    return forms is not None and any(forms[:2])


def _with_cause(notice: Notice, told: str) -> str:
    """The rule's own Chinese sentence, and of what the log said as much as a lock screen has room for."""
    cause = plain(notice.what, LINE_CHARACTERS).partition(": ")[2]
    return told if _has_numbers(notice) or not cause else f"{told}：{cut(cause, 45)}"


def _tails(notice: Notice, *, is_chinese: bool) -> list[str]:
    if notice.verb is Verb.RECOVERED:
        left = still_open.tail(notice, is_chinese=is_chinese)
        return [left] if left else []
    if notice.kind in (NoticeKind.SUMMARY, NoticeKind.TEST, NoticeKind.WATCH_SILENT):
        return []
    tails = []
    if notice.safe_step is not None:
        tails.append(f"{'安全 checkpoint' if is_chinese else 'safe checkpoint'} {notice.safe_step:,}")
    elif notice.verb in _GOES_BACK and notice.severity is Severity.CRITICAL and _is_trouble(notice):
        tails.append("无安全 checkpoint" if is_chinese else "no safe checkpoint")  # it decides whether somebody gets up
    cost = _cost(notice, is_chinese=is_chinese)
    if notice.gpus:
        gpus = f"{notice.gpus:,} {'张 GPU' if is_chinese else 'GPU' if notice.gpus == 1 else 'GPUs'}"
        tails.append(gpus + (f" · {cost}" if cost and notice.cost is not None else ""))
    elif cost:
        tails.append(cost)
    return tails


def _cost(notice: Notice, *, is_chinese: bool) -> str:
    """What going back repeats, in the largest unit that is known."""
    if notice.cost is not None:
        return f"回退重算约 {notice.cost:,.0f}" if is_chinese else f"going back costs {notice.cost:,.0f}"
    hours = gpu_hours(notice.lost_gpu_hours) if notice.lost_gpu_hours is not None else ""
    return hours and (f"回退重算 {hours}" if is_chinese else f"{hours} to redo")


def _suffix(notice: Notice, *, is_chinese: bool) -> str:
    """What is told beside what happened: that it is over, that nobody has it, that somebody has it."""
    open_s = max(0.0, (notice.at_ns - notice.opened_at_ns) / 1e9)
    if notice.kind is NoticeKind.RECOVERED:
        return f"（历时 {words_zh.duration(open_s)}）" if is_chinese else f" (after {span(open_s)})"
    if notice.kind is NoticeKind.REMINDER:
        return f"（{words_zh.duration(open_s)}未恢复）" if is_chinese else f" (open for {span(open_s)})"
    if notice.kind is NoticeKind.ACKNOWLEDGED:
        by = plain(notice.acknowledged_by, 20) or ("有人" if is_chinese else "somebody")
        return f"（{by} 已认领）" if is_chinese else f" ({by} has it)"
    if notice.kind is NoticeKind.REOPENED:
        return "（再次发生）" if is_chinese else " (again)"
    if notice.kind is NoticeKind.PAUSED:
        return "（熔断已暂停训练）" if is_chinese else " (the breaker paused it)"
    return ""


def _summed_up(notice: Notice, *, is_chinese: bool) -> str:
    count = len(notice.items) + notice.more
    first = sentence(notice.items[0], "zh" if is_chinese else "en") if notice.items else ""
    if is_chinese:
        return f"{words_zh.SUMMARIES.get(notice.rule, '')}共 {count:,} 条" + (f"；{first}" if first else "")
    return f"{count:,} message{'s' if count != 1 else ''} {plain(notice.what, 60)}" + (f"; {first}" if first else "")


def _lines_en(notice: Notice) -> list[tuple[str, str]]:
    kind = "one is over, others are not" if notice.still_open else notice.kind.value.replace("_", " ")
    told = " · ".join((notice.severity.value, kind, *([notice.family] if notice.family else [])))
    lines = [("Severity", told), ("What", _with_step(notice.what, notice.step))]
    if notice.still_open:
        left = still_open.body_line(notice, lambda one: _with_step(one.what, one.step), _clock, is_chinese=False)
        over = _with_step(notice.what, notice.step)
        lines[1:] = [("Still open", left), ("Over", f"{over}{_suffix(notice, is_chinese=False)}, but still open: see above")]
    if notice.kind is NoticeKind.SUMMARY:
        return [lines[0], *_items(notice, is_chinese=False)]
    lines += [("Value", _value(notice, is_chinese=False)), ("Since", _since(notice, is_chinese=False))]
    if _is_trouble(notice):
        lines.append(("First suspect", _first_suspect(notice)))
        for place, suspect in enumerate(notice.suspects, 1):
            evidence = f": {suspect.evidence}" if suspect.evidence else ""
            lines.append((f"Check {place}", f"{suspect.group}: {suspect.text}{evidence}"))
        lines.append(("Safe checkpoint", _safe(notice, is_chinese=False)))
    lines += [
        ("Breaker", notice.breaker), ("Control", notice.control), ("Rules", ", ".join(notice.rules)),
        ("Acknowledged by", notice.acknowledged_by), ("Runbook", notice.runbook_url), ("Audit head", notice.audit_head),
    ]  # fmt: skip
    return lines


def _lines_zh(notice: Notice) -> list[tuple[str, str]]:
    labels = words_zh.LABELS
    kind = "部分恢复，仍有异常" if notice.still_open else words_zh.KINDS[notice.kind]
    told = " · ".join((words_zh.SEVERITIES[notice.severity.value], kind))
    lines = [(labels["severity"], told)]
    if notice.kind is NoticeKind.SUMMARY:
        return [*lines, *_items(notice, is_chinese=True)]
    original = f"（原文：{plain(notice.what, 300)}）" if notice.what else ""
    if notice.still_open:
        lines.append(
            (labels["still_open"], still_open.body_line(notice, lambda one: sentence(one, "zh"), _clock, is_chinese=True))
        )
    lines += [
        (labels["over" if notice.still_open else "what"], sentence(notice, "zh") + original), (labels["value"], _value(notice, is_chinese=True)),
        (labels["since"], _since(notice, is_chinese=True)),
    ]  # fmt: skip
    if _is_trouble(notice):
        suspect, action = words_zh.SYMPTOMS[symptom(notice.rule).name]
        elsewhere = _elsewhere(notice)
        first = f"{suspect}：{action}"
        if elsewhere is not None:
            first = f"通常是{suspect}，但本次线索在{words_zh.GROUPS[elsewhere.group]}：{findings_zh.title(elsewhere.text)}"
        lines += [(labels["first"], first), (labels["order"], "先数据、再代码、后集群")]
        for place, one in enumerate(notice.suspects, 1):
            group = words_zh.GROUPS.get(one.group, one.group)
            found = (
                f"发现线索：{findings_zh.title(one.text)}（{in_chinese(one.evidence)}）"
                if one.evidence
                else words_zh.CHECKS.get(one.group, one.text)
            )
            lines.append((f"{place}. {group}", found))
        lines.append((labels["safe"], _safe(notice, is_chinese=True)))
    lines += [
        (labels["breaker"], findings_zh.state(notice.breaker)), (labels["control"], findings_zh.state(notice.control)),
        (labels["rules"], "、".join(notice.rules)),
        (labels["acknowledged"], notice.acknowledged_by), (labels["runbook"], notice.runbook_url), (labels["audit"], notice.audit_head),
    ]  # fmt: skip
    return lines


def _first_suspect(notice: Notice) -> str:
    first, elsewhere = symptom(notice.rule), _elsewhere(notice)
    if elsewhere is None:
        return f"{first.suspect}. {first.action}"
    return f"{first.suspect}, as a rule. Here the evidence is in {elsewhere.group}: {elsewhere.text}"


def _elsewhere(notice: Notice) -> Suspect | None:
    """What was found, when nothing was found where this symptom most often comes from."""
    layer = symptom(notice.rule).suspect_layer
    usual = "code" if layer == "numerics" else layer
    found = [one for one in notice.suspects if one.evidence]
    return found[0] if found and all(one.group != usual for one in found) else None


def _is_trouble(notice: Notice) -> bool:
    return notice.kind in (
        NoticeKind.OPENED, NoticeKind.ESCALATED, NoticeKind.REOPENED, NoticeKind.REMINDER, NoticeKind.ACKNOWLEDGED, NoticeKind.PAUSED
    )  # fmt: skip


def _items(notice: Notice, *, is_chinese: bool) -> list[tuple[str, str]]:
    lines = []
    for item in notice.items:
        what = sentence(item, "zh") if is_chinese else _with_step(plain(item.what, 200), item.step) or sentence(item)
        verb = words_zh.VERBS[item.verb] if is_chinese else item.verb.value
        lines.append((_clock(item.at_ns), f"{verb} · {what}"))
    if notice.more:
        lines.append((words_zh.LABELS["items"], f"另有 {notice.more:,} 条") if is_chinese else ("And", f"{notice.more:,} more"))
    return lines


def _value(notice: Notice, *, is_chinese: bool) -> str:
    if notice.value is None:
        return ""
    metric = notice.metric or next((name for start, name in _METRICS.items() if notice.rule.startswith(start)), "")
    told = words_zh.duration if is_chinese else span
    if notice.rule in _IN_SECONDS:
        value, usual = told(notice.value), told(notice.expected) if notice.expected is not None else ""
    elif notice.expected is not None:
        usual, value = numbers(notice.expected, notice.value)
    else:
        value, usual = number(notice.value), ""
    named = f"{plain(metric, 40)} {value}".strip() if notice.rule not in _IN_SECONDS else value
    if not usual or notice.expected is None:
        return named
    by = percent(notice.expected, notice.value)
    more = notice.value >= notice.expected
    if is_chinese:
        return f"{named}，预期 {usual}" + (f"（{'高' if more else '低'} {by}）" if by else "")
    return f"{named}, expected {usual}" + (f" ({by} {'above' if more else 'below'})" if by else "")


def _since(notice: Notice, *, is_chinese: bool) -> str:
    moment = f"{_clock(notice.opened_at_ns)} UTC"
    if notice.step is None:
        return moment
    return f"第 {notice.step:,} 步，{moment}" if is_chinese else f"step {notice.step:,}, {moment}"


def _safe(notice: Notice, *, is_chinese: bool) -> str:
    if notice.safe_step is None:
        return "暂无可推荐的 checkpoint" if is_chinese else "none can be recommended"
    parts = [f"第 {notice.safe_step:,} 步" if is_chinese else f"step {notice.safe_step:,}"]
    if notice.safe_level:
        level = plain(notice.safe_level, 40)
        parts.append(words_zh.LEVELS.get(level, level) if is_chinese else f"verified to level {level}")
    else:
        parts.append("尚未校验" if is_chinese else "not verified yet")
    if notice.lost_steps is not None:
        hours = gpu_hours(notice.lost_gpu_hours) if notice.lost_gpu_hours is not None else ""
        redo = f"回退需重算 {notice.lost_steps:,} 步" if is_chinese else f"going back redoes {notice.lost_steps:,} steps"
        redo += f" = {hours}" if hours else ""
        if notice.cost is not None:
            redo += f"，约 {notice.cost:,.0f}（按 gpu_hour_price）" if is_chinese else f", {notice.cost:,.0f} at gpu_hour_price"
        parts.append(redo)
    return ("，" if is_chinese else "; ").join(parts)


def _clock(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(max(0, time_ns) // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
