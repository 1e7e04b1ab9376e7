"""The wall's curves in Chinese: our own words in a finished figure, one by one; what is not known stays as it is. Pure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.records import Finding
from trainvitals.web.wall_zh import finding_sentence

#: Titles of rows; a title may have more behind it.
_TITLES: Mapping[str, str] = {
    "grad norm": "梯度范数", "learning rate": "学习率", "GPU utilization": "GPU 利用率", "TFLOP/s per GPU": "单卡 TFLOP/s", "throughput": "吞吐",
}  # fmt: skip
#: (pattern of what we write on a chart, Chinese with its groups); numbers and names keep their place.
_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), chinese)
    for pattern, chinese in (
        (r"^onset ([0-9,]{1,20})$", r"异常始于 \1"),
        (r"^died ([0-9,]{1,20})$", r"中断于 \1"),
        (r"^attempt ([0-9]{1,9}) from ([0-9,]{1,20})$", r"第 \1 次启动，自 \2"),
        (r"^attempt ([0-9]{1,9})$", r"第 \1 次启动"),
        (r"^paused by breaker, step ([0-9,]{1,20})$", r"熔断暂停，第 \1 步"),
        (r"^paused by (.{1,60}), step ([0-9,]{1,20})$", r"\1 暂停，第 \2 步"),
        (r"^paused, step ([0-9,]{1,20})$", r"暂停，第 \1 步"),
        (r"^paused by (.{1,60})$", r"\1 暂停"),
        (r"^paused$", "暂停"),
        (r"^stalled$", "停滞"),
        (r"^checkpoint$", "checkpoint"),
    )
)
_AROUND_TITLE = ((" · not logged in this range", " · 此范围内未记录"), (" (log)", "（对数）"), (" (simulated)", "（模拟）"))
_LEGENDS = (("</span> validation loss", "</span> 验证 loss"), ("</span> note", "</span> 备注"))
_PEAKS = re.compile(r" · ([0-9,]{1,20}) peaks? cut off, highest (.{1,20})</b>", re.ASCII)
_ATTEMPT = re.compile(r" · attempt ([0-9]{1,9}), run again later$", re.ASCII)


def figure_zh(figure_json: str, findings: Sequence[Finding]) -> str:
    """The figure of ``charts.figure_json`` with our words in Chinese."""
    figure: dict[str, Any] = json.loads(figure_json)
    sentences = {one.id: finding_sentence(one) for one in findings}
    for one in figure["layout"].get("annotations", ()):
        one["text"] = _title(one["text"]) if one.get("name") == "title" else _label(one["text"])
    axis = figure["layout"].get("xaxis", {})
    if "unifiedhovertitle" in axis:
        axis["unifiedhovertitle"] = {"text": "第 %{x:,.0f} 步"}
    for trace in figure["data"]:
        _trace(trace, sentences)
    return json.dumps(figure, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _trace(trace: dict[str, Any], sentences: Mapping[str, str]) -> None:
    meta = trace.get("meta")
    if isinstance(meta, dict) and meta.get("kind") == "finding" and isinstance(trace.get("text"), list):
        ids = trace.get("customdata") or []
        told = [sentences.get(str(id), "") for id in ids]
        trace["text"] = [html.escape(new) or old for new, old in zip(told, trace["text"], strict=False)]
    name = trace.get("name")
    if isinstance(name, str):
        bare = _ATTEMPT.sub("", name)
        tail = _ATTEMPT.search(name)
        trace["name"] = _TITLES.get(bare, bare) + (f" · 第 {tail[1]} 次启动，之后重算" if tail else "")


def _title(text: str) -> str:
    for english, chinese in _AROUND_TITLE:
        text = text.replace(english, chinese)
    for english, chinese in _LEGENDS:
        text = text.replace(english, chinese)
    text = _PEAKS.sub(r" · \1 个尖峰超出范围，最高 \2</b>", text)
    for english, chinese in _TITLES.items():
        for end in ("<", "（", " "):
            if text.startswith(f"<b>{english}{end}"):
                return f"<b>{chinese}{text[3 + len(english) :]}"
    return text


def _label(text: str) -> str:
    for pattern, chinese in _PHRASES:
        found = pattern.match(text)
        if found is not None:
            return found.expand(chinese)
    return text
