"""Every word of ours on the wall, in English and in Chinese. Pure; what comes from outside is not translated."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

LANGUAGES = ("en", "zh")


def language_of(told: str) -> str:
    """``zh`` for anything that asks for Chinese (zh, zh-CN), else English."""
    return "zh" if told[:2].lower() == "zh" else "en"


#: Why the wall shows nothing; one sentence each, without a name or a path.
REFUSALS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "en": {
            "needs_link": "The wall opens with a link of its own. Ask whoever runs this dashboard for one (python -m trainvitals wall link RUN).",
            "altered": "This link is not one of this dashboard's: it was altered or cut, or its key was changed.",
            "expired": "This link has expired. Ask whoever runs this dashboard for a new one.",
            "revoked": "This link was revoked. Ask whoever runs this dashboard for a new one.",
            "other_run": "This link is for another run than the one that its address names.",
            "no_run": "This dashboard no longer knows the run that this link is for.",
            "closed": "This dashboard cannot check links now; its log says why.",
        },
        "zh": {
            "needs_link": "看板需凭专用链接打开，请向看板管理员索取（python -m trainvitals wall link RUN）。",
            "altered": "链接无效：内容被改动或截断，或签名密钥已更换。",
            "expired": "链接已过期，请向看板管理员索取新链接。",
            "revoked": "链接已被吊销，请向看板管理员索取新链接。",
            "other_run": "该链接不适用于地址中所写的任务。",
            "no_run": "该链接对应的任务已不在看板中。",
            "closed": "看板暂时无法校验链接，原因见其日志。",
        },
    }
)

#: Fixed texts of the page.
TEXTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "en": {
            "cannot_start": "This dashboard cannot start; its log says why.",
            "reading": "Reading the store for the first time …",
            "no_store": "The store cannot be read yet; this page goes on by itself when it can.",
            "store_old": "⚠ The store does not answer. What you see is {} old; it goes on by itself.",
            "drawing": "Drawing …",
            "curve_old": "⚠ The curves are {} old.",
            "waiting": "Waiting for the first step. The curves begin by themselves.",
            "curves": "loss, grad norm and throughput",
            "checkpoints": "Checkpoints · {} seen",
            "no_checkpoints": "No checkpoint seen yet.",
            "nodes": "Nodes · {}",
            "no_nodes": "No collector reports node health here.",
            "attempt": "attempt {}",
        },
        "zh": {
            "cannot_start": "看板无法启动，原因见其日志。",
            "reading": "首次读取存储 …",
            "no_store": "暂时无法读取存储，可读后本页自动恢复。",
            "store_old": "⚠ 存储无响应，当前内容是 {}前的，恢复后自动更新。",
            "drawing": "绘制中 …",
            "curve_old": "⚠ 曲线是 {}前的。",
            "waiting": "等待第一步，曲线会自动出现。",
            "curves": "loss、梯度范数与吞吐",
            "checkpoints": "Checkpoint · 已发现 {} 个",
            "no_checkpoints": "尚未发现 checkpoint。",
            "nodes": "节点 · {}",
            "no_nodes": "没有采集器上报节点健康状况。",
            "attempt": "第 {} 次启动",
        },
    }
)

#: What the components say by themselves; English is built into them.
BAND: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "en": {},
        "zh": {
            "age": "数据 {}前更新",
            "none": "尚无数据",
            "alone": "看板已 {}没有响应",
            "since": "自 {} 起",
            "units": ["秒", "分钟", "小时", "天"],
        },
    }
)
STRIP: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"en": {}, "zh": {"none": "尚未发现 checkpoint。", "safe": "安全", "recommended": "推荐："}}
)
NODE_STATES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "en": {},
        "zh": {
            "ok": "正常", "warm": "偏热", "warn": "警告", "fail": "故障", "lost": "失联", "silent": "无上报", "drained": "已隔离", "no_gpu": "无 GPU",
            "unknown": "未知", "simulated": "模拟",
        },
    }
)  # fmt: skip
