"""No step for too long. The deadline comes from what the run has shown and from announced phases, never from a fixed number.

A hang keeps GPUs at 100 % and prints nothing, so the time since the last step is the only evidence that counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_duration, format_step
from trainvitals.detect.statistics import SortedWindow
from trainvitals.records import Event, Severity, Step

GAPS_PER_BLOCK = 100
LONGEST_BLOCKS = 20  # of 100 gaps: the longest of the last 2,000 in little memory
USUAL_GAPS = 255
OFTEN_SHARE = 0.9  # of the usual gaps: a tenth of them as long as the cap, and it is how this run goes
KEPT_PHASES = 8
WAITING_PHASES = ("start", "eval", "checkpoint")


class StallDetector(FamilyDetector):
    """``stall``: a warning at the deadline, critical at twice that."""

    family = "liveness"
    rules = ("stall",)
    STATE = (
        "ledger", "_last_ns", "_tick_ns", "_gaps", "_longest", "_in_block", "_phase", "_phase_from_ns", "_phases", "_is_first",
        "_arrived_ns", "_stepped", "_was_live", "_first_took_s",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._numbers = self.numbers["stall"]
        self._last_ns: int | None = None  # last sign of progress
        self._tick_ns: int | None = None
        self._gaps = SortedWindow(USUAL_GAPS)
        self._longest: deque[float] = deque(maxlen=LONGEST_BLOCKS)
        self._in_block = 0
        self._phase: str | None = None
        self._phase_from_ns: int | None = None
        self._phases: dict[str, list[float]] = {}
        self._is_first = True
        self._first_took_s = 0.0  # from the start to its first step
        # A step that was read after a tick was written after it, whatever time it names: clocks and time zones may be wrong.
        self._arrived_ns: int | None = None
        self._stepped = False
        self._was_live = False  # steps came while somebody looked; before that a silence is history

    def deadline_s(self) -> float | None:
        """Seconds after the last progress at which it is a stall; None while the run is paused or has ended."""
        if self.context.is_paused or self.context.is_ended or self._last_ns is None:
            return None
        numbers = self._numbers
        factor = numbers["longest_factor"]
        if self._is_first or len(self._gaps) < max(1, min(numbers["min_points"], USUAL_GAPS)):
            usual = max(numbers["first_step_s"], factor * self._shown_early_s())
        else:
            ordered = sorted(self._longest)
            usual = max(numbers["floor_s"], numbers["median_factor"] * self._gaps.median(), factor * ordered[-1])
            # The cap keeps one hang that was overcome from hiding the next; a wait that came back is no hang, however long.
            shown_s = max(ordered[-2] if len(ordered) > 1 else 0.0, self._gaps.quantile(OFTEN_SHARE))
            usual = min(usual, max(numbers["cap_s"], numbers["floor_s"], factor * shown_s))
        if self._phase is not None:
            seen = self._phases.get(self._phase)
            usual = max(usual, numbers["phase_factor"] * max(seen) if seen else numbers["first_step_s"])
        return usual

    def _shown_early_s(self) -> float:
        """How long this run needs by what little is known. A log that tells a step once in hours, or once an epoch, shows it with the time
        to its first step and with its first gap; from the second on it must have come back twice, as one may be a hang that was overcome."""
        gaps = self._gaps
        if self._is_first:
            return gaps.quantile(OFTEN_SHARE) if len(gaps) else 0.0
        if len(gaps) < 2:
            return gaps.values[0] if len(gaps) else self._first_took_s
        return gaps.values[-2]

    @property
    def watched(self) -> tuple[bool, int | None]:
        """Whether this run was seen alive, and when its last step came (UTC ns, as ``tick`` is told the time; None = as the step says)."""
        return self._was_live, self._arrived_ns

    def go_on_watching(self, arrived_ns: int | None) -> None:
        """Everything is read from the start again, of a run that was seen alive: a silence at the end of it is no history."""
        self._was_live, self._arrived_ns, self._stepped = True, arrived_ns, True

    def usual_s(self) -> float | None:
        """Median time between two logged steps."""
        return self._gaps.median() if len(self._gaps) else None

    def catch_up(self, time_ns: int | None) -> None:
        """A record of this time comes next: what ``tick`` would have found until then is found now (old logs)."""
        # With a tick since the last step the silence was watched: a time that leaps now is a clock that was set. A silence that ended
        # before any pace was known is the first that is known of it.
        is_pace_known = self._is_first or len(self._gaps) > 0
        if time_ns is not None and is_pace_known and (self._stepped or not self._was_live):
            self._check(time_ns)

    def on_step(self, step: Step) -> None:
        now_ns = step.time_ns if step.time_ns is not None else self._tick_ns
        if now_ns is not None:
            if self._last_ns is not None and not self._is_first and step.time_ns is not None and not self.context.is_paused:
                self._learn((now_ns - self._last_ns) / 1e9)
            elif self._is_first and self._last_ns is not None and step.time_ns is not None and not self.context.is_paused:
                self._first_took_s = max(0.0, (now_ns - self._last_ns) / 1e9)
            self._close(now_ns, f"; step {format_step(step.step)} came")
            self._last_ns = now_ns
        self._is_first = False
        self._phase = None
        self._stepped = True

    def on_tick(self, now_ns: int) -> None:
        if self._stepped and self._tick_ns is not None:
            self._arrived_ns, self._was_live = self._tick_ns, True
        self._tick_ns, self._stepped = now_ns, False
        if self._last_ns is not None:
            # A trainer whose clock runs ahead of ours must not hide a stall.
            self._last_ns = min(self._last_ns, now_ns)
            deadline_s = self.deadline_s()
            self._was_live = self._was_live or (deadline_s is not None and now_ns - self._last_ns < deadline_s * 1e9)
        self._check(now_ns, self._arrived_ns, is_history=not self._was_live)

    def on_event(self, event: Event) -> None:
        now_ns = event.time_ns if event.time_ns is not None else self._tick_ns
        if event.kind in ("attempt_start", "resume"):
            self._start_over(now_ns, "; the trainer was started again")
        elif event.kind == "attempt_end":
            self._close(now_ns, "; the trainer ended")
        elif event.kind == "phase":
            self._on_phase(event.data, now_ns)
        elif event.kind == "control" and event.data.get("state") in ("paused", "running"):
            self._start_over(now_ns, "; paused" if self.context.is_paused else "; going on")

    def on_resume(self, from_step: int) -> None:
        self._start_over(self._tick_ns if self._last_ns is None else self._last_ns, "; the trainer was started again")

    def _on_phase(self, data: Mapping[str, object], now_ns: int | None) -> None:
        phase, is_begin = data.get("phase"), data.get("state") != "end"
        if phase in ("paused", "finished"):
            self._start_over(now_ns, f"; {phase}")
            return
        if phase not in WAITING_PHASES:
            return
        name = str(phase)
        if is_begin:
            self._phase, self._phase_from_ns = name, now_ns
        elif self._phase == name:
            if now_ns is not None and self._phase_from_ns is not None and now_ns > self._phase_from_ns:
                took = (now_ns - self._phase_from_ns) / 1e9
                self._phases[name] = [*self._phases.get(name, []), took][-KEPT_PHASES:]
            self._phase = None
        if now_ns is not None:
            self._close(now_ns, f"; {name} {'began' if is_begin else 'ended'}")
            self._last_ns = now_ns if self._last_ns is None else max(self._last_ns, now_ns)

    def _start_over(self, now_ns: int | None, ending: str) -> None:
        """The next step may take as long as a first one."""
        self._close(now_ns, ending)
        self._is_first = True
        self._phase = None
        if now_ns is not None:
            self._last_ns = now_ns

    def _learn(self, gap_s: float) -> None:
        if gap_s < 0:
            return
        self._gaps.push(gap_s)
        if self._in_block == 0 or not self._longest:
            self._longest.append(gap_s)
        elif gap_s > self._longest[-1]:
            self._longest[-1] = gap_s
        self._in_block = (self._in_block + 1) % GAPS_PER_BLOCK

    def _check(self, now_ns: int, arrived_ns: int | None = None, *, is_history: bool = False) -> None:
        """``is_history``: nobody saw this run alive, so it may have ended long ago; that is looked at, but wakes nobody."""
        deadline_s = self.deadline_s()
        if deadline_s is None or self._last_ns is None:
            return
        since_ns = self._last_ns if arrived_ns is None else max(self._last_ns, min(arrived_ns, now_ns))
        elapsed_s = (now_ns - since_ns) / 1e9
        if elapsed_s < deadline_s:
            return
        critical_s = self._numbers["critical_factor"] * deadline_s
        severity = Severity.INFO if is_history else Severity.CRITICAL if elapsed_s >= critical_s else Severity.WARNING
        message = f"no step for {format_duration(elapsed_s)} ({self._reference(deadline_s)})"
        if is_history:
            message += "; it ended or died before it was watched, and nothing says which"
        data: dict[str, Any] = {"deadline_s": round(deadline_s, 3)} | ({"is_history": True} if is_history else {})
        if "stall" in self.ledger.open:
            self.ledger.escalate("stall", severity, message, value=elapsed_s, data=data)
        else:
            self.ledger.open_finding(
                "stall",
                severity,
                message,
                value=elapsed_s,
                expected=self.usual_s(),
                data=data,
                time_ns=since_ns + round(deadline_s * 1e9),
            )

    def _reference(self, deadline_s: float) -> str:
        usual_s = self.usual_s()
        usual = "" if usual_s is None else f"usual {format_duration(usual_s)}, "
        return f"{usual}deadline {format_duration(deadline_s)}"

    def _close(self, now_ns: int | None, ending: str) -> None:
        if "stall" not in self.ledger.open:
            return
        if now_ns is not None and self._last_ns is not None:
            ending += f" after {format_duration((now_ns - self._last_ns) / 1e9)}"
        self.ledger.close("stall", None, ending)
