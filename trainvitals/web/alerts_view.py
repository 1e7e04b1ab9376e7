"""What the alerts page and the banner show: targets, messages, and whether a page would reach anybody. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainvitals.alerts.outbox_rows import Message, TargetHealth
from trainvitals.alerts.quiet import held_until
from trainvitals.records import Event
from trainvitals.settings import Settings, TargetSettings

#: Failures in a row after which a target does not work: one may be a receiver that asks to wait.
FAILURES = 2


@dataclass(frozen=True, slots=True)
class TargetView:
    """One target of the settings. pages: it takes critical messages. ``state``: works, not used yet, failing, switched off."""

    name: str
    kind: str
    severities: tuple[str, ...]
    runs: tuple[str, ...]
    pages: bool
    state: str
    health: TargetHealth


@dataclass(frozen=True, slots=True)
class AlertsView:
    """Of this machine's outbox at one moment. trouble: why it cannot be read, "" = it can. lost: messages dropped undelivered.

    sentences: what is not known or odd about the watchdogs. banner: what every page says in red, "" = nothing.
    """

    targets: tuple[TargetView, ...] = ()
    messages: tuple[Message, ...] = ()
    lost: int = 0
    trouble: str = ""
    sentences: tuple[str, ...] = ()
    banner: str = ""


def alerts_view(
    settings: Settings, health: Sequence[TargetHealth], messages: Sequence[Message], lost: int = 0, trouble: str = "",
    sentences: Sequence[str] = (),
) -> AlertsView:  # fmt: skip
    """health: of the settings' targets, those that are known."""
    by_name = {one.name: one for one in health}
    targets = tuple(
        _target(name, target, by_name.get(name, TargetHealth(name))) for name, target in settings.alert_targets.items()
    )
    banner = banner_of(settings.alert_targets, targets, [run.name for run in settings.runs], trouble)
    shown = banner if settings.alerts.banner else ""
    return AlertsView(targets, tuple(messages), lost, trouble, tuple(sentences), shown)


def banner_of(
    settings: Mapping[str, TargetSettings], targets: Sequence[TargetView], runs: Sequence[str], trouble: str = ""
) -> str:  # fmt: skip
    """One sentence when a critical incident of a run would reach nobody; "" when each would."""
    paging = [one for one in targets if one.pages]
    if not paging:
        what = "takes critical messages" if targets else "is configured"
        return (
            f"Nobody is paged: no alert target {what}. Add one under [alerts.targets.NAME] in trainvitals.toml (docs/alerts.md)."
        )
    if trouble:
        return f"It is not known whether pages get through: the outbox cannot be read. {trouble}"
    if all(one.state in ("failing", "switched off") for one in paging):
        told = "; ".join(
            f"{one.name} {one.state}" + (f" ({one.health.error[:120]})" if one.health.error else "") for one in paging
        )
        return f"No page gets through: {told}. See the page Alerts."
    alone = [run for run in runs if not any(_takes(settings[one.name], run) for one in paging)]
    if alone:
        named = ", ".join(alone[:3]) + (f" and {len(alone) - 3:,} more" if len(alone) > 3 else "")
        return f"Nobody is paged for {named}: no alert target that takes critical messages names it under runs."
    return ""


def state_words(view: TargetView, target: TargetSettings | None, now_ns: int) -> str:
    """``works``, and until when quiet hours hold back what is not critical: nothing else on the page shows what waits there."""
    until = held_until(target, now_ns) if target is not None else ""
    return f"{view.state}; quiet, all but critical is held until {until}" if until else view.state


@dataclass(frozen=True, slots=True)
class SilenceView:
    """One that holds now. until_ns: UTC."""

    id: str
    by: str
    comment: str
    what: str
    until_ns: int


def silences_now(events: Sequence[Event], now_ns: int) -> tuple[SilenceView, ...]:
    """Of a run's events of kind ``silence``; those that ended, or that somebody ended, are left out."""
    told = sorted((event for event in events if event.kind == "silence"), key=lambda event: event.time_ns or 0)
    held: dict[str, SilenceView] = {}
    for event in told:
        data, id = event.data, str(event.data.get("silence", ""))
        until_ns = data.get("until_ns")
        if data.get("end") or not id:
            held.pop(id, None)
        elif isinstance(until_ns, int) and until_ns > now_ns:
            parts = [*map(str, data.get("rules") or ()), *(f"all of {name}" for name in data.get("families") or ())]
            what = f"{', '.join(parts) or 'everything'} up to {data.get('up_to', 'warning')}"
            held[id] = SilenceView(id, str(data.get("by", "")), str(data.get("comment", "")), what, until_ns)
    return tuple(held.values())


def _target(name: str, target: TargetSettings, health: TargetHealth) -> TargetView:
    if health.disabled_ns is not None:
        state = "switched off"
    elif health.failures_in_a_row >= FAILURES:
        state = "failing"
    else:
        state = "works" if health.last_ok_ns is not None else "not used yet"
    return TargetView(name, target.kind, target.severities, target.runs, "critical" in target.severities, state, health)


def _takes(target: TargetSettings, run: str) -> bool:
    return any(fnmatch.fnmatchcase(run, glob) for glob in target.runs)
