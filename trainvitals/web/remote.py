"""Control of a run whose directory lies on another host: requests go out signed through the store, its state comes back the same way.

Writing the request is the one thing that a page writes to the store: into `requests`, which nobody but `watch` reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainvitals.access import Identity
from trainvitals.clock import Clock, SystemClock
from trainvitals.control import signed
from trainvitals.control.mirror import Mirror
from trainvitals.control.records import ControlRequest
from trainvitals.control.request_keys import read_keys
from trainvitals.control.requests import BREAKER_MODES
from trainvitals.control.signed import NOT_CARRIED_OUT, REASONS
from trainvitals.control.view import describe, unreadable
from trainvitals.errors import ControlError, InputError, StoreError, StoreUnavailable
from trainvitals.records import Event
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Store
from trainvitals.store.request_rows import read_control_row, request_point
from trainvitals.web.format import span
from trainvitals.web.view import AuditView, ControlView, RunView

log = logging.getLogger(__name__)

STORE = "store"
#: A person waits for this at the button.
SEND_WITHIN_S = 10.0
#: The watchdog tells the state every 5 s; what is older than this says more about the watchdog than about the trainer.
SILENT_AFTER_S = 30.0
LATE_AFTER_S = 20.0
APPLIED = "Applied"
#: How far back the state is looked for.
LOOK_BACK_NS = 14 * 86_400 * 10**9
NOTHING_TOLD = (
    'Nothing was told of this run\'s control yet: on its own host, watch must run with control_road = "store" (docs/control.md).'
)
ELSEWHERE = AuditView(state="The audit of this run lies in its directory on another host; the store keeps the newest head.")


@dataclass(frozen=True)
class Told:
    """What the run's watchdog told through the store. control: as the pages know it. breaker: mode in force, "" = not told; breaker_hold: what holds it.
    requests: the newest that were asked of the trainer, as events of kind ``control``."""

    control: ControlView
    breaker: str = ""
    requests: tuple[Event, ...] = ()
    breaker_hold: str = ""


def is_far(run: RunSettings) -> bool:
    """Whether this dashboard reaches the run through the store only."""
    return run.control_road == STORE


def send(
    settings: Settings, run: RunSettings, *, kind: str, who: Identity, data: Mapping[str, Any], expected_seq: int | None = None,
    clock: Clock | None = None,
) -> str:  # fmt: skip
    """Sign a request and write it into the store; returns its id. Who may ask was checked before; `watch` checks it again.

    Raises ``InputError`` when there is no key, ``ControlError`` for what a person left out, ``StoreError`` when the store does not
    take it.
    """
    keys = read_keys([settings.resolve(path) for path in settings.requests.key_files])
    request = signed.new_request(
        kind=kind, run=run.name, by=who.name, is_proven=who.is_proven, source="ui", data=data,
        now_ns=(clock or SystemClock()).time_ns(), valid_s=settings.requests.valid_s, expected_seq=expected_seq,
    )  # fmt: skip
    text = request.to_text()
    point = request_point(run.name, kind, request.issued_at_ns, request.id, text, signed.sign(text, keys[0]))
    influxdb = replace(settings.influxdb, timeout_s=min(settings.influxdb.timeout_s, SEND_WITHIN_S))
    store = open_store(settings.store, influxdb=influxdb)
    try:
        store.write([point])
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"It is not known whether the store took this request; look at the run's state before you ask again. {error}"
        ) from error
    finally:
        store.close()
    return request.id


class FarReader:
    """Reads the state of runs out of the store. It remembers when each row was new, so that a clock of another host that stands
    elsewhere makes nobody look silent."""

    def __init__(self) -> None:
        #: run -> (time of the newest row, our own time when it was first seen, whether one came while we looked)
        self._newest: dict[str, tuple[int, int, bool]] = {}

    def read(self, store: Store, run: RunSettings, now_ns: int) -> Told:
        """The newest state in the store; an unreadable one and none are sentences. Never raises."""
        try:
            row = read_control_row(store, run.name, LOOK_BACK_NS, now_ns)
            if row is None:
                return Told(_view(unreadable(NOTHING_TOLD)))
            told_ns, text = row
            mirror = Mirror.from_text(text)
        except (StoreError, InputError, ControlError) as error:
            return Told(_view(unreadable(f"What the store says of this run's control cannot be read: {error}")))
        breaker = mirror.watcher.breaker if mirror.watcher.breaker in BREAKER_MODES else ""
        control = control_of(mirror, self._age_s(run.name, told_ns, now_ns), now_ns)
        return Told(control, breaker, tuple(_event(run.name, request) for request in mirror.history), mirror.watcher.breaker_hold)

    def _age_s(self, run: str, told_ns: int, now_ns: int) -> float:
        known = self._newest.get(run)
        if known is None or known[0] != told_ns:
            known = self._newest[run] = (told_ns, now_ns, known is not None)
        return max(0.0, (now_ns - (known[1] if known[2] else told_ns)) / 1e9)


def control_of(mirror: Mirror, age_s: float, now_ns: int) -> ControlView:
    """The state as the pages know it. age_s: seconds since the watchdog told it."""
    if mirror.trouble:
        return _view(unreadable(f"{mirror.trouble.rstrip('.')}. {_as_told(mirror, age_s)}"))
    is_silent = age_s > SILENT_AFTER_S
    beat_s = None if mirror.heartbeat_age_s is None else mirror.heartbeat_age_s + (0.0 if is_silent else age_s)
    supervisor = "" if mirror.supervisor is None or is_silent else mirror.supervisor.host or "an unnamed host"
    found = describe(mirror.request, mirror.status, now_ns, heartbeat_age_s=beat_s, supervisor=supervisor)
    if is_silent and mirror.status is not None:
        last = f"{found.sentence[0].lower()}{found.sentence[1:]}"
        return _view(replace(found, state="silent", sentence=f"{_as_told(mirror, age_s)} It last said: {last}"))
    return _view(replace(found, sentence=f"{found.sentence} {_as_told(mirror, age_s)}"))


def fate(run: RunView, request_id: str, sent_at_ns: int, now_ns: int) -> str:
    """What became of a request that was sent through the store, from the watchdog's own events; "sent" until one answers."""
    for event in reversed((*run.events, *run.control_history)):
        if event.data.get("request") == request_id:
            return f"Refused. {event.text}" if event.data.get("outcome") == "refused" else f"{APPLIED}: {event.text}"
    age_s = (now_ns - sent_at_ns) / 1e9
    if age_s <= LATE_AFTER_S:
        return "Sent; waiting for the watchdog."
    return f"Sent {span(age_s)} ago and not applied yet: does the watchdog of this run still run, and does it read the store?"


def _as_told(mirror: Mirror, age_s: float) -> str:
    host = f" on {mirror.watcher.host}" if mirror.watcher.host else ""
    when = f"told {age_s:.0f} s ago" if age_s <= SILENT_AFTER_S else f"has told nothing of this run for {span(age_s)}"
    said = f"As the watchdog{host} {when}." if age_s <= SILENT_AFTER_S else f"The watchdog{host} {when}."
    counted = [reason for reason in REASONS if reason != NOT_CARRIED_OUT and mirror.refused.get(reason)]
    refused = ", ".join(f"{reason} {mirror.refused[reason]:,}" for reason in counted)
    return f"{said} Signed requests refused so far: {refused}." if refused else said


def _view(state: Any) -> ControlView:
    return ControlView(**asdict(state))


def _event(run: str, request: ControlRequest) -> Event:
    """As ``process.read_requests`` makes it of the history on this host."""
    return Event(
        "control", request.issued_at_ns, id=f"{run}/request/{request.seq}", source=request.source,
        text=f"asked for: {request.action or request.desired}",
        data={
            "seq": request.seq, "action": request.action, "desired": request.desired, "by": request.by,
            "source": request.source, "reason": request.reason,
        },
    )  # fmt: skip
