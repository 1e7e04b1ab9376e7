"""Requests that come through the store: looked at, then handed on by the same files that people on this host use.

What a row says counts only when its signature, its run, its time and whoever asks are right; nothing in it is trusted before. Each
effect is a file with the request's own id, so it is made once: ``seen`` is committed afterwards, and a kill in between finds the file
that stands. Whatever is refused is counted by its reason, and told at a bounded rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainvitals.access import Identity, refusal
from trainvitals.clock import Clock
from trainvitals.control import audited, inbox, signed, supervised
from trainvitals.control.once import standing
from trainvitals.control.records import MAX_NAME, ControlRequest
from trainvitals.control.request import ACTIONS, read_request
from trainvitals.control.requests import Answer
from trainvitals.control.signed import NOT_AN_OPERATOR, NOT_CARRIED_OUT, REASONS, REPLAYED, SignedRequest
from trainvitals.errors import ControlConflict, ControlError, InputError
from trainvitals.identity import event_id
from trainvitals.masking import mask_cut_text, mask_text
from trainvitals.records import Event
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.request_rows import RequestRow
from trainvitals.watch.request_feed import RequestFeed

#: Requests carried out in one turn: the steps of the run come first.
MAX_A_TURN = 20
#: Requests remembered until nobody can send them again, and rows that were refused: beyond that the oldest are looked at anew.
MAX_SEEN = 2_000
MAX_REFUSED_ROWS = 2_000
#: How long after its end a request is remembered: a clock that was set back must not bring it to life.
REMEMBER_NS = 86_400 * 10**9
#: Refusals that are told one by one, at once and as a lasting rate; all of them are counted.
TOLD_AT_ONCE = 20
TOLD_PER_S = 1 / 30
#: The same person asking the same again within this time pressed twice.
SAME_PRESS_NS = 60 * 10**9
NOT_LOGGED_IN = "nobody is logged in: the settings here take a name from a proxy or a login only"


class _Refused(Exception):
    """A request whose signature is right and that is not carried out."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class SignedRequests:
    """Of one run. kinds: what this watchdog takes from its inbox. told: gets each answer before it is committed."""

    def __init__(
        self, settings: Settings, run: RunSettings, kinds: Callable[[], tuple[str, ...]], feed: RequestFeed, clock: Clock,
        told: Callable[[Answer], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._settings, self._run, self._of_inbox, self._feed = settings, run, kinds, feed
        self._clock, self._tell = clock, told
        #: nonce -> (until when it is remembered, UTC ns; the row it came in; its id)
        self._seen: dict[str, tuple[int, str, str]] = {}
        #: Rows that were refused -> None, oldest first.
        self._refused_rows: dict[str, None] = {}
        self._room, self._room_s = float(TOLD_AT_ONCE), clock.monotonic_s()
        self.refused: dict[str, int] = {}

    @property
    def trouble(self) -> str:
        """Why no request is taken, "" when all is well."""
        return self._feed.trouble

    @property
    def kinds(self) -> tuple[str, ...]:
        """What may be asked for: of the trainer, of its supervisor, of this watchdog."""
        return (*ACTIONS, supervised.ROLLBACK, *self._of_inbox())

    def poll(self, now_s: float, now_ns: int) -> list[Event]:
        """Events of what was carried out or refused. Never raises for what rows or files hold."""
        batch = self._feed.take(now_s)
        if batch is None:
            return []
        self._forget(now_ns)
        events: list[Event] = []
        taken = 0
        # A row that was taken stays taken when its key goes out of use.
        done = {mark for _, mark, _ in self._seen.values()}
        for row in batch.rows:
            if taken >= MAX_A_TURN:
                break
            mark = _mark(row)
            if mark in done or mark in self._refused_rows:
                continue
            request, reason, sentence = signed.read(row.text, row.signature, batch.keys)
            if request is None:
                events += self._refuse(mark, reason, sentence, now_s, now_ns)
            elif request.nonce in self._seen or any(identifier == request.id for _, _, identifier in self._seen.values()):
                events += self._refuse(mark, REPLAYED, "it was sent before: a copy of it does not count", now_s, now_ns)
            else:
                taken += 1
                events += self._take(request, mark, now_s, now_ns)
        return events

    def close(self) -> None:
        """Nothing more is read."""
        self._feed.close()

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"seen": {nonce: list(known) for nonce, known in self._seen.items()}, "refused": dict(self.refused),
                "refused_rows": list(self._refused_rows)}  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``ValueError`` or ``TypeError`` for what is none."""
        self._seen = {str(nonce): (int(until), str(mark), str(identifier))
                      for nonce, (until, mark, identifier) in dict(state.get("seen", {})).items()}  # fmt: skip
        refused = dict(state.get("refused", {}))
        self.refused = {reason: int(refused[reason]) for reason in REASONS if reason in refused}
        self._refused_rows = {str(mark): None for mark in state.get("refused_rows", [])}

    def add_known(self, state: Mapping[str, Any]) -> None:
        """What ``state`` says was seen counts as seen here, too. Raises as ``restore``."""
        seen, refused, rows = self._seen, self.refused, self._refused_rows
        try:
            self.restore(state)
        finally:
            self._seen |= seen
            self._refused_rows |= rows
            self.refused = {
                reason: max(refused.get(reason, 0), self.refused.get(reason, 0)) for reason in {**refused, **self.refused}
            }

    def _take(self, request: SignedRequest, mark: str, now_s: float, now_ns: int) -> list[Event]:
        try:
            reason, sentence = signed.objection(request, self._run.name, self.kinds, now_ns)
            if reason:
                raise _Refused(reason, sentence)
            if len(self._seen) >= MAX_SEEN:
                raise _Refused(NOT_CARRIED_OUT, f"{MAX_SEEN:,} requests came within a day; no more are taken")
            self._check_role(request)
            event = self._carry_out(request, now_ns)
        except (_Refused, ControlError, InputError, OSError) as error:
            reason = error.reason if isinstance(error, _Refused) else NOT_CARRIED_OUT
            if reason in (NOT_AN_OPERATOR, NOT_CARRIED_OUT) and len(self._seen) < MAX_SEEN:
                self._remember(request, mark)
            return self._refuse(mark, reason, f"{error}".rstrip("."), now_s, now_ns, request)
        self._remember(request, mark)
        return [event] if event is not None else []

    def _remember(self, request: SignedRequest, mark: str) -> None:
        self._seen[request.nonce] = (request.expires_at_ns + REMEMBER_NS, mark, request.id)

    def _check_role(self, request: SignedRequest) -> None:
        """The dashboard asked its own settings; these are ours."""
        who = Identity(request.by, request.is_proven)
        needs_login = self._settings.login.mode != "local" and not who.is_proven
        sentence = NOT_LOGGED_IN if needs_login else refusal(self._settings.access, self._run.name, who)
        if sentence:
            data = {"request": request.id, "action": request.kind, "road": "store"}
            trouble = audited.refused_access(
                self._run.dir, self._run.name, by=request.by, source=request.source, data=data, clock=self._clock
            )
            raise _Refused(NOT_AN_OPERATOR, f"{sentence} {trouble}".rstrip())

    def _carry_out(self, request: SignedRequest, now_ns: int) -> Event | None:
        """Its event; None where whoever reads the file that was written tells it. Raises ``ControlError``, ``InputError``, ``OSError``."""
        if request.kind in ACTIONS:
            asked, warning = self._ask_trainer(request, now_ns)
            return self._told(
                request, now_ns, f"request number {asked.seq} asks the trainer to {request.kind}", warning, asked.seq
            )
        if request.kind == supervised.ROLLBACK:
            to, reason, skip = (_text(request, key) for key in ("to", "reason", "skip_samples"))
            supervised.ask_rollback(
                self._run.dir, self._run.name, to=to, by=request.by, reason=reason, source=request.source, skip_samples=skip,
                clock=self._clock, identity=(request.id, request.issued_at_ns),
            )  # fmt: skip
            return self._told(request, now_ns, "the supervisor was asked to go back", "", None)
        self._put_in_inbox(request, now_ns)
        return None

    def _ask_trainer(self, request: SignedRequest, now_ns: int) -> tuple[ControlRequest, str]:
        found = standing(self._run.dir, request.id)
        if found is not None:
            return found, ""
        reason = mask_text(_text(request, "reason"))
        save, how = request.data.get("save"), request.data.get("how")
        if not (save is None or isinstance(save, bool)) or not (how is None or isinstance(how, str)):
            raise InputError("save must be true, false or null, and how a text or null")
        try:
            asked = audited.ask(
                self._run.dir, self._run.name, action=request.kind, by=request.by, source=request.source, reason=reason,
                expected_seq=request.expected_seq, clock=self._clock, save=save, how=how, request_id=request.id,
            )  # fmt: skip
        except ControlConflict:
            present = read_request(self._run.dir)
            is_same = (present.action, present.by, present.reason) == (request.kind, request.by.strip(), reason.strip())
            if is_same and now_ns - present.issued_at_ns <= SAME_PRESS_NS:
                return present, ""
            raise
        return asked.request, asked.warning

    def _put_in_inbox(self, request: SignedRequest, now_ns: int) -> None:
        """The watchdog's own inbox takes it from there as what a person on this host asks for, and answers it."""
        wanted = replace(
            request.watch_request, by=mask_cut_text(request.by, MAX_NAME), issued_at_ns=min(request.issued_at_ns, now_ns)
        )
        # A clock of ours that stood elsewhere before a kill must not give it a second name.
        if inbox.was_put(self._run.dir, wanted.id):
            return
        audited.audit_request(self._run.dir, wanted, "store", self._clock)
        inbox.put(self._run.dir, wanted)

    def _told(self, request: SignedRequest, now_ns: int, what: str, warning: str, seq: int | None) -> Event:
        who = mask_cut_text(request.by, MAX_NAME)
        text = f"{request.kind} asked by {who} from another host: {what}. {warning}".rstrip()
        self._answer(request, "applied", text, now_ns)
        data: dict[str, Any] = {
            "request": request.id, "outcome": "applied", "action": request.kind, "by": who, "source": request.source,
            "reason": mask_text(_text(request, "reason")), "road": "store",
        }  # fmt: skip
        if seq is not None:
            data["seq"] = seq
        identifier = event_id(self._run.name, "request", request.id)
        return Event("control", now_ns, id=identifier, source="watch", text=text, data=data)

    def _refuse(
        self, mark: str, reason: str, sentence: str, now_s: float, now_ns: int, request: SignedRequest | None = None
    ) -> list[Event]:
        """Counted, and told while there is room. request: of which the signature is right and that was not seen before."""
        self._refused_rows[mark] = None
        while len(self._refused_rows) > MAX_REFUSED_ROWS:
            self._refused_rows.pop(next(iter(self._refused_rows)))
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self._room = min(float(TOLD_AT_ONCE), self._room + (now_s - self._room_s) * TOLD_PER_S)
        self._room_s = now_s
        if self._room < 1:
            return []
        self._room -= 1
        who = f" of {mask_cut_text(request.by, MAX_NAME)} to {request.kind}" if request is not None else ""
        text = mask_text(f"A signed request{who} was refused ({reason}): {sentence}.")
        data: dict[str, Any] = {"outcome": "refused", "reason": reason, "refused_signed": dict(self.refused), "road": "store"}
        if request is not None:
            data["request"] = request.id
            self._answer(request, "refused", text, now_ns)
        identifier = event_id(self._run.name, "request", request.id if request is not None else mark, "refused")
        return [Event("watch", now_ns, id=identifier, source="watch", text=text, data=data)]

    def _answer(self, request: SignedRequest, outcome: str, sentence: str, now_ns: int) -> None:
        self._tell(Answer(request.watch_request.name, outcome, sentence, now_ns, request.watch_request))

    def _forget(self, now_ns: int) -> None:
        if any(until <= now_ns for until, _, _ in self._seen.values()):
            self._seen = {nonce: known for nonce, known in self._seen.items() if known[0] > now_ns}


def _mark(row: RequestRow) -> str:
    """What tells one row from every other, a copy of it elsewhere included."""
    parts = (row.run, row.kind, str(row.time_ns), row.id, row.text, row.signature)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:24]


def _text(request: SignedRequest, key: str) -> str:
    value = request.data.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{key} must be a text")
    return value
