"""What follows when the circuit breaker trips: pause an armed run, or say why not. Pausing is all it may ever do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from trainvitals.control.audited import Asked, ask
from trainvitals.control.records import ControlStatus
from trainvitals.control.request import read_status
from trainvitals.detect.findings import format_duration
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.identity import event_id
from trainvitals.incidents.grouping import finding_from_mapping
from trainvitals.incidents.retention import PauseSave
from trainvitals.records import Event, Finding, Severity
from trainvitals.settings import RunSettings
from trainvitals.watch.decided import Decided

#: A trip on older data than this is history (a back-fill, a watchdog that was down): nobody is paused for it.
STALE_AFTER_S = 60.0
#: Between two tries of a pause that was refused: what stood in its way (a request at the same moment, a full disk) may be over.
TRY_AGAIN_S = (1.0, 5.0)
REFUSED = "refused"


class BreakerAction:
    """Carries out trips of one run."""

    def __init__(self, run: RunSettings, read: Callable[[str], ControlStatus | None] = read_status) -> None:
        self._run = run
        self._read = read
        #: off, dry-run or armed: what the settings say, until a person asks for something else.
        self.mode = run.breaker

    def carry_out(self, trip: Finding, attempt: int, now_ns: int, saving: PauseSave | None = None) -> Event:
        """Act on a trip once; the same trip again writes the same request, which the control file takes as done.

        saving: whether the pause saves; None leaves it to the trainer.
        """
        decision, reason = self._decide(trip, attempt, now_ns, saving or PauseSave(None, ""))
        data: dict[str, Any] = {
            "decision": decision, "mode": self.mode, "reason": reason, "finding": trip.id, "rule": trip.rule,
        }  # fmt: skip
        severity = Severity.CRITICAL if decision == "paused" else Severity.WARNING
        which = REFUSED if decision == REFUSED else "decision"  # another may follow
        return Event(
            "breaker", now_ns, step=trip.detected_step, attempt=trip.attempt, id=event_id(trip.id, which),
            severity=severity, source="watch", text=reason, data=data,
        )  # fmt: skip

    def log_events(self, log: Iterable[Mapping[str, Any]], attempt: int, now_ns: int) -> list[Event]:
        """What led to a trip or away from one (``Engine.take_breaker_log``); the trip itself is told by ``carry_out``."""
        if self.mode == "off":
            return []
        return [
            Event(
                "breaker", entry["time_ns"] or now_ns, step=entry["step"], attempt=attempt or None,
                id=event_id(self._run.name, attempt, "breaker", entry["step"], entry["decision"]), source="watch", text=entry["reason"],
                data={"decision": entry["decision"], "mode": self.mode, "reason": entry["reason"]},
            )
            for entry in log
            if entry["decision"] in ("count", "hold", "alert")
        ]  # fmt: skip

    def _decide(self, trip: Finding, attempt: int, now_ns: int, saving: PauseSave) -> tuple[str, str]:
        step, why = f"{trip.detected_step:,}", str(trip.data.get("reason") or trip.message)
        if self.mode == "off":
            return "off", f"the breaker is off for this run; it would have paused at step {step}: {why}"
        age_s = (now_ns - trip.time_ns) / 1e9 if trip.time_ns is not None else 0.0
        if attempt != trip.attempt or age_s > STALE_AFTER_S:
            return (
                "stale",
                f"would have paused at step {step}, but that was {format_duration(age_s)} ago in attempt {trip.attempt}: {why}",
            )
        if self.mode == "dry-run":
            return "would_pause", f"dry run: would have paused at step {step}: {why}"
        try:
            try:
                status = self._read(self._run.dir)
            except InputError:
                status = ControlStatus(understands=("save",))  # somebody is there, and asking does no harm
            if status is None:
                return (
                    "not_wired",
                    f"cannot pause at step {step}: the trainer reads no control file. Stop it by hand. {why}",
                )
            asked = ask(
                self._run.dir, self._run.name, action="pause", by="breaker", source="breaker", reason=why, save=saving.save
            )
        except (TrainvitalsError, OSError) as error:
            return REFUSED, f"could not pause at step {step}, it is tried again: {error}"
        if asked.request.desired == "stopped":
            by = asked.request.by or "somebody"
            return "stopping", f"asked for no pause at step {step}, because {by} has asked the trainer to stop: {why}"
        return (
            "paused",
            f"asked the trainer to pause at step {step}: {why}{_about_saving(saving, status)}{_warned(asked)}",
        )


class Trips:
    """Those that are not carried out yet. One that was refused is asked for again, until it stands or is history."""

    def __init__(self, breaker: BreakerAction) -> None:
        self._breaker = breaker
        self._waiting: list[Finding] = []
        self._told: dict[str, None] = {}
        self.decided = Decided()
        self._again_s, self._wait_s = float("-inf"), TRY_AGAIN_S[0]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, trip: Finding) -> None:
        """One more; it is tried at once. One that was decided is found again where the run's files are read again: it stays decided."""
        if trip.id in self.decided:
            return
        self._waiting = [*(other for other in self._waiting if other.id != trip.id), trip]
        self._again_s, self._wait_s = float("-inf"), TRY_AGAIN_S[0]

    def carry_out(self, attempt: int, now_ns: int, now_s: float, saving: Callable[[], PauseSave]) -> list[Event]:
        """What became of them; a refusal is told once. now_s: monotonic. saving: as ``BreakerAction.carry_out`` takes it."""
        if now_s < self._again_s:
            return []
        told, refused = [], []
        for trip in self._waiting:
            event = self._breaker.carry_out(trip, attempt, now_ns, saving())
            if event.data["decision"] == REFUSED:
                refused.append(trip)
                if trip.id in self._told:
                    continue
                self._told[trip.id] = None
            elif trip.id in self._told:
                del self._told[trip.id]
                event = _gave_up(event) if event.data["decision"] == "stale" else event
            if event.data["decision"] != REFUSED:
                self.decided.add(trip.id, event)
            told.append(event)
        self._waiting = refused
        self._again_s, self._wait_s = now_s + self._wait_s, min(TRY_AGAIN_S[1], 2 * self._wait_s)
        return told

    def to_state(self) -> list[dict[str, Any]]:
        """JSON values only."""
        return [asdict(trip) for trip in self._waiting]

    def restore(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Continue where ``to_state`` was taken."""
        self._waiting = [finding_from_mapping(trip) for trip in state]


def _gave_up(event: Event) -> Event:
    """A trip that was never carried out is more than history: nobody was paused."""
    text = f"could not pause at step {event.step or 0:,}, and gave up after {STALE_AFTER_S:.0f} s: look, and pause it by hand"
    return replace(event, text=text, data={**event.data, "decision": "gave_up", "reason": text})


def _warned(asked: Asked) -> str:
    return f"; {asked.warning}" if asked.warning else ""


def _about_saving(saving: PauseSave, status: ControlStatus) -> str:
    """What is told when a pause does not save, or ought not to."""
    if saving.save is not False:
        return ""
    if "save" not in status.understands:
        return "; it saves all the same, because its hook is older than that request: look at the safe checkpoint"
    return f"; {saving.why}"
