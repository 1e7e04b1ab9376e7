"""What collectors and the list of nodes say of a node, in Chinese, piece by piece; a piece that is not known stays as it is. Pure."""

from __future__ import annotations

import re

#: Pieces of one text that are looked at.
MAX_PIECES = 12
_GPU = re.compile(r"GPU ([0-9]{1,3})(?: \([^()]{1,80}\))? ", re.ASCII)
#: What is said of one GPU, behind its number.
_OF_GPU: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), chinese)
    for pattern, chinese in (
        (
            r"is lost \(fell off the bus, last answered ([0-9 :-]{19}) UTC\).{0,80}",
            r"掉卡（最后响应 \1 UTC）：重启节点后检查硬件",
        ),
        (r"is lost \(fell off the bus\).{0,80}", "掉卡：重启节点后检查硬件"),
        (r"needs a reset \(([^()]{1,40})\)", r"需要复位（\1）"),
        (r"could not remap a bad memory row: replace it", "坏显存行无法重映射，需更换"),
        (r"needs help, its driver says: (.{1,80})", r"驱动要求处理：\1"),
        (r"reported XID ([0-9]{1,5}): drain the node", r"报告 XID \1，应隔离该节点"),
        (r"reported XID ([0-9]{1,5}): investigate", r"报告 XID \1，需排查"),
        (r"has new uncorrectable memory errors \(([0-9]{1,20})\)", r"新增不可纠正显存错误（累计 \1）"),
        (r"had new uncorrectable memory errors ([0-9]{1,4}) min ago \(.{1,20}\)", r"\1 分钟前新增不可纠正显存错误"),
        (r"had ([0-9]{1,20}) uncorrectable memory errors since the driver was loaded", r"驱动加载以来有 \1 次不可纠正显存错误"),
        (r"cannot be asked \(([^()]{1,40})\).{0,80}", r"无法查询（\1）"),
        (r"answers no question \(.{1,120}\).{0,40}", "查询均无响应，需复位或重启"),
        (r"waits for a reset to remap a memory row", "等待复位以重映射显存行"),
        (r"is slowed down by its hardware \(reasons (0x[0-9a-f]{1,8})\)", r"被硬件降频（\1）"),
        (r"was slowed down by its hardware \(reasons (0x[0-9a-f]{1,8})\)", r"曾被硬件降频（\1）"),
        (r"is slowed down because it is hot", "因温度降频"),
        (r"is hot", "温度偏高"),
        (r"(ok|warm|warn|fail|lost|silent)", r"\1"),
    )
)
#: What is said of the whole node.
_OF_NODE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), chinese)
    for pattern, chinese in (
        (r"it last said (.{1,20}?)(?:: (.{1,200}))?", r"最后上报：\1"),
        (
            r"(.{1,128}) runs on it, and it has not reported for a day, or never",
            r"任务 \1 在用该节点，但一天内没有上报，或从未上报",
        ),
        (r"its clock is (.{1,20}) behind this machine's, or its samples come late", r"时钟慢 \1，或上报延迟"),
        (r"its clock is (.{1,20}) ahead of this machine's, or its samples come late", r"时钟快 \1"),
        (r"more than one machine reports as (.{1,128}) \(.{1,60}\): give each its own --node", r"有多台机器以 \1 之名上报"),
        (
            r"([0-9]{1,4}) of ([0-9]{1,4}) GPUs are there: reboot the node, then check the hardware",
            r"\2 张 GPU 只剩 \1 张：重启节点后检查硬件",
        ),
        (r"driver unresponsive: no answer for ([0-9]{1,9}) s", r"驱动 \1 秒无响应"),
        (r"the driver is being opened for ([0-9]{1,9}) s: .{1,160}", r"驱动正在初始化（已 \1 秒）"),
        (r"no NVIDIA driver on this machine|no GPU on this host", "该节点没有 NVIDIA 驱动"),
        (r"the NVIDIA driver reports no GPU", "驱动未发现 GPU"),
        (r"driver library and kernel module differ in version .{1,120}", "驱动库与内核模块版本不一致，需重新加载或重启"),
        (r"the NVIDIA driver library is there, but the kernel module is not loaded.{0,80}", "驱动内核模块未加载"),
        (r"the NVIDIA driver cannot be opened.{0,200}", "驱动无法打开，查看内核日志；容器内可能丢失了设备"),
        (r"the NVIDIA driver may not be asked by this user.{0,120}", "没有权限查询驱动"),
        (r"this machine has ([0-9]{1,4}) GPUs?", r"该机有 \1 张 GPU"),
        (r"and ([0-9]{1,5}) more", r"另有 \1 处"),
        (r"simulated", "模拟"),
    )
)
_STATES = {
    "ok": "正常", "warm": "偏热", "warn": "警告", "fail": "故障", "lost": "失联", "silent": "无上报", "no gpu": "无 GPU", "unknown": "未知",
}  # fmt: skip


def node_text_zh(text: str) -> str:
    """The line of a node on the wall."""
    pieces = re.split(r"(; | · |, (?=GPU [0-9]))", text, maxsplit=MAX_PIECES)
    return "".join({"; ": "；", " · ": " · ", ", ": "，"}.get(piece, _piece(piece)) for piece in pieces)


def _piece(piece: str) -> str:
    begin, colon, rest = piece.partition(": ")
    if begin.startswith("it last said ") and colon:
        return f"{_piece(begin)}（{_piece(rest)}）"
    found = _GPU.match(piece)
    if found is not None:
        said = piece[found.end() :]
        tail = re.fullmatch(r"(.{1,200}?) and ([0-9]{1,5}) more", said, re.ASCII)
        told = _known(_OF_GPU, tail[1] if tail else said)
        return f"GPU {found[1]} {_state(told)}" + (f"，另有 {tail[2]} 张" if tail else "")
    return _known(_OF_NODE, piece)


def _known(table: tuple[tuple[re.Pattern[str], str], ...], piece: str) -> str:
    for pattern, chinese in table:
        found = pattern.fullmatch(piece)
        if found is not None:
            told = found.expand(chinese)
            head, mark, state = told.rpartition("最后上报：")
            return f"{head}{mark}{_state(state)}" if mark else told
    return piece


def _state(text: str) -> str:
    return _STATES.get(text, text)
