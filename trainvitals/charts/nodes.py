"""Node samples → the node wall's payload: one byte a tile, texts only for what is not well."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from trainvitals.charts.text import plain
from trainvitals.records import GpuSample, NodeSample

#: Position = code on the wire; worst last among the states that need a look. "" = no such tile.
STATES = ("ok", "warm", "warn", "fail", "lost", "silent", "drained", "no_gpu", "unknown", "")
#: Set on the byte of a simulated node, so that nobody takes a drill for the real thing.
SIMULATED_BIT = 0x80
NO_TILE = STATES.index("")
MAX_GPUS = 16
_GROUP = re.compile(r"^(.*\d)(?:[-_.]?[A-Za-z]+[-_.]?|[-_.])\d+$")


def group_of(node: str) -> str:
    """Rack or pod of a node by its name: everything before the last number, if a number remains (rack12-node03 → rack12)."""
    match = _GROUP.match(node)
    return match.group(1) if match else ""


def state_code(state: str) -> int:
    """Code of a state; a state unknown here is shown as unknown, never as ok."""
    return STATES.index(state) if state and state in STATES else STATES.index("unknown")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts node9 before node10."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part)


def wall_payload(nodes: Sequence[NodeSample], gpus: Sequence[GpuSample]) -> dict[str, Any]:
    """JSON values for ``node_wall``.

    ``tiles``: base64, one byte a node (code in ``states``, ``SIMULATED_BIT`` on top), in the order of ``names``.
    ``gpu_tiles``: the same for ``gpus_per_node`` GPUs of each node. ``names_hash`` stands for ``names`` and ``groups``.
    ``texts``: index of a node → one line, only where something is not well. ``counts``: state → nodes.
    """
    # Real nodes first: nobody should look for the one that matters behind a drill's.
    ordered = sorted(nodes, key=lambda node: (node.is_simulated, group_of(node.node) == "", natural_key(node.node)))
    by_node: dict[str, list[GpuSample]] = defaultdict(list)
    for gpu in gpus:
        by_node[gpu.node].append(gpu)
    width = min(max((len(found) for found in by_node.values()), default=0), MAX_GPUS)
    tiles = bytearray()
    gpu_tiles = bytearray()
    texts: dict[str, str] = {}
    for index, node in enumerate(ordered):
        code = state_code(node.state)
        tiles.append(code | (SIMULATED_BIT if node.is_simulated else 0))
        held = sorted(by_node.get(node.node, ()), key=lambda gpu: gpu.index)[:width]
        gpu_tiles += bytes([*(state_code(gpu.state) for gpu in held), *[NO_TILE] * (width - len(held))])
        if code:
            texts[str(index)] = _text(node, held)
    names = [plain(node.node, 120) for node in ordered]
    groups = [plain(group, 60) for group in _labels(ordered)]
    return {
        "states": list(STATES),
        "tiles": base64.b64encode(tiles).decode("ascii"),
        "gpu_tiles": base64.b64encode(gpu_tiles).decode("ascii"),
        "gpus_per_node": width,
        "names": names,
        "groups": groups,
        "names_hash": hashlib.blake2b(json.dumps([names, groups]).encode(), digest_size=8).hexdigest(),
        "texts": texts,
        "counts": dict(Counter(node.state or "unknown" for node in ordered)),
        "simulated": sum(node.is_simulated for node in ordered),
    }


def _labels(ordered: Sequence[NodeSample]) -> list[str]:
    """A label for each node's group; nodes without one are named by what they are, so that no block stands nameless."""
    groups = [group_of(node.node) for node in ordered]
    is_mixed = len({node.is_simulated for node in ordered}) > 1
    others = "other nodes" if any(groups) else ""
    return [
        group or ("real nodes" if is_mixed and not node.is_simulated else others)
        for group, node in zip(groups, ordered, strict=True)
    ]


def _text(node: NodeSample, held: Sequence[GpuSample]) -> str:
    bad = [f"GPU {gpu.index} {gpu.state}" for gpu in held if gpu.state != "ok"]
    parts = [
        node.text or ("no GPU on this host" if node.state == "no_gpu" else ""),
        ", ".join(bad[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else ""),
    ]
    return plain(" · ".join(part for part in parts if part), 200)
