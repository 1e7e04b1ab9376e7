"""What a ``watch`` process needs to tell people: the outbox on this machine's disk, the sender's threads, the dead man's switch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase

from trainvitals.alerts.heartbeat import DeadManHeartbeat
from trainvitals.alerts.notice import Notice, NoticeKind, Verb, notice_id
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Sender
from trainvitals.alerts.stand_in import StandIn
from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.records import Severity
from trainvitals.settings import RunSettings, Settings
from trainvitals.watch.alerting import Alerting

#: A receiver may take 15 s to answer. What is cut off is sent again with the same id, by the next watch or by one of another run.
STOP_WAIT_S = 5.0
#: A watchdog that cannot begin for so long watches nothing: somebody has to know.
BLIND_AFTER_S = 30.0


class WatchAlerts:
    """Of one process. ``alerting`` is for its watchdog; nothing is opened or called before ``start``."""

    def __init__(self, settings: Settings, run: RunSettings, clock: Clock, say: Callable[[str], None]) -> None:
        self._settings, self._run, self._clock, self._say = settings, run, clock, say
        self._outbox = Outbox(settings.outbox_path, clock)
        self._box = StandIn(settings, self._outbox, clock, say)
        self._blind_s: float | None = None
        self._blind: Notice | None = None
        self._not_told: set[str] = set()
        self._sender = Sender(settings, self._outbox, clock, lambda text: say(f"alerts: {text}"))
        self._heartbeat = DeadManHeartbeat(settings)
        self._has_targets = bool(settings.alert_targets)
        self.alerting = Alerting(settings, run, self._box, clock, say, wake=self._wake)

    def start(self) -> None:
        """Begin to deliver, and to call the address of the dead man's switch."""
        self._sender.start()
        self._heartbeat.start()

    def beat(self) -> None:
        """The watchdog made a turn."""
        self._heartbeat.beat()

    def cannot_begin(self, error: str) -> None:
        """The watchdog waits for its store and reads nothing meanwhile; told once, after a while, as nobody else can tell it."""
        now_s = self._clock.monotonic_s()
        self._blind_s = now_s if self._blind_s is None else self._blind_s
        if self._blind is None and now_s - self._blind_s >= BLIND_AFTER_S:
            now_ns = self._clock.time_ns()
            incident, name = f"{self._run.name}/watch_silent/{now_ns}", self._run.name
            what = f"nobody watches this run: its watchdog cannot begin, it waits for its store: {error[:300]}"
            self._blind = Notice(
                id=notice_id(incident, NoticeKind.WATCH_SILENT.value, 1), kind=NoticeKind.WATCH_SILENT, number=1, run=name,
                incident_id=incident, family="watch", severity=Severity.CRITICAL, verb=Verb.CHECK, rule="watch_silent",
                rules=("watch_silent",), what=what, at_ns=now_ns, opened_at_ns=now_ns, gpus=self._run.gpus,
            )  # fmt: skip
            self._not_told = set(self._wanting())
        if self._blind is not None:
            self._tell(self._blind)

    def begun(self) -> None:
        """The watchdog reads. Who was told that it does not is told that it does."""
        if self._blind is None:
            return
        self._not_told = {name for name in self._wanting() if self._settings.alert_targets[name].send_recovered}
        what, now_ns = "its watchdog works now, from where it left off", self._clock.time_ns()
        over = replace(
            self._blind, id=notice_id(self._blind.incident_id, NoticeKind.RECOVERED.value, 1), kind=NoticeKind.RECOVERED,
            verb=Verb.RECOVERED, what=what, at_ns=now_ns,
        )  # fmt: skip
        self._blind = None
        self._tell(over)

    def stop(self) -> None:
        """End both; what waits in the outbox is delivered by whoever comes next."""
        self._heartbeat.stop()
        self._sender.stop(STOP_WAIT_S)
        self._box.stop(STOP_WAIT_S)
        if self._has_targets:
            self._outbox.close()

    def _wanting(self) -> list[str]:
        critical = Severity.CRITICAL.value
        return [
            name
            for name, target in self._settings.alert_targets.items()
            if critical in target.severities and any(fnmatchcase(self._run.name, glob) for glob in target.runs)
        ]

    def _tell(self, notice: Notice) -> None:
        for name in sorted(self._not_told):
            with suppress(StoreError):  # tried again with the next look
                self._box.enqueue(notice, name)
                self._not_told.discard(name)
        self._wake()

    def _wake(self) -> None:
        self._sender.wake()
        self._box.wake()
