"""Our own English sentences in Chinese, one after the other: evidence of the checks, and states of the trainer and the breaker. Pure.

What came from people, logs and machines stands in them as it is. A sentence that is not known here stays in English between the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trainvitals.alerts.words_zh import SYMPTOMS as CHINESE_SYMPTOMS
from trainvitals.alerts.words_zh import duration
from trainvitals.incidents.symptoms import SYMPTOMS

#: Sentences of one text that are looked at; what stands beyond them stays as it is.
MAX_PIECES = 40
_STEP = r"([0-9,]{1,20})"
_NUMBER = r"([-+0-9.,e]{1,24}|nan|inf)"
_TIME = r"([0-9.]{1,10} (?:s|min|h))"
_AT = rf"(?: at step {_STEP})?"
_WHO = r"(?: \((?P<by>[^:()]{0,100}): (?P<why>[^()]{0,500})\))?"
_END = re.compile(r"[.!?] |; ", re.ASCII)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
Told = Callable[[re.Match[str]], str]


def in_chinese(english: str) -> str:
    """The text with every sentence of ours in Chinese."""
    told: list[str] = []
    rest = english.strip()
    for _ in range(MAX_PIECES):
        if not rest:
            break
        for pattern, chinese in _PIECES:
            found = pattern.match(rest)
            if found is not None and found.end():
                told.append(chinese(found))
                rest = rest[found.end() :].strip()
                break
        else:
            end = _END.search(rest)
            told.append(rest if end is None else rest[: end.end()].rstrip("; "))
            rest = "" if end is None else rest[end.end() :].strip()
    return _joined([*told, rest])


def is_wholly_known(english: str) -> bool:
    """Whether ``in_chinese`` knows every sentence of it."""
    rest = english.strip()
    for _ in range(MAX_PIECES):
        found = next((match for pattern, _ in _PIECES if (match := pattern.match(rest)) is not None and match.end()), None)
        if found is None:
            return not rest
        rest = rest[found.end() :].strip()
    return not rest


def _joined(parts: list[str]) -> str:
    text = ""
    for part in (one for one in parts if one):
        if text and not part.startswith("（") and not text.endswith(("。", "：", "；", ":", ".", "!", "?")):
            text += "；"
        elif text.endswith((".", "!", "?", ":")):
            text += " "
        text += part
    return text


def _plain(chinese: str) -> Told:
    return lambda found: found.expand(chinese)


def _timed(chinese: str) -> Told:
    """``{}``: the length of time that the pattern's last group holds."""

    def told(found: re.Match[str]) -> str:
        amount, unit = found[found.lastindex or 0].split(" ")
        return found.expand(chinese).replace("{}", duration(float(amount) * _SECONDS[unit]) if _is_number(amount) else "?")

    return told


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and text.replace(".", "").isdecimal()


def _of_state(verb: str, after: str = "") -> Told:
    """``{at}`` and who asked for it why, where the sentence names them; group 1: the step."""

    def told(found: re.Match[str]) -> str:
        values = found.groupdict()
        at = f"于第 {found[1]} 步" if found[1] else ""
        who = f"（{values['by']}：{values['why']}）" if values.get("by") else ""
        return verb.replace("{at}", at) + found.expand(after) + who

    return told


_REASONS: tuple[tuple[str, Told], ...] = (
    (rf"loss is not a number for {_STEP} points in a row \(limit {_STEP}\)", _plain(r"loss 连续 \1 个点为 NaN/Inf（上限 \2）")),
    (rf"{_STEP} anomalous points in a row; most such spikes heal by themselves", _plain(r"连续 \1 个异常点，这类突增多数会自行恢复")),
    (rf"{_STEP} anomalous points in a row \(limit {_STEP}\)", _plain(r"连续 \1 个异常点（上限 \2）")),
    (
        rf"loss has not come back since step {_STEP}: {_NUMBER} instead of {_NUMBER}, for {_STEP} points above {_STEP} % of its peak "
        rf"\(limit {_STEP}\)",
        _plain(r"loss 从第 \1 步起未回落（\2，原为 \3），已有 \4 个点高于峰值的 \5%（上限 \6）"),
    ),
    (
        rf"loss has not come back since step {_STEP}: {_NUMBER} instead of {_NUMBER}, for {_STEP} points \(limit {_STEP}\)",
        _plain(r"loss 从第 \1 步起未回落（\2，原为 \3），已计 \4 个点（上限 \5）"),
    ),
    (rf"{_STEP} of the {_STEP} points after which it acts, if the loss does not come back", _plain(r"loss 未回落，已计 \1 个点，满 \2 个点即触发")),
    (rf"{_STEP} of {_STEP} non-finite points in a row", _plain(r"连续 \1 个点为 NaN/Inf，满 \2 个点即触发")),
    (r"; already tripped for this incident", _plain("本次事件已触发过")),
    (rf",? ?(?:but )?a person paused or resumed; disarmed for {_STEP} more points", _plain(r"有人暂停或恢复过，还有 \1 个点不触发")),
    (
        rf",? ?(?:but )?only {_STEP} of {_STEP} quiet points have passed since the start or resume",
        _plain(r"启动或恢复后只过了 \1 个平稳点（需 \2 个）"),
    ),
    (
        rf",? ?(?:but )?{_STEP} of {_STEP} automatic pauses of the last 24 h are used: it only alerts now; next one at ([0-9:]{{5}}) UTC",
        _plain(r"24 小时内已自动暂停 \1 次（上限 \2），现在只告警；\3 UTC 起可再次暂停"),
    ),
    (
        rf",? ?(?:but )?{_STEP} of {_STEP} automatic pauses of the last 24 h are used: it only alerts now",
        _plain(r"24 小时内已自动暂停 \1 次（上限 \2），现在只告警"),
    ),
    (r"automatic pauses are switched off \(\[breaker\] pauses_per_day = 0\)", _plain("自动暂停已关闭（[breaker] pauses_per_day = 0）")),
    (r"the learning rate is still being warmed up", _plain("学习率仍在 warmup")),
    (r"; a loss that is no number pauses all the same", _plain("loss 为 NaN/Inf 时仍会暂停")),
    (rf"a note explains the loss for {_STEP} more points?, unless it blows up", _plain(r"有人标注说明了 loss 的变化，还有 \1 个点不触发，除非 loss 发散")),
    (rf"\(at step {_STEP}\)", _plain(r"（截至第 \1 步）")),
)  # fmt: skip
_BREAKER: tuple[tuple[str, Told], ...] = (
    (rf"dry run: would have paused at step {_STEP}(?:: ?|$|\.)", _plain(r"演练模式，不会真的暂停：本应在第 \1 步暂停")),
    (rf"asked the trainer to pause at step {_STEP}(?:: ?|$|\.)", _plain(r"已要求训练在第 \1 步暂停")),
    (
        rf"cannot pause at step {_STEP}: the trainer reads no control file\. Stop it by hand\.",
        _plain(r"无法在第 \1 步暂停：训练程序未接入控制，请手动停止。"),
    ),
    (rf"could not pause at step {_STEP}, it is tried again: ", _plain(r"第 \1 步暂停失败，正在重试：")),
    (
        rf"could not pause at step {_STEP}, and gave up after [0-9]{{1,6}} s: look, and pause it by hand",
        _plain(r"第 \1 步暂停失败，已放弃：请查看并手动暂停"),
    ),
    (
        rf"would have paused at step {_STEP}, but that was {_TIME} ago in attempt [0-9]{{1,9}}(?:: ?|$|\.)",
        _timed(r"本应在第 \1 步暂停，但那是 {}前的事"),
    ),
    (rf"the breaker is off for this run; it would have paused at step {_STEP}(?:: ?|$|\.)", _plain(r"未启用；本应在第 \1 步暂停")),
    (r"It is off for this run\.", _plain("未启用")),
    (r"It is armed and has not tripped\.", _plain("已启用，尚未触发")),
    (r"It is dry-run and has not tripped\.", _plain("演练模式，尚未触发")),
    (r"It is held now: ", _plain("目前不会自动暂停：")),
)  # fmt: skip
_TRAINER: tuple[tuple[str, Told], ...] = (
    (rf"[Rr]unning, last step {_STEP}, {_TIME} ago\.", _timed(r"运行中，最后一步：第 \1 步（{}前）")),
    (rf"[Rr]unning, last step {_STEP}\.", _plain(r"运行中，最后一步：第 \1 步")),
    (r"[Rr]unning, no step ended yet\.", _plain("运行中，尚未完成任何一步")),
    (rf"[Pp]aused{_AT}, checkpoint {_STEP}{_WHO}\.", _of_state("已{at}暂停，", r"已保存 checkpoint \2")),
    (rf"[Pp]aused{_AT}, without a checkpoint of this step{_WHO}\.", _of_state("已{at}暂停，该步没有 checkpoint")),
    (rf"[Pp]ausing(?::| without a) checkpoint{_AT}{_WHO}\.", _of_state("正在{at}暂停")),
    (rf"[Ss]aving a checkpoint{_AT}{_WHO}\.", _of_state("正在{at}保存 checkpoint")),
    (rf"[Rr]esuming{_AT}{_WHO}\.", _of_state("正在{at}恢复")),
    (rf"[Ss]topping: checkpoint{_AT}{_WHO}\.", _of_state("正在{at}停止并保存 checkpoint")),
    (
        rf"[Ss]topped{_AT}{_WHO}; it will not start again before somebody resumes the run\.",
        _of_state("已{at}停止，有人恢复之前不会再启动"),
    ),
    (rf"[Ss]topped{_AT}{_WHO}\.", _of_state("已{at}停止")),
    (
        rf"[Pp]arked{_AT}, (?:checkpoint [0-9,]{{1,20}}|without a checkpoint of this step){_WHO}; its nodes are free once its launcher ends\."
        r"(?: After a resume it has to be started again\.)?",
        _of_state("已{at}退出并释放节点；恢复后需重新启动"),
    ),
    (rf"The trainer has ended{_AT}\.", _of_state("训练进程已{at}结束")),
    (r"The trainer has ended; it last said: ", _plain("训练进程已结束，此前状态：")),
    (rf"No heartbeat from the trainer for {_TIME}; it last said: ", _timed("训练进程已 {}没有心跳，此前状态：")),
    (
        r"No trainer has reported here: not wired\.(?: Add the control client to the training loop \(docs/control\.md\)\.)?",
        _plain("训练程序未接入控制"),
    ),
)  # fmt: skip
_EVIDENCE: tuple[tuple[str, Told], ...] = (
    (rf"{_STEP} steps? before the onset\.", _plain(r"比问题出现早 \1 步。")),
    (r"Source ([^.]{1,200})\.(?= |$)", _plain(r"来源 \1。")),
    (rf"Shards (.{{1,200}}?) and {_STEP} more\.(?= |$)", _plain(r"分片 \1 等（另有 \2 个）。")),
    (r"Shards (.{1,250}?)\.(?= [A-Z]|$)", _plain(r"分片 \1。")),
    (r"From sample ([^. ]{1,60})\.", _plain(r"从样本 \1 起。")),
    (
        rf"A restart(?:, going on from step {_STEP})?: compare script, settings and what was loaded with the attempt before\.",
        lambda found: f"重启过{f'（从第 {found[1]} 步继续）' if found[1] else ''}：与上次启动逐项核对脚本、配置和加载的内容。",
    ),
    (
        rf"Attempt {_STEP} went on from (?:step {_STEP}|an unknown checkpoint), which holds weights only\.",
        lambda found: f"第 {found[1]} 次启动从{f'第 {found[2]} 步' if found[2] else '未知的 checkpoint '}继续，其中只有权重。",
    ),
    (rf"{_NUMBER} (?:now|at its worst), {_NUMBER} before the onset\.", _plain(r"\1，之前为 \2。")),
    (r"Compare the schedule with the plan before anything is started again\.", _plain("重启前先核对 LR schedule 与计划。")),
    (r"See clipping \(max_grad_norm\) and the loss scale\.", _plain("检查梯度裁剪（max_grad_norm）与 loss scale。")),
    (rf"{_STEP} others? in the log, last: ", _plain(r"日志中另有 \1 处报错，最后一处：")),
    (rf"{_STEP} in the log, last: ", _plain(r"日志中有 \1 处报错，最后一处：")),
    (rf"cause: ([^;]{{1,300}}), {_STEP} others? only followed", _plain(r"原因：\1，另有 \2 个只是随后退出")),
    (r"cause: ([^;]{1,300}); ranks? ([0-9, …]{1,120}) said nothing", _plain(r"原因：\1；rank \2 没有任何输出")),
    (r"cause: ", _plain("原因：")),
    (r"nodes: ", _plain("节点：")),
    (
        r"GPUs ([0-9]{1,3}) % busy(?: at ([0-9]{1,5}) W each)?, which is no proof of work",
        lambda found: f"GPU 占用 {found[1]}%" + (f"，每张 {found[2]} W" if found[2] else "") + "，并不说明在训练",
    ),
    (r"your monitoring: ", _plain("监控告警：")),
    (r"The trainer gave up, ", _plain("训练程序已退出：")),
)  # fmt: skip
_ACTIONS: tuple[tuple[str, Told], ...] = tuple(
    (re.escape(one.action), _plain(f"{CHINESE_SYMPTOMS[name][1]}。"))
    for name, one in SYMPTOMS.items()
    if name in CHINESE_SYMPTOMS
)
#: (pattern at the beginning of what is left, its Chinese); a final full stop goes with it.
_PIECES: tuple[tuple[re.Pattern[str], Told], ...] = tuple(
    (re.compile(pattern + (r"\.?" if not pattern.endswith((r"\.", " ", r"\.)?")) else ""), re.ASCII), told)
    for pattern, told in (*_ACTIONS, *_BREAKER, *_TRAINER, *_REASONS, *_EVIDENCE)
)
