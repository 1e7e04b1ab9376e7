"""The watchdog's sign of life, with what it counted and how far the run is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.records import Point


def heartbeat_point(
    run: str, node: str, now_ns: int, lost: int, newest: tuple[int | None, int | None],
    of_store: Mapping[str, float | int | str | bool],
) -> Point:  # fmt: skip
    """newest: step and its time (UTC ns), None = none yet. lost: records that were lost so far. of_store: what the store says of itself."""
    last_step, last_step_ns = newest
    fields: dict[str, float | int | str | bool] = {"ranks": 1, "alive": 1, "lost_records": lost}
    if last_step is not None and last_step_ns is not None:
        fields |= {"step_min": last_step, "step_max": last_step, "oldest_age_s": max(0.0, (now_ns - last_step_ns) / 1e9)}
    return Point("heartbeat", {"run": run, "node": node}, now_ns, {**fields, **of_store})
