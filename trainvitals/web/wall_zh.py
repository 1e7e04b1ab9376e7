"""The wall's sentences in Chinese, from the same facts as the English ones. Terms: the operations handbook's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.alerts.findings_zh import state as control_zh
from trainvitals.alerts.notice import Item, NoticeKind, Verb
from trainvitals.alerts.text import plain
from trainvitals.alerts.words import sentence
from trainvitals.alerts.words_zh import LEVELS, duration
from trainvitals.incidents.verdict import WATCH_SILENT_S, VerdictWord
from trainvitals.records import Finding, Incident, NodeSample
from trainvitals.web import format as fmt
from trainvitals.web.node_words import context_words, count_words, report_fact
from trainvitals.web.present import taken_incident
from trainvitals.web.stale import verdict_now
from trainvitals.web.view import RunView, Snapshot

WORDS: Mapping[VerdictWord, str] = {
    VerdictWord.STOPPED: "训练中断", VerdictWord.HUNG: "训练卡死", VerdictWord.PAUSED: "训练已暂停", VerdictWord.SICK: "训练异常",
    VerdictWord.SLOW: "训练变慢", VerdictWord.ATTENTION: "待检查", VerdictWord.UNKNOWN: "无数据", VerdictWord.RECOVERING: "恢复中",
    VerdictWord.RECOVERED: "已恢复", VerdictWord.HEALTHY: "正常", VerdictWord.HISTORY: "历史记录", VerdictWord.FINISHED: "已完成",
}  # fmt: skip
LABELS: Mapping[str, str] = {
    "Step": "步数", "Loss": "Loss", "Grad norm": "梯度范数", "Tokens/s": "Tokens/s", "Samples/s": "Samples/s",
    "TFLOP/s per GPU": "单卡 TFLOP/s", "Step time": "单步耗时", "Time left": "剩余时间", "Verified checkpoint": "已校验 checkpoint",
    "Safe checkpoint": "安全 checkpoint",
}  # fmt: skip
STATES: Mapping[str, str] = {
    "writing": "写入中", "staged": "写入中", "complete": "完整，未校验", "verifying": "校验中", "verified": "已校验", "incomplete": "不完整",
    "corrupt": "已损坏", "deleting": "删除中", "deleted": "已删除", "unknown_format": "格式未知",
}  # fmt: skip
_METRIC_OF = {
    "Loss": "loss", "Grad norm": "grad_norm", "Tokens/s": "tokens_per_s", "Samples/s": "samples_per_s",
    "TFLOP/s per GPU": "tflops_per_gpu", "Step time": "step_time_s",
}  # fmt: skip
_STOPPED = {VerdictWord.STOPPED: "训练中断", VerdictWord.HUNG: "训练卡死"}


def band(snapshot: Snapshot, run: RunView, now_ns: int) -> dict[str, Any]:
    """``word``, ``headline``, ``automatic`` and ``facts`` of the verdict band."""
    verdict = verdict_now(snapshot, run, now_ns)
    facts = []
    if run.last_step is not None and verdict.word not in (VerdictWord.FINISHED, VerdictWord.HISTORY):
        hung_ns = run.last_step_time_ns if verdict.word is VerdictWord.HUNG and verdict.incident_id else None
        ago = "" if hung_ns is None else f"，{duration(max(0.0, (now_ns - hung_ns) / 1e9))}前"
        facts.append(f"{'第' if verdict.word is VerdictWord.HEALTHY else '最后一步：第'} {fmt.step(run.last_step)} 步{ago}")
    if run.control.is_pending:
        facts.append("已发出请求，等待训练进程响应")
    taken = taken_incident(run, verdict)
    if taken is not None:
        facts.append(f"已有人接手（{fmt.clock(taken.acknowledged_at_ns, run.settings.log_timezone, now_ns=now_ns)} 起）")
    silent = report_fact(snapshot.nodes, run.name, now_ns, "zh")
    if silent and verdict.word not in (VerdictWord.FINISHED, VerdictWord.HISTORY):
        facts.append(silent)
    if run.supervisor.state == "held":
        facts.append("守护进程已停止自动重启，等待人工恢复")
    return {
        "word": WORDS[verdict.word], "headline": headline(snapshot, run, now_ns), "facts": facts, "automatic": _automatic(run, verdict.word),
    }  # fmt: skip


def headline(snapshot: Snapshot, run: RunView, now_ns: int) -> str:
    """The verdict's sentence: what is open, else what the run does."""
    verdict = verdict_now(snapshot, run, now_ns)
    at = f"第 {run.last_step:,} 步" if run.last_step is not None else ""
    incident = next((one for one in run.incidents if one.id == verdict.incident_id), None)
    what = incident_sentence(incident, run.findings) if incident is not None else ""
    if verdict.word is VerdictWord.HEALTHY:
        return "无未恢复的告警"
    if verdict.word is VerdictWord.FINISHED:
        return f"训练按计划结束{'于' + at if at else ''}" + (f"；结束时未恢复：{what}" if what else "")
    if verdict.word is VerdictWord.HISTORY:
        age = "" if run.last_step_time_ns is None else f"，{duration((now_ns - run.last_step_time_ns) / 1e9)}前"
        return f"最后一步：{at}{age}；目前无人监控" + (f"；结束时未恢复：{what}" if what else "")
    if verdict.word is VerdictWord.PAUSED:
        return _paused(run)
    if verdict.word is VerdictWord.UNKNOWN:
        return _no_data(snapshot, run, now_ns)
    if verdict.word is VerdictWord.HUNG and not what and run.last_step_time_ns is not None:
        return f"{at}之后已 {duration((now_ns - run.last_step_time_ns) / 1e9)}没有新的训练步"
    if verdict.word is VerdictWord.STOPPED and run.control.desired == "stopped" and run.control.source != "supervisor":
        return f"按{_who(run)}的要求停止{'于' + at if at else ''}{_because(run.control.reason)}"
    if verdict.word is VerdictWord.RECOVERED:
        return f"{what}（已恢复）" if what else "告警已恢复"
    if what:
        return what
    return {
        VerdictWord.STOPPED: f"训练{'在' + at + '之后' if at else ''}停止",
        VerdictWord.RECOVERING: "训练已重启，正在恢复",
    }.get(verdict.word, f"{at} 日志中有报错".strip())


def incident_sentence(incident: Incident, findings: Sequence[Finding]) -> str:
    """Of the finding that gave the incident its English title, so that both languages tell of one thing; else of the gravest, then an
    open one, then the newest."""
    members = [one for one in findings if one.id in incident.finding_ids]
    titled = [one for one in members if incident.title and one.message.startswith(incident.title)]
    lead = max(
        titled or members,
        key=lambda one: (one.message == incident.title, one.severity.rank, one.is_open, one.detected_step),
        default=None,
    )
    if lead is not None:
        return finding_sentence(lead)
    rule = incident.rules[0] if incident.rules else ""
    return sentence(_item(rule, incident.first_step, incident.opened_at_ns, incident.title, incident), "zh")


def finding_sentence(finding: Finding) -> str:
    """The rule's own Chinese sentence with this finding's numbers."""
    return sentence(_item(finding.rule, finding.first_step, finding.time_ns or 0, finding.message, finding), "zh")


def _item(rule: str, step: int | None, at_ns: int, what: str, of: Finding | Incident) -> Item:
    value, expected = (of.value, of.expected) if isinstance(of, Finding) else (None, None)
    return Item(NoticeKind.OPENED, Verb.CHECK, of.severity, rule, what, at_ns, step, value, expected)


def _paused(run: RunView) -> str:
    control = run.control
    verb = "正在暂停" if control.state == "pausing" else "暂停"
    at = f"于第 {control.at_step:,} 步" if control.at_step is not None else ""
    # The breaker's reason is what is open, and that is told in its own sentence.
    return f"由{_who(run)}{verb}{at}{'' if control.source == 'breaker' else _because(control.reason)}"


def _who(run: RunView) -> str:
    control = run.control
    return (
        "熔断器"
        if control.source == "breaker"
        else f" {plain(control.by or control.source, 60)} "
        if control.by or control.source
        else "他人"
    )


def _because(reason: str) -> str:
    return f"：{plain(reason, 200)}" if reason else ""


def _no_data(snapshot: Snapshot, run: RunView, now_ns: int) -> str:
    if snapshot.error and (now_ns - snapshot.taken_at_ns) / 1e9 > WATCH_SILENT_S:
        return f"存储已 {duration((now_ns - snapshot.taken_at_ns) / 1e9)}无法读取"
    if run.watch_seen_ns is None:
        return "尚无监控进程上报该任务"
    silent_s = (now_ns - run.watch_seen_ns) / 1e9
    return f"监控进程已失联 {duration(silent_s)}，目前无人值守" if silent_s > WATCH_SILENT_S else "监控进程已运行，等待第一步"


def _automatic(run: RunView, word: VerdictWord) -> str:
    """What was done by itself while something is wrong: the trainer's state, and what the breaker may do."""
    if word not in (VerdictWord.SICK, VerdictWord.HUNG, VerdictWord.STOPPED):
        return ""
    if run.control.state in ("paused", "pausing"):
        return f"{_paused(run)}。"
    if run.control.state == "not_wired":
        return "训练程序未接入控制，无法从这里暂停。"
    breaker = {"off": "熔断器未启用", "dry-run": "熔断器为演练模式，不会真的暂停", "armed": "熔断器已启用"}.get(
        run.settings.breaker, ""
    )
    told = control_zh(run.control.sentence)
    is_told = any("\u4e00" <= letter <= "\u9fff" for letter in told)
    return "；".join(part for part in (f"训练进程：{told}" if is_told else "", breaker) if part) + (
        "。" if breaker or is_told else ""
    )


def tile(shown: Mapping[str, Any], run: RunView, now_ns: int) -> dict[str, Any]:
    """A tile of ``present.tiles`` with its words in Chinese; numbers and tone stay."""
    label = str(shown["label"])
    value, context = str(shown["value"]), ""
    if label == "Step":
        total = run.settings.total_steps
        number = f" · 第 {run.attempt.number} 次启动" if run.attempt else ""
        context = (f"共 {total:,}" if total else "未设总步数") + number
    elif label in _METRIC_OF:
        context = _metric(label, shown, run)
    elif label == "Time left":
        value, context = _left(run)
    else:
        value, context = _checkpoint(value, run, now_ns)
    return {**shown, "label": LABELS.get(label, label), "value": value, "context": context}


def _metric(label: str, shown: Mapping[str, Any], run: RunView) -> str:
    metric = run.metrics.get(_METRIC_OF[label])
    if (
        shown["value"] in ("0", fmt.UNKNOWN)
        and shown.get("tone") in ("paused", "critical")
        and label not in ("Loss", "Grad norm")
    ):
        why = (
            "已暂停"
            if run.control.state == "paused"
            else "已停止"
            if run.control.state == "stopped"
            else _STOPPED.get(run.verdict.word, "已停止")
        )
        return why if metric is None else f"{why}，之前 {fmt.number(metric.value, metric.nonfinite)}"
    if metric is None:
        return "未记录" if shown["value"] == fmt.UNKNOWN else "最近各步的中位数"
    usual = ""
    if metric.usual is not None:
        is_far = metric.value is not None and metric.usual > 0 and metric.value >= 5 * metric.usual
        times = f"{metric.value / metric.usual:,.0f} 倍于" if is_far and metric.value is not None else ""
        usual = f"{times}平时 {fmt.number(metric.usual)}"
    if run.last_step is not None and metric.step < run.last_step - 100:
        return f"第 {metric.step:,} 步的值" + (f" · {usual}" if usual else "")
    return usual or "平时值尚未知"


def _left(run: RunView) -> tuple[str, str]:
    if not run.settings.total_steps:
        return fmt.UNKNOWN, "未设总步数"
    if run.last_step is not None and run.last_step >= run.settings.total_steps:
        return "0", "全部完成"
    if run.eta_s is None:
        return fmt.UNKNOWN, "没有进展" if run.steps_per_s else "速度尚未知"
    return duration(run.eta_s), f"按 {fmt.number(run.steps_per_s)} 步/秒"


def _checkpoint(value: str, run: RunView, now_ns: int) -> tuple[str, str]:
    newest, safe = run.newest_verified, run.recommended
    if newest is None:
        is_set = bool(run.checkpoints or run.settings.checkpoints)
        return "无", "均未通过校验" if run.checkpoints else "尚未发现" if is_set else "未设目录"
    level = LEVELS.get(newest.level.value, "") if newest.level is not None else ""
    if newest.path in run.suspects:
        doubt = f"{fmt.step(newest.step)} 可疑"
        return (
            ("无", doubt)
            if safe is None
            else (fmt.step(safe.step), f"{LEVELS.get(safe.level.value, '') if safe.level else ''} · {doubt}".strip(" ·"))
        )
    if safe is not None and safe.path != newest.path:
        return value, f"{level} · 安全：{fmt.step(safe.step)}".strip(" ·")
    age = f"{duration((now_ns - newest.modified_at_ns) / 1e9)}前" if newest.modified_at_ns is not None else ""
    return value, " · ".join(part for part in (level, age) if part)


def nodes_head(nodes: Sequence[NodeSample], now_ns: int | None = None) -> str:
    """How many report and how they are."""
    return f"{count_words(nodes, 'zh')} · {context_words(nodes, now_ns, 'zh') if nodes else '没有采集器上报'}"


def cell_title(cell: Mapping[str, Any]) -> str:
    """One line on a checkpoint of the strip."""
    step = f"第 {cell['step']:,} 步" if cell["step"] is not None else "步数未知"
    level = LEVELS.get(str(cell["level"]), "") if cell["level"] else ""
    doubt = (
        " · 可疑：保存于事件开始之后"
        if cell["tone"] == "warning" and cell["state"] in ("verified", "complete", "verifying")
        else ""
    )
    return f"{step} · {STATES.get(str(cell['state']), str(cell['state']))}" + (f"（{level}）" if level else "") + doubt
