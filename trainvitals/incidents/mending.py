"""Whether a supervisor is mending what ended a run, by what it says of it: how long a death or a hang may be kept from people. Pure.

A restart goes on while each of its phases ends within twice its usual time (at least ``mend_s``), and the whole within ``mend_max_s``. A
hang is told as without a supervisor, unless the supervisor is about to end it: until its ``hang_s`` a whole cluster may stand idle for half an
hour. What it refuses, or does not say, is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainvitals.records import Event, Finding

#: Ends of the trainer that a supervisor mends by starting it again. What it gives up on has a rule of its own.
MENDABLE = frozenset({"run_dead", "nccl_timeout", "out_of_memory"})
#: What a supervisor ends by itself, and then mends.
HANGS = frozenset({"stall"})
#: A phase of a restart may take this many times its usual time.
TIMES_USUAL = 2.0
#: What the supervisor needs to see a hang, beyond its ``hang_s``.
HANG_SLACK_NS = 60 * 10**9
#: It is about to end it when it will have done so within this time.
HANG_SOON_NS = 2 * HANG_SLACK_NS
#: The phases of a start, in their order, as the supervisor names them; the first one only where there is a queue.
PHASES = ("queue", "start", "load", "first_step")
_KEPT_NUMBERS = 20
_REFUSING = frozenset({"held", "kept_held", "gave_up", "left", "storage_hangs"})
#: What a person decided, or what needs nothing more.
_SETTLED = frozenset({"released", "stopped", "done"})


@dataclass(frozen=True, slots=True)
class Patience:
    """mend_s: seconds that a supervisor has for one phase of a restart, at least, and for all of it where it says nothing of phases; 0 =
    none. mend_max_s: seconds after which a death or a hang is told in any case. end_s: seconds that an end must last."""

    mend_s: float = 600.0
    end_s: float = 120.0
    mend_max_s: float = 3600.0


@dataclass
class Mending:
    """Times are the engine's clock, ns. broke_ns: since when no step is made, None = steps are. died_ns: since when the trainer is gone,
    None = it is not. phase: of the restart, "" = nothing was said of one. failures: starts in a row that made no step. is_refused: the
    supervisor waits for a person. usual_s: of the phases, as the supervisor told. hang_s: when it ends a hang, None = not known.
    """

    patience: Patience
    broke_ns: int | None = None
    broke_attempt: int = 0
    died_ns: int | None = None
    phase: str = ""
    phase_ns: int = 0
    wait_s: float = 0.0
    failures: int = 0
    is_refused: bool = False
    hang_s: float | None = None
    quiet_ns: int | None = None
    usual_s: dict[str, float] = field(default_factory=dict)

    def hear(self, event: Event, at_ns: int) -> None:
        """An event of the supervisor; others are passed over."""
        if event.kind != "supervisor":
            return
        data, state = event.data, event.data.get("state")
        if state in ("started", "adopted"):
            self.hang_s = _seconds(data.get("hang_s"))
        if state == "started":
            told = data.get("usual_s")
            usual = told if isinstance(told, Mapping) else {}
            self.usual_s = {str(name): s for name, one in list(usual.items())[:_KEPT_NUMBERS] if (s := _seconds(one)) is not None}
            self.is_refused = False
            self._enter("queue" if "queue" in usual else "start", at_ns)
        elif state == "adopted":
            self.is_refused = False
            self.quiet_ns = at_ns  # it counts a hang anew
        elif state == "phase":
            done = data.get("phase")
            if self.phase in PHASES and done in PHASES and PHASES.index(done) >= PHASES.index(self.phase):
                self._enter(PHASES[min(PHASES.index(done) + 1, len(PHASES) - 1)], at_ns)
        elif state in ("ending", "ended"):
            if self.phase in PHASES:
                self.failures += 1
            self.died_ns = at_ns if self.died_ns is None else self.died_ns
            self._enter(str(state), at_ns)
        elif state == "waiting":
            self._enter("waiting", at_ns)
            self.wait_s = _seconds(data.get("seconds")) or 0.0
        elif state in _SETTLED:
            self._whole()
        elif state in _REFUSING:
            self.is_refused = True

    def found(self, finding: Finding, at_ns: int) -> None:
        """A finding that is open now. at_ns: when it began."""
        if finding.rule in HANGS:
            silent_ns = at_ns - round((finding.value or 0.0) * 1e9)
            self.quiet_ns = silent_ns if self.quiet_ns is None else max(self.quiet_ns, silent_ns)
            self._break(finding, silent_ns)
        elif finding.rule in MENDABLE:
            self._break(finding, at_ns)
            if self.died_ns is None:
                self.died_ns = at_ns
                if not self.phase:
                    self._enter("died", at_ns)

    def stepped(self, attempt: int, at_ns: int) -> None:
        """A step of ``attempt`` was made."""
        self.quiet_ns = at_ns
        if attempt >= self.broke_attempt:
            self._whole()

    @property
    def is_restarting(self) -> bool:
        """Whether the supervisor says that it ends the trainer, or starts it, and no step was made since."""
        return self.phase not in ("", "died")

    def holds(self, rules: set[str], since_ns: int, now_ns: int) -> bool:
        """Whether an incident of these rules, all of ``MENDABLE`` or ``HANGS``, need not be told yet, as long as the supervisor lives.
        since_ns: when it began, where nothing else says since when no step is made."""
        broke_ns = since_ns if self.broke_ns is None else self.broke_ns
        if self.is_refused or self.patience.mend_s <= 0 or now_ns - broke_ns >= self.patience.mend_max_s * 1e9:
            return False
        if self.phase:
            return self._is_in_time(now_ns)
        if rules <= HANGS:
            if self.hang_s is None:
                return False
            ended_ns = (since_ns if self.quiet_ns is None else self.quiet_ns) + round(self.hang_s * 1e9) + HANG_SLACK_NS
            return now_ns < ended_ns <= now_ns + HANG_SOON_NS
        return now_ns - broke_ns < self.patience.mend_s * 1e9

    def not_after(self, now_ns: int) -> None:
        """A clock that was set back must not make anybody wait for it."""
        self.phase_ns = min(self.phase_ns, now_ns)
        self.broke_ns, self.died_ns, self.quiet_ns = (
            None if one is None else min(one, now_ns) for one in (self.broke_ns, self.died_ns, self.quiet_ns)
        )

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {name: value for name, value in asdict(self).items() if name != "patience"}

    @classmethod
    def from_state(cls, patience: Patience, state: Mapping[str, Any]) -> Mending:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        return cls(patience, **{**state, "usual_s": dict(state.get("usual_s", {}))})

    def _is_in_time(self, now_ns: int) -> bool:
        least = self.patience.mend_s
        if self.failures and self.died_ns is not None:
            # A start that died before its first step is no progress: all the others together have the time of one.
            whole_s = max(least, TIMES_USUAL * sum(self.usual_s.get(name, 0.0) for name in PHASES))
            if now_ns - self.died_ns >= whole_s * 1e9:
                return False
        usual_s = self.usual_s.get(self.phase)
        if usual_s is None and self.phase in PHASES:  # a trainer that does not tell this phase has its time in the next one
            later = PHASES[PHASES.index(self.phase) + 1 :]
            usual_s = next((self.usual_s[name] for name in later if name in self.usual_s), None)
        limit_s = max(least, TIMES_USUAL * (usual_s or 0.0)) + (self.wait_s if self.phase == "waiting" else 0.0)
        return now_ns - self.phase_ns < limit_s * 1e9

    def _break(self, finding: Finding, at_ns: int) -> None:
        self.broke_attempt = max(self.broke_attempt, finding.attempt)
        self.broke_ns = at_ns if self.broke_ns is None else min(self.broke_ns, at_ns)

    def _enter(self, phase: str, at_ns: int) -> None:
        self.phase, self.phase_ns, self.wait_s = phase, at_ns, 0.0

    def _whole(self) -> None:
        self.broke_ns = self.died_ns = None
        self.phase, self.phase_ns, self.wait_s, self.failures, self.is_refused = "", 0, 0.0, 0, False


def _seconds(raw: object) -> float | None:
    """Untrusted: a plausible number of seconds, else None."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return float(raw) if 0 <= raw <= 30 * 86_400 else None
