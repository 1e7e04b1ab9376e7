"""The dashboard as the watchdogs' peer: one thread that looks whether they beat, delivers what waits, and reads the outbox for the
pages. A watchdog that died cannot deliver its own last messages; this can, where both share the user and the machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Sender
from trainvitals.clock import Clock, SystemClock
from trainvitals.control.inbox import why_not
from trainvitals.control.requests import ANNOTATION
from trainvitals.errors import TrainvitalsError
from trainvitals.settings import RunSettings, Settings
from trainvitals.web.alerts_view import AlertsView, alerts_view
from trainvitals.web.view import Snapshot
from trainvitals.web.watch_silent import WatchSilent

log = logging.getLogger(__name__)

LOOK_S = 2.0
#: Messages that the page shows, the newest.
MESSAGES = 200
#: Failed looks in a row after which every page says so: one may be a disk that was slow.
FAILED_LOOKS = 3


class AlertPeer:
    """Of one dashboard process. ``start`` and ``stop`` run its threads; tests call ``tick``. Never raises for an outbox that is away."""

    def __init__(
        self, settings: Settings, snapshot: Callable[[], Snapshot], clock: Clock | None = None, *, is_sending: bool = True
    ) -> None:  # fmt: skip
        self._settings, self._snapshot, self._clock = settings, snapshot, clock or SystemClock()
        self._outbox = Outbox(settings.outbox_path, self._clock)
        self._sender = Sender(settings, self._outbox, self._clock, log.warning) if is_sending else None
        self._silent = WatchSilent(
            settings.alerts.watch_silent_s, settings.dashboard.public_url, settings.alerts.runbook_url, is_reading
        )
        self._waiting: list[Notice] = []
        self._has_taken_up = False
        self._view = alerts_view(settings, (), ())
        self._failed_looks, self._failed_in_a_row, self._failed_last = 0, 0, ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def view(self) -> AlertsView:
        """As of the last look; never waits."""
        return self._view

    def start(self) -> None:
        """Begin to look and to deliver. Without a target there is nothing to deliver to."""
        if self._thread is None and self._settings.alert_targets:
            if self._sender is not None:
                self._sender.start()
            self._thread = threading.Thread(target=self._run, name="trainvitals-alert-peer", daemon=True)
            self._thread.start()

    def stop(self, wait_s: float = 2.0) -> None:
        """End; a message that is being sent is sent again by the next with the same id when it is cut off."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(wait_s)
        if self._sender is not None:
            self._sender.stop(wait_s)
        self._outbox.close()

    def send_again(self, id: str) -> bool:
        """Whether there was a message of that id that can be sent again. Raises ``StoreError``."""
        done = self._outbox.send_again(id)
        if self._sender is not None:
            self._sender.wake()
        return done

    def tick(self) -> None:
        """One look at everything."""
        trouble = ""
        try:
            if not self._has_taken_up:
                self._silent.take_up(_silences(self._outbox, self._settings))
                self._has_taken_up = True
            self._waiting += self._silent.look(self._snapshot(), self._clock.time_ns(), self._clock.monotonic_s())
            self._hand_over()
            health, messages = self._outbox.health(self._settings.alert_targets), self._outbox.messages(limit=MESSAGES)
            lost = self._outbox.lost()
        except TrainvitalsError as error:
            trouble, health, messages, lost = str(error), [], list(self._view.messages), self._view.lost
        self._failed_in_a_row = 0
        sentences = (*self._silent.sentences, *self._failed_words())
        self._view = alerts_view(self._settings, health, messages, lost, trouble, sentences)

    def look(self) -> None:
        """``tick``; what goes wrong in an unexpected way is counted, stands on the alerts page, and on all pages when it lasts."""
        try:
            self.tick()
        except Exception as error:
            self._failed_looks += 1
            self._failed_in_a_row += 1
            self._failed_last = f"{type(error).__name__}: {error}"[:200]
            log.exception("the look at the watchdogs failed; the next one comes in %g s", LOOK_S)
            told = f"The dashboard cannot look at its watchdogs and messages ({self._failed_last}); what stands here is of the last good look."
            is_loud = self._failed_in_a_row >= FAILED_LOOKS and self._settings.alerts.banner
            self._view = replace(
                self._view, trouble=told, sentences=self._failed_words(), banner=told if is_loud else self._view.banner
            )

    def _failed_words(self) -> tuple[str, ...]:
        if not self._failed_looks:
            return ()
        times = "once" if self._failed_looks == 1 else f"{self._failed_looks:,} times"
        return (
            f"The look at the watchdogs failed {times} since the dashboard began, last: {self._failed_last}. Its log has the details.",
        )

    def _hand_over(self) -> None:
        while self._waiting:
            notice = self._waiting[0]
            for name, target in self._settings.alert_targets.items():
                wants = notice.severity.value in target.severities and any(fnmatchcase(notice.run, glob) for glob in target.runs)
                if wants and (notice.kind is not NoticeKind.RECOVERED or target.send_recovered):
                    self._outbox.enqueue(notice, name)
            del self._waiting[0]
            if self._sender is not None:
                self._sender.wake()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(LOOK_S)


def is_reading(run: RunSettings) -> bool:
    """Whether the watchdog says in the run directory that it reads; False where that cannot be seen."""
    try:
        return not why_not(run.dir, run.name, ANNOTATION)
    except (TrainvitalsError, OSError):
        return False


def _silences(outbox: Outbox, settings: Settings) -> dict[str, str]:
    """Run -> incident of a silence that was told and is not over, by what the outbox remembers."""
    over: set[str] = set()
    found: dict[str, str] = {}
    for message in outbox.messages(limit=2_000):  # the newest first
        if message.kind == NoticeKind.RECOVERED.value:
            over.add(message.incident_id)
        elif message.kind == NoticeKind.WATCH_SILENT.value and message.incident_id not in over:
            found.setdefault(message.run, message.incident_id)
    return {run.name: found[run.name] for run in settings.runs if run.name in found}
