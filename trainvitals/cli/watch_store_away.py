"""What people are told of a store that takes nothing: the run is watched all the same, but its curves and pages stand still."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase

from trainvitals.alerts.notice import Notice, NoticeKind, Verb, notice_id
from trainvitals.alerts.quiet import is_quiet
from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.records import Severity
from trainvitals.settings import RunSettings, Settings

#: A store that takes nothing for so long is told: it mends itself no more.
STORE_AWAY_S = 60.0
#: A store that comes and goes is told once in this time.
AGAIN_AFTER_S = 1800.0
RULE = "telemetry_lost"


class StoreAway:
    """Of one run. ``tell(notice, target)`` hands over, and raises ``StoreError`` when it cannot now.

    It is a warning: nobody has to get up for it, because detection, the breaker and the messages need no store. In quiet hours it waits.
    """

    def __init__(self, settings: Settings, run: RunSettings, clock: Clock, tell: Callable[[Notice, str], object]) -> None:
        self._settings, self._run, self._clock, self._tell = settings, run, clock, tell
        self._since_s: float | None = None
        self._told_s = float("-inf")
        self._notice: Notice | None = None
        self._over: Notice | None = None
        self._not_told: set[str] = set()

    def poll(self, trouble: str) -> bool:
        """trouble: why the store takes nothing now, "" when it does. Returns whether something was handed over."""
        if not trouble:
            return self._is_back()
        now_s = self._clock.monotonic_s()
        self._since_s = now_s if self._since_s is None else self._since_s
        is_due = now_s - self._since_s >= STORE_AWAY_S and now_s - self._told_s >= AGAIN_AFTER_S
        if self._notice is None and is_due:
            self._notice, self._told_s, self._not_told = self._made(trouble), now_s, set(self._wanting())
        return self._notice is not None and self._hand_over(self._notice)

    def _is_back(self) -> bool:
        self._since_s = None
        if self._notice is not None:
            told = set(self._wanting()) - self._not_told
            self._not_told = {name for name in told if self._settings.alert_targets[name].send_recovered}
            self._over, self._notice = self._ended(self._notice), None
        return self._over is not None and self._hand_over(self._over)

    def _made(self, trouble: str) -> Notice:
        now_ns = self._clock.time_ns()
        incident, name = f"{self._run.name}/store_away/{now_ns}", self._run.name
        what = f"the store takes nothing, so curves and pages stand still; the run is watched all the same: {trouble[:300]}"
        return Notice(
            id=notice_id(incident, NoticeKind.OPENED.value, 1), kind=NoticeKind.OPENED, number=1, run=name, incident_id=incident,
            family="watch", severity=Severity.WARNING, verb=Verb.CHECK, rule=RULE, rules=(RULE,), what=what, at_ns=now_ns,
            opened_at_ns=now_ns, gpus=self._run.gpus,
        )  # fmt: skip

    def _ended(self, notice: Notice) -> Notice:
        return replace(
            notice, id=notice_id(notice.incident_id, NoticeKind.RECOVERED.value, 1), kind=NoticeKind.RECOVERED, verb=Verb.RECOVERED,
            what="the store takes points again; what was found meanwhile is in it", at_ns=self._clock.time_ns(),
        )  # fmt: skip

    def _wanting(self) -> list[str]:
        targets, severity = self._settings.alert_targets, Severity.WARNING.value
        return [
            name
            for name, target in targets.items()
            if severity in target.severities and any(fnmatchcase(self._run.name, glob) for glob in target.runs)
        ]

    def _hand_over(self, notice: Notice) -> bool:
        """What is refused, or waits for the end of quiet hours, is tried again with the next look."""
        before, now_ns = len(self._not_told), self._clock.time_ns()
        for name in sorted(self._not_told):
            if is_quiet(self._settings.alert_targets[name], now_ns):
                continue
            with suppress(StoreError):  # the outbox itself counts and says what it refused
                self._tell(notice, name)
                self._not_told.discard(name)
        return len(self._not_told) < before
