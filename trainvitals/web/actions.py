"""What people may ask of a trainer or a watchdog from a page: checked here, on the server, whatever the page shows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from trainvitals.access import Identity, refusal
from trainvitals.clock import Clock, SystemClock
from trainvitals.control import audited, supervised
from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_REASON, ControlRequest
from trainvitals.control.request import read_request, read_status
from trainvitals.control.requests import ACKNOWLEDGE, ANNOTATION, BREAKER, BREAKER_MODES, SILENCE, checked_note_text
from trainvitals.errors import ControlConflict, TrainvitalsError
from trainvitals.incidents.silences import checked_silence
from trainvitals.masking import mask_text
from trainvitals.settings import RunSettings, Settings
from trainvitals.web import remote
from trainvitals.web.annotations import CHANGES

log = logging.getLogger(__name__)

#: Who asks: an ``Identity`` whom a proxy or a login named, or a name that was typed.
Who = str | Identity
NOT_LOGGED_IN = "Nobody is logged in: this dashboard takes a name from its proxy or login only, not one that was typed."
ACTIONS = ("pause", "resume", "checkpoint")
#: The same person asking the same again within this time pressed twice.
SAME_PRESS_NS = 60 * 10**9
SENT_FAR = "Sent, signed, through the store; the run's watchdog passes it on within a few seconds and answers here."


@dataclass(frozen=True)
class Outcome:
    """is_done: the request stands in its file (the answer comes from the trainer or the watchdog). sentence: for the person.
    request_id: of what was asked of the watchdog; its answering event carries it."""

    is_done: bool
    sentence: str
    seq: int = 0
    request_id: str = ""


def ask(
    settings: Settings, run_name: str, action: str, by: Who, reason: str, expected_seq: int, clock: Clock | None = None,
    save: bool | None = None, how: str | None = None,
) -> Outcome:  # fmt: skip
    """Write the request into the run's control file. Only runs of the dashboard's own settings can be meant; never raises
    for what people or files do. ``expected_seq``: the number the person was looking at, so nobody overwrites unseen. ``save``:
    whether a pause saves first; None leaves it to the trainer, which saves. ``how``: of a pause, hold or park; None leaves that to it, too."""
    clock = clock or SystemClock()
    if action not in ACTIONS:
        return Outcome(False, f"This page cannot ask for {action!r}.")
    who = person(by)
    if refused := _refused(settings, run_name, who, {"action": action, "reason": reason}, clock):
        return refused
    try:
        run = settings.run(run_name)
        if remote.is_far(run):
            wanted = {"reason": mask_text(checked_text("reason", reason, MAX_REASON)), **({} if save is None else {"save": save})}
            wanted |= {} if how is None else {"how": how}
            sent = remote.send(settings, run, kind=action, who=who, data=wanted, expected_seq=expected_seq, clock=clock)
            return Outcome(True, SENT_FAR, request_id=sent)
        asked = audited.ask(
            run.dir, run.name, action=action, by=who.name, source="ui", reason=reason, expected_seq=expected_seq, clock=clock,
            save=save, how=how,
        )  # fmt: skip
        request = asked.request
    except ControlConflict as conflict:
        present = read_request(settings.run(run_name).dir)
        pressed_twice = (present.action, present.by, present.reason) == (action, who.name.strip(), reason.strip())
        if pressed_twice and clock.time_ns() - present.issued_at_ns <= SAME_PRESS_NS:
            return Outcome(True, f"Asked once already (number {present.seq}).", present.seq)
        return Outcome(False, str(conflict))
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    older = " Its hook is older than pauses that do not save: it saves all the same." if _saves_anyway(run.dir, request) else ""
    told = f" {asked.warning}" if asked.warning else ""
    return Outcome(True, f"Asked (number {request.seq}); the trainer answers when its step ends.{older}{told}", request.seq)


def person(who: Who) -> Identity:
    """A typed name proves nothing."""
    return who if isinstance(who, Identity) else Identity(who)


def _saves_anyway(run_dir: str, request: ControlRequest) -> bool:
    """Whether the trainer's client does not know that this pause must not save."""
    if request.save is not False:
        return False
    try:
        status = read_status(run_dir)
    except (TrainvitalsError, OSError):
        return False  # what it says about itself is on the page; nothing is known of this
    return status is not None and "save" not in status.understands


def annotate(
    settings: Settings, run_name: str, *, step: int, change: str, text: str, by: Who, clock: Clock | None = None
) -> Outcome:
    """Ask the run's watchdog to keep a note. Only runs of the dashboard's own settings can be meant; never raises for what
    people or files do."""
    if change not in CHANGES:
        return Outcome(False, f"This page knows no change {change!r}.")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        return Outcome(False, "The step must be a whole number, 0 or more.")
    who = person(by)
    if refused := _refused(settings, run_name, who, {"action": "annotate", "text": text}, clock):
        return refused
    try:
        run = settings.run(run_name)
        data = {"step": step, "change": change, "text": mask_text(checked_note_text(text))}
        request_id = _ask_watchdog(settings, run, ANNOTATION, who, data, clock)
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    return Outcome(True, "Note sent; waiting for the watchdog.", request_id=request_id)


def set_breaker(settings: Settings, run_name: str, mode: str, by: Who, reason: str, clock: Clock | None = None) -> Outcome:
    """Ask the run's watchdog to arm or disarm the circuit breaker. Only runs of the dashboard's own settings can be meant; never
    raises for what people or files do."""
    if mode not in BREAKER_MODES:
        return Outcome(False, f"The breaker has no mode {mode!r}.")
    who = person(by)
    if refused := _refused(settings, run_name, who, {"action": "breaker", "mode": mode, "reason": reason}, clock):
        return refused
    try:
        run = settings.run(run_name)
        data = {"mode": mode, "reason": mask_text(checked_text("reason", reason, MAX_REASON))}
        request_id = _ask_watchdog(settings, run, BREAKER, who, data, clock)
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    return Outcome(True, "Sent; waiting for the watchdog.", request_id=request_id)


def acknowledge(settings: Settings, run_name: str, incident_id: str, by: Who, note: str, clock: Clock | None = None) -> Outcome:
    """Say that somebody has an incident. Only runs of the dashboard's own settings can be meant; never raises for what people or files
    do."""
    data = {"incident": incident_id, "note": mask_text(note)}
    return _of_incidents(settings, run_name, ACKNOWLEDGE, by, data, clock)


def silence(settings: Settings, run_name: str, wanted: dict[str, Any], by: Who, clock: Clock | None = None) -> Outcome:
    """Silence what ``wanted`` names (see ``incidents.silences.checked_silence``); otherwise as ``acknowledge``."""
    try:
        checked_silence(wanted, identifier="", by="", begin_ns=0)
    except TrainvitalsError as error:
        return Outcome(False, f"Not sent: {error}.")
    data = {**wanted, "comment": mask_text(str(wanted["comment"]))}
    return _of_incidents(settings, run_name, SILENCE, by, data, clock)


def unsilence(settings: Settings, run_name: str, silence_id: str, by: Who, clock: Clock | None = None) -> Outcome:
    """End a silence now; otherwise as ``acknowledge``."""
    return _of_incidents(settings, run_name, SILENCE, by, {"end": silence_id}, clock)


def _of_incidents(settings: Settings, run_name: str, kind: str, by: Who, data: dict[str, Any], clock: Clock | None) -> Outcome:
    who = person(by)
    if refused := _refused(settings, run_name, who, {"action": kind, **data}, clock):
        return refused
    try:
        request_id = _ask_watchdog(settings, settings.run(run_name), kind, who, data, clock)
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    return Outcome(True, "Sent; waiting for the watchdog.", request_id=request_id)


def _ask_watchdog(
    settings: Settings, run: RunSettings, kind: str, who: Identity, data: dict[str, Any], clock: Clock | None
) -> str:
    """By the road to the run's watchdog; returns the id of the request. Raises what that road raises."""
    if remote.is_far(run):
        return remote.send(settings, run, kind=kind, who=who, data=data, clock=clock)
    return audited.ask_watchdog(run.dir, run.name, kind=kind, by=who.name, source="ui", data=data, clock=clock).id


def is_supervised(settings: Settings, run_name: str) -> bool:
    """Whether a supervisor would carry out a way back of this run; never raises."""
    try:
        return supervised.supervisor_of(settings.run(run_name).dir) is not None
    except (TrainvitalsError, OSError):
        return False


def go_back(settings: Settings, run_name: str, to: str, by: Who, reason: str, clock: Clock | None = None) -> Outcome:
    """Ask the run's supervisor to start the trainer again from the checkpoint ``to``, which must be one of this run's own. Never raises
    for what people or files do."""
    who = person(by)
    if refused := _refused(settings, run_name, who, {"action": supervised.ROLLBACK, "to": to, "reason": reason}, clock):
        return refused
    try:
        run = settings.run(run_name)
        if remote.is_far(run):
            wanted = {"to": to, "reason": mask_text(checked_text("reason", reason, MAX_REASON)), "skip_samples": ""}
            sent = remote.send(settings, run, kind=supervised.ROLLBACK, who=who, data=wanted, clock=clock)
            return Outcome(True, SENT_FAR, request_id=sent)
        request = supervised.ask_rollback(
            run.dir, run.name, to=to, by=who.name, reason=mask_text(reason), source="ui", clock=clock
        )
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    return Outcome(True, "Sent; the supervisor looks at the checkpoint, then goes back.", request_id=request.id)


def _refused(settings: Settings, run_name: str, who: Identity, data: dict[str, Any], clock: Clock | None) -> Outcome | None:
    """What a person is told who may not act on the run; None for one who may. The refusal is audited."""
    is_anybody = settings.login.mode != "local" and not who.is_proven
    sentence = NOT_LOGGED_IN if is_anybody else refusal(settings.access, run_name, who)
    if not sentence:
        return None
    try:
        run = settings.run(run_name)
    except TrainvitalsError as error:
        return Outcome(False, str(error))
    if remote.is_far(run):  # its audit lies on another host, and nothing is sent there
        log.warning("refused %r on run %r to %r: %s", data.get("action"), run.name, who.name[:200], sentence)
        return Outcome(False, sentence)
    trouble = audited.refused_access(run.dir, run.name, by=who.name, source="ui", data=data, clock=clock)
    return Outcome(False, f"{sentence} {trouble}".rstrip())
