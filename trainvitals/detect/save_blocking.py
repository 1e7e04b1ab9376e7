"""How long saves keep the training waiting: from the hook, from begin and end in the log, or from the gap between the steps around."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.detect.findings import format_count, format_duration
from trainvitals.detect.save_schedule import Gap
from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import median
from trainvitals.records import Step

KEPT_SAVES = 32
#: Sources of a blocked time, the better the higher; a worse one is not mixed in.
GAPS, PHASES, HOOK = 1, 2, 3
NAMES = {GAPS: "steps", PHASES: "log", HOOK: "hook"}
RECENT_SAVES = 3
MIN_EARLIER_SAVES = 5
FAST_FACTOR = 2.0  # of the share: believed after few saves
FINE_SHARE = 0.8  # of a threshold: below it is well again
MIN_JUMP_SHARE = 0.01
MAX_BLOCKED_S = 1e7


@dataclass(frozen=True, slots=True)
class Verdict:
    """``is_estimate``: other work around a save (an evaluation nobody announced) may be counted in."""

    is_fine: bool
    text: str
    value: float
    expected: float
    first_step: int
    source: str
    saves: int
    is_estimate: bool


class Blocking(Stateful):
    """The last 32 saves. Shares are of one attempt; the usual blocked time is learnt over all of them."""

    STATE = ("_saves", "_source", "_phase", "_around", "_told_keys")

    def __init__(self, numbers: Mapping[str, float]) -> None:
        self._numbers = numbers
        self._saves: deque[list[Any]] = deque(maxlen=KEPT_SAVES)  # attempt, step, time_ns, blocked_s
        self._source = 0
        self._phase: dict[str, Any] = {}
        self._around: int | None = None
        self._told_keys: deque[str] = deque(maxlen=KEPT_SAVES)

    def told(self, key: str, step: int, time_ns: int | None, blocked_s: object, attempt: int) -> None:
        """The hook told of a save how long it blocked; staged and persisted both may say it."""
        if isinstance(blocked_s, bool) or not isinstance(blocked_s, (int, float)) or not 0 <= blocked_s <= MAX_BLOCKED_S:
            return
        mark = f"{attempt}/{step}/{key}"
        if mark not in self._told_keys:
            self._told_keys.append(mark)
            self._add(HOOK, attempt, step, time_ns, float(blocked_s))

    def phase_begun(self, step: int, time_ns: int | None) -> None:
        """The log told that a save began; without a time the steps around it tell how long it blocked."""
        if time_ns is None:
            self.around(step)
        self._phase = {"step": step, "time_ns": time_ns, "is_clean": True}

    def phase_ended(self, step: int, time_ns: int | None, attempt: int) -> None:
        """... that it ended. Where steps came in between it blocked for a part of that only, which the log does not tell."""
        phase, self._phase = self._phase, {}
        if not phase:
            self.around(step)
        elif not phase["is_clean"] or time_ns is None or phase["time_ns"] is None or time_ns < phase["time_ns"]:
            return
        elif time_ns == phase["time_ns"]:
            self.around(step)  # both were dated by when they were read
        else:
            self._add(PHASES, attempt, step, time_ns, (time_ns - phase["time_ns"]) / 1e9)

    def around(self, step: int) -> None:
        """A save of this step lies between the last point and the next."""
        self._around = step

    def stepped(self, step: Step, gap: Gap | None, step_s: float | None, attempt: int) -> None:
        """A point and the gap before it; ``step_s``: usual seconds of a step."""
        if self._phase and step.step > self._phase["step"]:
            self.interrupted()
        if self._around is None:
            return
        saved_step, self._around = self._around, None
        if gap is not None and step_s is not None:
            blocked_s = max(0.0, gap.seconds - step_s * gap.steps)
            self._add(GAPS, attempt, saved_step, step.time_ns, blocked_s)

    def interrupted(self) -> None:
        """Something else takes time now (an evaluation, a pause): this save tells nothing."""
        self._around = None
        if self._phase:
            self._phase["is_clean"] = False

    def restart(self) -> None:
        """The trainer started again."""
        self._phase, self._around = {}, None

    def forget(self) -> None:
        """What was usual holds no longer."""
        self._saves.clear()

    def judge(self, attempt: int) -> Verdict | None:
        """None: not enough is known, or it lies between well and too much."""
        own = [save for save in self._saves if save[0] == attempt]
        numbers = self._numbers
        recent = self._recent(own, numbers["fast_saves"], numbers["fast_window_s"])
        if recent is None:
            return None
        longer = self._recent(own, numbers["saves"], numbers["min_window_s"])
        share = newest = _share(recent)
        now_s = median([save[3] for save in self._saves][-RECENT_SAVES:])
        # A few saves that happen to lie close together say little about a run; what they say twice over is believed.
        if longer is not None and share <= FAST_FACTOR * numbers["share"]:
            recent, share = longer, _share(longer)
        is_too_much = share > numbers["share"] * (1.0 if recent is longer else FAST_FACTOR)
        details = {"first_step": recent[1][1], "source": NAMES[self._source], "saves": len(recent) - 1}
        is_estimate = self._source == GAPS
        if is_too_much:
            text = (
                f"saves block the training {100 * share:.1f} % of the time ({format_duration(now_s)} each, "
                f"last {format_count(len(recent) - 1, 'save')})"
            )
            return Verdict(False, text, share, numbers["share"], is_estimate=is_estimate, **details)
        earlier = [save[3] for save in self._saves][:-RECENT_SAVES]
        # Of up to 29 saves: when most of them are as slow, that is the usual by now.
        usual_s = median(earlier) if len(earlier) >= MIN_EARLIER_SAVES else None
        is_jump = usual_s is not None and now_s >= numbers["jump"] * usual_s and now_s - usual_s >= numbers["jump_floor_s"]
        if is_jump and usual_s is not None and newest >= MIN_JUMP_SHARE:
            text = f"saves block the training {format_duration(now_s)} each, usual {format_duration(usual_s)}"
            return Verdict(False, text, now_s, usual_s, is_estimate=is_estimate, **details)
        if share < FINE_SHARE * numbers["share"]:
            text = f"{100 * share:.1f} % of the time, {format_duration(now_s)} each"
            return Verdict(True, text, share, numbers["share"], is_estimate=is_estimate, **details)
        return None

    def _recent(self, own: list[list[Any]], saves: float, window_s: float) -> list[list[Any]] | None:
        """The saves that are counted and the one before them: as few as make the window long enough; None when they are not."""
        for count in range(int(min(KEPT_SAVES, max(1.0, saves))) + 1, len(own) + 1):
            first, last = own[-count], own[-1]
            if first[2] is None or last[2] is None:
                return None
            if (last[2] - first[2]) / 1e9 >= max(window_s, 1e-3):
                return own[-count:]
        return None

    def _add(self, source: int, attempt: int, step: int, time_ns: int | None, blocked_s: float) -> None:
        if source < self._source:
            return
        if source > self._source:
            self._saves.clear()
            self._source = source
        if self._saves and self._saves[-1][0] == attempt and step <= self._saves[-1][1]:
            return  # said of the same save twice
        self._saves.append([attempt, step, time_ns, blocked_s])


def _share(saves: list[list[Any]]) -> float:
    """Of the time since the first of ``saves``, that the others blocked."""
    return float(sum(save[3] for save in saves[1:]) / ((saves[-1][2] - saves[0][2]) / 1e9))
