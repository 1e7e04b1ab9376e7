"""Says through the other targets that one of them does not deliver: a dead letter that nobody hears of is a missed page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from trainvitals.alerts.notice import Notice, NoticeKind, Verb
from trainvitals.alerts.outbox import Outbox
from trainvitals.clock import Clock
from trainvitals.settings import Settings

_HOUR_NS = 3_600_000_000_000
#: The rest of the sentence is what was not told, which matters more.
_ERROR_CHARACTERS = 100


def announcer(settings: Settings, outbox: Outbox, clock: Clock) -> Callable[[str, Notice, str], None]:
    """``announce(target, notice, error)`` tells each other target that takes this severity and run: once an hour of a failing
    target, as critical as what was not delivered."""

    def announce(target: str, notice: Notice, error: str) -> None:
        hour = clock.time_ns() // _HOUR_NS
        told = replace(
            notice,
            id=f"not-delivered-{target}-{hour}-{notice.severity}",
            kind=NoticeKind.NOT_DELIVERED,
            number=1,
            incident_id=f"not-delivered/{target}",
            verb=Verb.CHECK,
            rule="alert_not_delivered",
            rules=("alert_not_delivered",),
            what=f"alerts do not reach {target}: {error[:_ERROR_CHARACTERS]}; not told: {notice.verb}: {notice.what}",
            at_ns=clock.time_ns(),
            opened_at_ns=clock.time_ns(),
            runbook_url="",
            step=None, metric="", value=None, expected=None, suspects=(), items=(), more=0,
        )  # fmt: skip
        for name, other in settings.alert_targets.items():
            wants = notice.severity.value in other.severities and any(fnmatchcase(notice.run, glob) for glob in other.runs)
            if name != target and wants:
                outbox.enqueue(told, name)

    return announce
