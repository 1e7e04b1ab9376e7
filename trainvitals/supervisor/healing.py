"""After a restart: its phases as events, and the moment from which the run is as it was before it died."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainvitals.checkpoints import find
from trainvitals.checkpoints.verification import inspect
from trainvitals.clock import Clock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointState, VerificationLevel
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import knowledge
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.recovery import Look, lacking, phases, remaining_s
from trainvitals.supervisor.running import Running

LOOK_EVERY_S = 15.0


class Healing:
    """``look`` yields (state, sentence, data) of what is new. ``was_told``: that the trainer went on from elsewhere."""

    def __init__(self, run: RunSettings, settings: SupervisorSettings, clock: Clock) -> None:
        self._run, self._settings, self._clock = run, settings, clock
        self._told: set[str] = set()
        self._due_s = 0.0
        self._caught_up_ns: int | None = None
        self._recovered_ns: int | None = None
        self._lacking: tuple[str, ...] = ()
        self.was_told = False

    def marks(self, start: Start) -> Start:
        """``start`` with what was found here."""
        return replace(
            start,
            caught_up_ns=start.caught_up_ns or self._caught_up_ns,
            recovered_ns=start.recovered_ns or self._recovered_ns,
        )

    def look(self, running: Running, history: History) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """One turn."""
        start, now_ns = running.start, self._clock.time_ns()
        peak = history.peak_step
        is_open = start.caught_up_ns is None and self._caught_up_ns is None
        if is_open and start.last_step is not None and peak is not None and start.last_step > peak:
            self._caught_up_ns = now_ns
        known = self.marks(start)
        starts = [*(one for one in history.starts if one.number != start.number), known]
        for phase in phases(starts, now_ns):
            if phase.is_over and phase.name not in self._told:
                self._told.add(phase.name)
                left_s = remaining_s(starts, now_ns)
                usual = f", usually {phase.usual_s:.0f} s" if phase.usual_s is not None else ""
                text = f"{phase.name.replace('_', ' ')} after {phase.seconds:.1f} s{usual}"
                data = {"phase": phase.name, "seconds": phase.seconds, "usual_s": phase.usual_s, "remaining_s": left_s}
                yield "phase", text, {**data, "attempt": start.number}
        if peak is None or known.caught_up_ns is None or known.recovered_ns is not None:
            return
        if self._clock.monotonic_s() < self._due_s:
            return
        self._due_s = self._clock.monotonic_s() + LOOK_EVERY_S
        look = Look(
            peak, start.last_step, self._settings.recovered_steps, history.curve, list(running.progress.losses),
            history.usual_rate, running.progress.rate_beyond(peak), self._verified_step(start), start.resume_step,
            knowledge.open_critical(self._run.dir),
        )  # fmt: skip
        missing = lacking(look)
        if not missing:
            self._recovered_ns = now_ns
            yield (
                "recovered",
                f"recovered: beyond step {peak:,}, loss and throughput as before, a new checkpoint verified",
                {"attempt": start.number},
            )
        elif missing != self._lacking:
            self._lacking = missing
            yield "recovering", f"not recovered yet: {'; '.join(missing)}", {"attempt": start.number, "lacking": list(missing)}

    def _verified_step(self, start: Start) -> int | None:
        """Of the newest checkpoint that this start wrote and that verifies; others are not looked at."""
        for directory in self._run.checkpoints:
            try:
                for path in reversed(find(directory)[-3:]):
                    report = inspect(path, VerificationLevel.STRUCTURE)
                    is_own = (report.modified_at_ns or 0) >= start.started_ns
                    if report.state is CheckpointState.VERIFIED and is_own and report.step is not None:
                        return report.step
            except InputError:
                continue  # the watchdog tells what is wrong with it; here it is only no proof
        return None
