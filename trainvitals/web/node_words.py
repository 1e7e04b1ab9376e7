"""How the nodes are, in a few words, in both languages: how many report, which one does not and for how long. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.alerts.text import plain
from trainvitals.alerts.words_zh import duration
from trainvitals.incidents.triage import BAD_NODE_STATES
from trainvitals.records import NodeSample
from trainvitals.web import format as fmt
from trainvitals.web.node_list import NEVER_NS, missing

#: Longest name of a node in a sentence.
NAME_LIMIT = 60


def count_words(nodes: Sequence[NodeSample], language: str = "en") -> str:
    """``64``, or ``2 of 3`` when one of them does not report."""
    silent = len(missing(nodes))
    if language == "zh":
        return f"{len(nodes):,} 个中 {len(nodes) - silent:,} 个上报" if silent else f"{len(nodes):,} 个"
    return f"{len(nodes) - silent:,} of {len(nodes):,}" if silent else f"{len(nodes):,}"


def missing_words(nodes: Sequence[NodeSample], now_ns: int | None, language: str = "en", run: str = "") -> str:
    """``node17 silent for 4 min``, the one that went last and how many more; "" when all report."""
    found = missing(nodes, run)
    if not found:
        return ""
    first, more = found[0], len(found) - 1
    name = plain(first.node, NAME_LIMIT)
    age_s = None if now_ns is None or first.time_ns == NEVER_NS else max(0.0, (now_ns - first.time_ns) / 1e9)
    if language == "zh":
        told = (
            f"{name} 没有上报"
            if first.time_ns == NEVER_NS
            else f"{name} 无上报"
            if age_s is None
            else f"{name} 已 {duration(age_s)}无上报"
        )
        return told + (f"，另有 {more:,} 个" if more else "")
    told = (
        f"{name} has no report"
        if first.time_ns == NEVER_NS
        else f"{name} silent" + (f" for {fmt.coarse(age_s)}" if age_s is not None else "")
    )
    return told + (f" and {more:,} more" if more else "")


def context_words(nodes: Sequence[NodeSample], now_ns: int | None, language: str = "en") -> str:
    """What is not as it should be, the gravest first, and how many are made up."""
    bad = sum(node.state in BAD_NODE_STATES and node.state != "silent" for node in nodes)
    warm, without = sum(node.state == "warm" for node in nodes), sum(node.state == "no_gpu" for node in nodes)
    made_up = sum(node.is_simulated for node in nodes)
    if language == "zh":
        counts = [(bad, "异常"), (warm, "偏热"), (without, "无 GPU")]
        parts = [missing_words(nodes, now_ns, language), *(f"{count:,} 个{word}" for count, word in counts if count)]
        simulated = "" if not made_up else "全部为模拟" if made_up == len(nodes) else f"{made_up:,} 个模拟"
        return " · ".join([*([part for part in parts if part] or ["全部正常"]), *([simulated] if simulated else [])])
    parts = [
        missing_words(nodes, now_ns, language),
        f"{bad:,} not well" if bad else "",
        f"{warm:,} warm" if warm else "",
        f"{without:,} without GPU" if without else "",
    ]
    simulated = f" · {'all' if made_up == len(nodes) else f'{made_up:,}'} simulated" if made_up else ""
    return (" · ".join(part for part in parts if part) or "all well") + simulated


def report_fact(nodes: Sequence[NodeSample], run: str, now_ns: int, language: str = "en") -> str:
    """What stands beside the verdict of a run of which a machine does not report; "" when all do, or it is not known which they are."""
    own = [node for node in nodes if node.run == run and not node.is_simulated]
    told = missing_words(own, now_ns, language)
    if not told:
        return ""
    return f"节点 {count_words(own, language)}：{told}" if language == "zh" else f"{count_words(own)} nodes report: {told}"
