"""What a ``watch`` process needs to tell people: the outbox on this machine's disk, the sender's threads, the dead man's switch."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.alerts.heartbeat import DeadManHeartbeat
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Sender
from trainvitals.alerts.stand_in import StandIn
from trainvitals.cli.watch_store_away import StoreAway
from trainvitals.clock import Clock
from trainvitals.settings import RunSettings, Settings
from trainvitals.watch.alerting import Alerting

#: A receiver may take 15 s to answer. What is cut off is sent again with the same id, by the next watch or by one of another run.
STOP_WAIT_S = 5.0


class WatchAlerts:
    """Of one process. ``alerting`` is for its watchdog; nothing is opened or called before ``start``."""

    def __init__(self, settings: Settings, run: RunSettings, clock: Clock, say: Callable[[str], None]) -> None:
        self._settings, self._run, self._clock, self._say = settings, run, clock, say
        self._outbox = Outbox(settings.outbox_path, clock)
        self._box = StandIn(settings, self._outbox, clock, say)
        self._away = StoreAway(settings, run, clock, self._box.enqueue)
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

    def store(self, trouble: str) -> None:
        """Why the watchdog's store takes nothing now, "" when it does."""
        if self._away.poll(trouble):
            self._wake()

    def stop(self) -> None:
        """End both; what waits in the outbox is delivered by whoever comes next."""
        self._heartbeat.stop()
        self._sender.stop(STOP_WAIT_S)
        self._box.stop(STOP_WAIT_S)
        if self._has_targets:
            self._outbox.close()

    def _wake(self) -> None:
        self._sender.wake()
        self._box.wake()
