"""Titles of what was found (``incidents.triage``), and states of the trainer and the breaker, in Chinese. Pure.

A sentence that is not known here stays in English: better read than lost.
"""

from __future__ import annotations

import re

from trainvitals.alerts.fragments_zh import in_chinese, is_wholly_known

#: (pattern of the whole English title, Chinese with its groups).
_TITLES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), chinese)
    for pattern, chinese in (
        (r"New data began at step ([0-9,]{1,20})", r"第 \1 步开始换了新数据"),
        (r"Learning rate ([0-9,]{1,20})× what it was", r"学习率是之前的 \1 倍"),
        (r"Grad norm ([0-9,]{1,20})× what it was", r"梯度范数是之前的 \1 倍"),
        (r"Grad norm rose ([0-9,]{1,20}) steps? before the loss", r"梯度范数比 loss 早 \1 步上升"),
        (r"Grad norm rose ([0-9,]{1,20}) steps? after the loss", r"梯度范数比 loss 晚 \1 步上升"),
        (r"Grad norm rose together with the loss", "梯度范数与 loss 同时上升"),
        (r"Checkpoint without optimizer state", "checkpoint 缺失 optimizer state"),
        (r"Attempt ([0-9,]{1,20}) began ([0-9,]{1,20}) steps before", r"第 \1 次启动就在 \2 步之前"),
        (r"The program itself failed", "程序自身出错"),
        (r"Learning rate differs from the schedule", "学习率与 LR schedule 不符"),
        (r"Configuration changed with the restart", "重启后配置有变更"),
        (r"The launch picks the checkpoint", "启动时选错了 checkpoint"),
        (r"The save leaves the optimizer out", "保存时未包含 optimizer state"),
        (r"Not a finite number: (.{1,120})", r"出现 NaN/Inf：\1"),
        (r"The trainer gave up on its numbers", "训练程序因数值异常退出"),
        (r"Damaged numbers in the weights on the disk", "已保存的权重中有异常数值"),
        # As older messages have it, that are kept.
        (r"Weights on the disk are no numbers", "已保存的权重含 NaN/Inf"),
        (r"(.{1,60}) noted a new data mix from step ([0-9,]{1,20}) on", r"\1 标注：自第 \2 步起更换 data mix"),
        (r"([0-9,]{1,20}) skipped or overflowing steps", r"\1 步被跳过或溢出"),
        (r"The logs name the cause", "日志已指出原因"),
        (r"Faults in the log", "日志中有报错"),
        (r"Nodes not well", "有节点异常"),
        (r"Ranks differ", "各 rank 表现不一致"),
    )
)


def is_chinese(text: str) -> bool:
    """Whether there is a Chinese character in it."""
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


def title(english: str) -> str:
    """The title in Chinese, or as it is."""
    for pattern, chinese in _TITLES:
        found = pattern.fullmatch(english)
        if found is not None:
            return found.expand(chinese)
    return english


#: Beginning of a sentence on the trainer's control state or on the breaker -> what it comes to.
_STATES: tuple[tuple[str, str], ...] = (
    ("Running", "运行中"), ("Paused", "已暂停"), ("Pausing", "正在暂停"), ("Stopped", "已停止"), ("Stopping", "正在停止"), ("Parked", "已退出并释放节点"),
    ("Resuming", "正在恢复"), ("Saving a checkpoint", "正在保存 checkpoint"), ("The trainer has ended", "训练进程已结束"),
    ("No heartbeat from the trainer", "训练进程没有心跳"), ("No trainer has reported here", "训练程序未接入控制"),
    ("Requested", "已发出请求，等待训练进程响应"), ("Acknowledged", "训练进程已收到请求"), ("Not acknowledged", "训练进程没有响应请求"),
    ("It is armed and has not tripped", "已启用，尚未触发"), ("It is dry-run and has not tripped", "演练模式，尚未触发"), ("It is off", "未启用"),
    ("dry run:", "演练模式，不会真的暂停"), ("asked the trainer to pause", "已要求训练暂停"), ("cannot pause", "无法暂停"), ("could not pause", "暂停失败"),
    ("would have paused", "当时本应暂停，数据已过时"), ("the breaker is off", "未启用"),
)  # fmt: skip


def state(english: str) -> str:
    """A sentence on the state of the trainer or the breaker: in Chinese where all of it is known, else what it comes to, with the
    sentence itself behind it."""
    told = in_chinese(english)
    if is_wholly_known(english) or is_chinese(told[:1]):
        return told
    chinese = next((told for beginning, told in _STATES if english.startswith(beginning)), "")
    return f"{chinese}（{english}）" if chinese else english
