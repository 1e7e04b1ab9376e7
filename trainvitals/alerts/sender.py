"""Delivers what the outbox holds: one thread for each target, so that a slow one delays no other."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from typing import Any

from trainvitals.alerts import http
from trainvitals.alerts.announce import announcer
from trainvitals.alerts.back_off import retry_after_s, wait_s
from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.outbox_rows import Claim
from trainvitals.alerts.secret import Credentials, Secret, credentials
from trainvitals.alerts.targets.apprise import Apprise
from trainvitals.alerts.targets.protocol import DELIVERED, GONE, PERMANENT, RETRY, Verdict, shortened
from trainvitals.alerts.targets.registry import target_of
from trainvitals.alerts.words import Message, body
from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import SettingsError, TrainvitalsError
from trainvitals.settings import Settings

#: How often a thread looks for what other processes added. What this process adds wakes it at once.
LOOK_S = 0.5
_MAX_ERROR = 300
Compose = Callable[..., Message]


class Delivery:
    """Sends the messages of one target, one at a time, in the thread that calls. ``fault`` is for tests that kill the process."""

    def __init__(
        self, settings: Settings, name: str, outbox: Outbox, clock: Clock | None = None, *, compose: Compose = body,
        post: Callable[..., http.Answer] = http.post, fault: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._settings, self._outbox, self._clock = settings, outbox, clock or SystemClock()
        self._target_settings = settings.alert_targets[name]
        self._target = target_of(self._target_settings)
        self._compose, self._post = compose, post
        self._fault = fault or (lambda point: None)

    def turn(self) -> str:
        """Deliver the next message whose time has come. Returns its outcome, "" when there was none.

        Raises ``StoreError`` when the outbox cannot be used; then nothing was sent, or it is sent again with the same id.
        """
        fingerprint = self.fingerprint()
        if self._outbox.is_disabled(self.name, fingerprint):
            self._outbox.refuse_waiting(
                self.name, "the target is switched off since it answered 410 Gone; change its settings or use `alert enable`"
            )
            return ""
        claim = self._outbox.claim(self.name, self._target.per_minute)
        if claim is None:
            return ""
        self._fault("claimed")
        started_s = time.monotonic()
        verdict, status, asked_s = self._send(claim)
        self._fault("sent")
        # Whoever tests wants to know now, and a test that arrives two hours later is a false alarm.
        is_test = claim.notice.kind is NoticeKind.TEST
        wait = wait_s(claim.tries + 1, asked_s) if verdict.outcome == RETRY and not is_test else None
        if verdict.outcome == GONE:
            self._outbox.disable(self.name, verdict.error[:_MAX_ERROR], fingerprint)
        self._outbox.settle(
            claim, verdict.outcome, status=status, duration_ms=round((time.monotonic() - started_s) * 1e3, 1),
            error=verdict.error[:_MAX_ERROR], wait_s=wait,
        )  # fmt: skip
        self._fault("settled")
        return verdict.outcome

    def fingerprint(self) -> str:
        """Of the settings and the address: a target that was switched off is tried again when they change."""
        try:
            address = self._credentials().url.reveal()
        except SettingsError:
            address = ""
        return hashlib.sha256(repr((astuple(self._target_settings), address)).encode("utf-8", "replace")).hexdigest()[:16]

    def _credentials(self) -> Credentials:
        return credentials(self._settings, self.name)

    def _send(self, claim: Claim) -> tuple[Verdict, int | None, float | None]:
        """Verdict without secrets, HTTP status, seconds that the receiver asks to wait."""
        held = Credentials(Secret(""))
        try:
            held = self._credentials()
            message = self._words(claim.notice)
            verdict, answer = self._exchange(claim, message, held)
        except SettingsError as error:
            # A file that is missing now may be there again at the next try.
            return Verdict(RETRY, held.mask(str(error))), None, None
        except Exception as error:  # noqa: BLE001 (a fault of ours in one message must not stop all others; it is seen as its error)
            return Verdict(RETRY, f"it could not be sent ({type(error).__name__})"), None, None
        asked_s = retry_after_s(answer.retry_after, self._clock.time_ns()) if answer.retry_after else None
        return Verdict(verdict.outcome, shortened(held.mask(verdict.error))), answer.status or None, asked_s

    def _words(self, notice: Notice) -> Message:
        """A page that cannot be put into fine words goes out in poor ones."""
        try:
            return self._compose(notice, self._target_settings.language)
        except Exception as error:  # noqa: BLE001 (shown in the message itself)
            what = " ".join(f"{notice.verb} {notice.run}: {notice.what}".split())
            return Message(what[:110], (("", f"the rest could not be put into words ({type(error).__name__})"),), notice.link)

    def _exchange(self, claim: Claim, message: Message, held: Credentials) -> tuple[Verdict, http.Answer]:
        if isinstance(self._target, Apprise):
            self._fault("composed")
            return self._target.deliver(claim.notice, message, held), http.Answer()
        if self._target.needs_secret and not held.secrets:
            raise SettingsError(f"The target {self.name!r} needs a secret; name a file in secret_files.")
        if not held.url and self._target_settings.kind != "pagerduty":
            raise SettingsError(f"The target {self.name!r} has no address; give url or url_file.")
        letter = self._target.letter(claim.notice, message, held, claim.id, self._clock.time_ns())
        self._fault("composed")
        route = http.Route(
            allow_private=self._target_settings.allow_private, proxy=held.proxy.reveal(),
            ca_file=str(self._settings.resolve(self._target_settings.ca_file)) if self._target_settings.ca_file else "",
        )  # fmt: skip
        answer = self._post(letter.url, letter.body, letter.headers, route)
        return self._target.verdict(answer), answer


class Sender:
    """The threads of a process, one for each target. Any number of processes may have one on the same outbox."""

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        clock: Clock | None = None,
        say: Callable[[str], None] | None = None,
        **parts: Any,
    ) -> None:
        self._say = say or _stderr
        self._outbox = outbox
        self._deliveries = [Delivery(settings, name, outbox, clock, **parts) for name in settings.alert_targets]
        self._announce = announcer(settings, outbox, clock or SystemClock())
        self._stopping = threading.Event()
        self._wakers = {delivery.name: threading.Event() for delivery in self._deliveries}
        self._threads: list[threading.Thread] = []
        #: Failures of the outbox itself, by target: nothing is delivered while they last.
        self.faults: dict[str, str] = {}

    def start(self) -> None:
        """Begin to deliver what is waiting."""
        for delivery in self._deliveries:
            thread = threading.Thread(target=self._run, args=(delivery,), name=f"alerts to {delivery.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """Something was added."""
        for waker in self._wakers.values():
            waker.set()

    def stop(self, wait_s: float = 5.0) -> bool:
        """End when what is being sent is sent, at most after ``wait_s``; whether all have ended. What waits is sent by the next."""
        self._stopping.set()
        self.wake()
        until = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, delivery: Delivery) -> None:
        waker = self._wakers[delivery.name]
        while not self._stopping.is_set():
            waker.clear()
            try:
                outcome = delivery.turn()
                if outcome in (PERMANENT, GONE, RETRY, ""):
                    self._outbox.take_unannounced(self._announce)
                self.faults.pop(delivery.name, None)
            except Exception as error:  # noqa: BLE001 (whatever it is, this target's thread must live; it is said and counted as a fault)
                outcome = ""
                fault = str(error) if isinstance(error, TrainvitalsError) else f"a fault of this program ({type(error).__name__})"
                if self.faults.get(delivery.name) != fault:
                    self._say(f"nothing is sent to {delivery.name}: {fault}")
                self.faults[delivery.name] = fault
            if outcome != DELIVERED:
                waker.wait(LOOK_S)


def _stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed terminal must not end the delivery
        print(f"alerts: {text}", file=sys.stderr, flush=True)  # noqa: T201
