"""What the wall shows of a run, as plain mappings for the components. Pure; it offers nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainvitals.alerts.words_zh import duration
from trainvitals.charts.checkpoints import strip
from trainvitals.charts.nodes import wall_payload
from trainvitals.web import format as fmt
from trainvitals.web import wall_words, wall_zh
from trainvitals.web.node_text_zh import node_text_zh
from trainvitals.web.present import band, nodes_tile, tiles
from trainvitals.web.view import RunView, Snapshot

#: Tiles that say what the band or a card of their own says already.
_ELSEWHERE = frozenset({"Data age", "Nodes"})
_CHECKPOINTS = frozenset({"Verified checkpoint", "Safe checkpoint"})


def band_view(snapshot: Snapshot, run: RunView, now_ns: int, refresh_s: float, language: str) -> dict[str, Any]:
    """The verdict without what is asked of anybody: no buttons, no decision. No names of people: who has the link is not known."""
    view = band(snapshot, run, now_ns, refresh_s, names_people=False) | {"actions": [], "decision": ""}
    view["is_thin"] = view["tone"] in ("ok", "info") and not view["automatic"]
    if language == "zh":
        view |= wall_zh.band(snapshot, run, now_ns) | {"words": wall_words.BAND["zh"]}
    return view


def tile_views(snapshot: Snapshot, run: RunView, now_ns: int, language: str, shows: Sequence[str]) -> list[dict[str, Any]]:
    """Numbers against what is usual, without those of cards that are not to be shown."""
    hidden = _ELSEWHERE if "checkpoints" in shows else _ELSEWHERE | _CHECKPOINTS
    shown = [tile for tile in tiles(snapshot, run, now_ns) if tile["label"] not in hidden]
    return [wall_zh.tile(tile, run, now_ns) for tile in shown] if language == "zh" else shown


def strip_cells(run: RunView, language: str) -> list[dict[str, Any]]:
    """The newest checkpoints; no path leaves the dashboard, the cells have numbers in its place."""
    cells = strip(run.checkpoints, run.recommended, run.suspects)
    told = [wall_zh.cell_title(cell) for cell in cells] if language == "zh" else [cell["title"] for cell in cells]
    return [cell | {"path": f"{index}", "title": title} for index, (cell, title) in enumerate(zip(cells, told, strict=True))]


def nodes_view(snapshot: Snapshot, language: str) -> tuple[str, dict[str, Any]]:
    """(how many and how they are, what ``node_wall`` draws)."""
    payload = wall_payload(snapshot.nodes, snapshot.gpus)
    if language == "zh":
        payload["texts"] = {index: node_text_zh(text) for index, text in payload["texts"].items()}
        return wall_zh.nodes_head(snapshot.nodes, snapshot.taken_at_ns), payload
    tile = nodes_tile(snapshot.nodes, snapshot.taken_at_ns)
    return f"{tile['value']} · {tile['context']}", payload


def span(seconds: float, language: str) -> str:
    """A length of time in words."""
    return duration(seconds) if language == "zh" else fmt.span(seconds)
