"""Rows of `requests` (what people ask from hosts that do not share the run directory) and of `control` (what is told to them).

What a row says is not believed here: whoever reads a request checks its signature (``trainvitals.control.signed``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.identity import event_time_ns
from trainvitals.records import Point
from trainvitals.store.protocol import Store

REQUESTS, CONTROL = "requests", "control"
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One row as it is stored. text: the envelope. id: the one that its writer gave it."""

    run: str
    kind: str
    time_ns: int
    id: str
    text: str
    signature: str


def request_point(run: str, kind: str, issued_at_ns: int, identifier: str, text: str, signature: str) -> Point:
    """The row of one request: at the moment it was issued, so that writing it again changes nothing."""
    fields = {"id": identifier, "json": text, "signature": signature}
    return Point(REQUESTS, {"run": run, "kind": kind}, event_time_ns(issued_at_ns, identifier), fields)


def read_request_rows(store: Store, run: str, start_ns: int, end_ns: int, limit: int) -> list[RequestRow]:
    """Rows of a run in [start, end), oldest first, at most ``limit``. Raises what the store raises."""
    frame = store.raw(REQUESTS, ["id", "json", "signature"], {"run": run}, start_ns, end_ns, limit)
    return [
        RequestRow(
            str(row["run"]), str(row["kind"]), int(row["time_ns"]), _text(row, "id"), _text(row, "json"), _text(row, "signature")
        )
        for row in frame.to_dict("records")
    ]  # fmt: skip


def control_point(run: str, time_ns: int, seq: int, text: str) -> Point:
    """The row that tells other hosts what the control directory says. seq: of the request that stands there."""
    return Point(CONTROL, {"run": run}, time_ns, {"seq": seq, "json": text})


def read_control_row(store: Store, run: str, within_ns: int, now_ns: int) -> tuple[int, str] | None:
    """(time, text) of the newest such row, None when there is none. A clock ahead by less than a day hides nothing. Raises what
    the store raises."""
    frame = store.latest(CONTROL, ["json"], {"run": run}, within_ns + DAY_NS, now_ns + DAY_NS)
    if frame.empty:
        return None
    row = {str(name): value for name, value in frame.iloc[-1].to_dict().items()}
    return int(row["time_ns"]), _text(row, "json")


def _text(row: Mapping[Any, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""
