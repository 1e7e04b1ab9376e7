"""What people ask of the watchdog: each request of ``control/requests/`` becomes one event, once, however often we are killed.

``poll`` reads requests, remembers them in the state and returns their events; the caller commits both together and then calls
``settle``, which writes the answers and takes the files away. A kill in between leaves files that the state knows already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainvitals.control import inbox
from trainvitals.control.records import MAX_NAME
from trainvitals.control.requests import ANNOTATION, BREAKER, Answer, Watcher, WatchRequest
from trainvitals.detect.findings import format_duration
from trainvitals.errors import ControlError, InputError
from trainvitals.identity import event_id
from trainvitals.masking import mask_cut_text, mask_text
from trainvitals.records import Event
from trainvitals.watch.annotation_request import AnnotationRequests

LOOK_EVERY_S = 1.0
ANNOUNCE_EVERY_S = 5.0
#: Requests read in one look: the rest waits, in order, and the steps of the run come first.
MAX_A_LOOK = 20
#: Answers that could not be written yet; beyond this nothing more is read.
MAX_UNSETTLED = 200
#: Ids remembered beyond the file's life: whoever copies an answered request back gets no second event.
MAX_REMEMBERED = 200
#: Looks at a file that holds no request before it is refused: on a file system without links its writer may be under way.
TRIES = 3
#: What somebody wanted of the breaker when nobody watched is not carried out later than this: it was about the run as it was then.
OLD_AFTER_S = 3600.0

#: (request, newest step) -> (its event, the sentence of the answer). Raises ``InputError`` for a request that it refuses.
Apply = Callable[[WatchRequest, int | None], tuple[Event, str]]


class Requests:
    """Of one run directory. ``host``: for people, who ask which watchdog reads here."""

    def __init__(
        self, run_dir: str, run: str, host: str = "", kinds: Mapping[str, Apply] | None = None,
        told: Callable[[Answer], None] = lambda _: None, breaker: Callable[[], tuple[str, str]] = lambda: ("", ""),
    ) -> None:  # fmt: skip
        """told: gets each answer before it is written, perhaps again after a kill. breaker: the mode in force, and what holds it."""
        self._dir, self._run, self._host, self._tell = run_dir, run, host, told
        self.breaker = breaker
        self._kinds: Mapping[str, Apply] = {ANNOTATION: AnnotationRequests(run).apply} if kinds is None else kinds
        self._due_s = self._announce_due_s = float("-inf")
        self._unsettled: dict[str, Answer] = {}
        self._done: list[str] = []
        self._tries: dict[str, int] = {}
        self._read_trouble = self._answer_trouble = ""
        #: Requests refused since the watchdog first ran here.
        self.refused = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """What may be asked for here."""
        return tuple(self._kinds)

    @property
    def trouble(self) -> str:
        """Why requests or answers are stuck, "" when all is well."""
        return self._read_trouble or self._answer_trouble

    def poll(self, now_s: float, now_ns: int, last_step: int | None) -> list[Event]:
        """Events of new requests; looks at most once a second. now_s: monotonic. last_step: the newest that was read."""
        if now_s < self._due_s or not self._dir:
            return []
        self._due_s = now_s + LOOK_EVERY_S
        try:
            if now_s >= self._announce_due_s:
                inbox.announce(self._dir, Watcher(self._run, tuple(self._kinds), self._host, os.getpid(), *self.breaker()))
                self._announce_due_s = now_s + ANNOUNCE_EVERY_S
            found = inbox.listing(self._dir)
        except (ControlError, InputError, OSError) as error:
            self._read_trouble = f"requests of people cannot be read: {error}"
            return []
        new = [name for name in found.names if name not in self._unsettled]
        self._tries = {name: tries for name, tries in self._tries.items() if name in new}
        self._read_trouble = self._trouble_of(found)
        events = []
        for name in new[: max(0, min(MAX_A_LOOK, MAX_UNSETTLED - len(self._unsettled)))]:
            event = self._take(name, now_ns, last_step)
            if event is not None:
                events.append(event)
        return events

    def settle(self) -> None:
        """Answer what was committed. What the disk refuses is tried again at the next call; it keeps no other from its answer."""
        if not self._unsettled:
            return
        self._answer_trouble = ""
        for name, answer in list(self._unsettled.items()):
            self._tell(answer)
            try:
                inbox.settle(self._dir, answer)
                del self._unsettled[name]
            except (ControlError, OSError) as error:
                self._answer_trouble = f"a request of a person is carried out, but cannot be answered: {error}"
        try:
            inbox.prune(self._dir)
            self._announce_due_s = float("-inf")  # what was carried out may have changed what is announced
        except (ControlError, OSError) as error:
            self._answer_trouble = self._answer_trouble or f"old answers to requests cannot be taken away: {error}"

    def close(self) -> None:
        """Nobody reads here any more: who asks is told so at once."""
        if self._dir:
            inbox.withdraw(self._dir)

    def again(self) -> list[Event]:
        """Events of what was carried out before, oldest first, for detectors that begin anew."""
        events = []
        for answer in inbox.answered(self._dir) if self._dir else []:
            apply = self._kinds.get(answer.request.kind) if answer.request is not None else None
            if apply is not None and answer.request is not None and answer.outcome == "applied":
                try:
                    events.append(apply(answer.request, None)[0])
                except InputError:
                    self.refused += 1  # by a version of this program that knows other rules
        return events

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "unsettled": {name: answer.to_json() for name, answer in self._unsettled.items()},
            "done": list(self._done),
            "refused": self.refused,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``ValueError`` for what is none."""
        try:
            self._unsettled = {
                str(name): Answer.from_json(text, "the kept state") for name, text in dict(state.get("unsettled", {})).items()
            }
        except InputError as error:
            raise ValueError(str(error)) from error
        self._done = [str(identifier) for identifier in state.get("done", [])]
        self.refused = int(state.get("refused", 0))

    def _take(self, name: str, now_ns: int, last_step: int | None) -> Event | None:
        request: WatchRequest | None = None
        try:
            request = inbox.read(self._dir, name)
            if request is None:
                return None  # whoever asked took it back
            if request.run and request.run != self._run:
                raise InputError(f"it is for the run {request.run!r}, this is {self._run!r}")
            if request.id in self._done:  # somebody put it back
                inbox.take_away(self._dir, name)
                return None
            apply = self._kinds.get(request.kind)
            if apply is None:
                raise InputError(f"this watchdog knows no requests of the kind {request.kind!r}, only {', '.join(self._kinds)}")
            if request.kind == BREAKER and (old_s := inbox.age_s(self._dir, name)) > OLD_AFTER_S:
                raise InputError(f"it was asked {format_duration(old_s)} ago, when nobody watched; ask again if it still holds")
            # A clock ahead of ours must not put a note behind all that is still to come.
            masked = replace(request, by=mask_cut_text(request.by, MAX_NAME), issued_at_ns=min(request.issued_at_ns, now_ns))
            event, sentence = apply(masked, last_step)
        except (ControlError, InputError, OSError) as error:
            if request is None and self._is_worth_a_try(name):
                return None
            return self._refuse(name, request, f"{error}".rstrip("."), now_ns)
        kept = replace(masked, data={"step": event.step, "text": event.text, **_as_asked(request, event)})
        self._answer(Answer(name, "applied", sentence, now_ns, kept), request.id)
        return event

    def _is_worth_a_try(self, name: str) -> bool:
        self._tries[name] = self._tries.get(name, 0) + 1
        return self._tries[name] < TRIES

    def _refuse(self, name: str, request: WatchRequest | None, why: str, now_ns: int) -> Event:
        self.refused += 1
        who = mask_text(request.by) if request is not None else "somebody"
        sentence = mask_text(f"A request of {who} was refused: {why}.")
        identifier = request.id if request is not None else name
        self._answer(Answer(name, "refused", sentence, now_ns), request.id if request is not None else "")
        data = {"request": identifier, "outcome": "refused", "refused_requests": self.refused}
        return Event(
            "watch", now_ns, id=event_id(self._run, "request", name, "refused"), source="watch", text=sentence, data=data
        )  # fmt: skip

    def _answer(self, answer: Answer, identifier: str) -> None:
        self._unsettled[answer.name] = answer
        self._tries.pop(answer.name, None)
        if identifier:
            self._done = [*self._done, identifier][-MAX_REMEMBERED:]

    def _trouble_of(self, found: inbox.Listing) -> str:
        where = inbox.requests_dir(self._dir)
        if len(self._unsettled) >= MAX_UNSETTLED:
            return f"{len(self._unsettled):,} answered requests cannot be taken away from {where}: no more are read; look at its rights."
        if found.is_cut:
            return f"{where} holds more than {inbox.MAX_NAMES:,} files: some requests may not be seen; remove what is no request."
        if found.foreign:
            are = "file there is" if found.foreign == 1 else "files there are"
            return f"{found.foreign:,} {are} no request and {'is' if found.foreign == 1 else 'are'} left alone: {where}"
        return ""


def _as_asked(request: WatchRequest, event: Event) -> dict[str, Any]:
    """Of the event's data what was asked, so that it can be carried out again."""
    return {key: value for key, value in event.data.items() if key in request.data}
