"""Loss spikes, divergence and unrecovered steps: persistence over a frozen robust baseline, not magnitude.

Healthy loss has one-point tails of 13-27 robust sigma, but they stand alone; what separates a fault is several high points
within a few. While an incident is open the baseline is frozen, so the fault cannot become its own yardstick.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.baseline import TAIL_FACTOR, Baseline
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_count, format_step, format_value
from trainvitals.detect.loss_habit import SpikeHabit
from trainvitals.detect.loss_scale import LossScale
from trainvitals.detect.statistics import median
from trainvitals.records import Event, Severity, Step

RECENT_POINTS = 5
INITIAL_POINTS = 5
SPARSE_GAP_STEPS = 4
WARM_SPARSE_POINTS = 80
SETTLED_SHARE = 0.4  # of warmup_points, for a level that falls no more
OUTLIER_WINDOW = 1000
MANY_OUTLIERS = 3  # in that window

MAX_Z = 1e9
CRITICAL_Z = 8.0
SEVERE_POINTS = 3
NOT_BEGUN = 1e-9
MIN_LOST = 0.005  # of all progress: less of it is never critical
NO_PROGRESS_SIGMA = 3.0
NO_PROGRESS_EXCESS = 0.1  # of the level: what is severe in a run that has made no progress yet
RETURN_POINTS = 20
RETURN_SHARE = 0.01  # of the level: as far above the level from before a resume the loss may come back to


class LossDetector(FamilyDetector):
    """``loss_spike``, ``loss_divergence``, ``loss_level_shift`` (of an unrecovered spike) and ``loss_outlier``.

    Others read: ``level`` and ``sigma`` (None before there are any), ``z``, ``initial``, ``is_warm``, ``recent_median`` and
    ``incident``: None, or first_step, point, level, sigma, peak (raw), peak_median (of medians of five), value, is_return.

    After a resume whose loss was lower (data seen twice) a rise to the level from before is no spike: where new data begins the loss
    is what it truly is. Such a rise is a level shift, which is taken as usual when it stays (``returns`` counts them).
    """

    family = "loss"
    rules = ("loss_spike", "loss_divergence", "loss_level_shift", "loss_outlier")
    STATE = (
        "ledger", "baseline", "scale", "level", "sigma", "z", "initial", "is_warm", "recent_median", "incident", "points",
        "returns", "_before_drop", "_first_values", "_first_step", "_recent", "_recent_z", "_medians", "_outliers_at", "_collapsed_count", "habit",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        spike, divergence = self.numbers["loss_spike"], self.numbers["loss_divergence"]
        shift, outlier = self.numbers["loss_level_shift"], self.numbers["loss_outlier"]
        self.baseline = Baseline(
            int(spike["window"]), int(spike["short_window"]), int(spike["min_points"]), spike["spread_floor"]
        )
        self.scale = LossScale(spike["negligible_share"])
        self._warmup_points = int(spike["warmup_points"])
        self._warmup_steps = int(spike["warmup_steps"])
        self._hot_z = spike["z"] / spike["sensitivity"]
        self._min_excess = spike["min_excess"] / spike["sensitivity"]
        self._tail = TAIL_FACTOR / spike["sensitivity"]
        self._hot_points = max(1, int(spike["hot_points"]))
        self._clear_z = min(spike["clear_z"], 0.9 * self._hot_z)
        self._critical_lost = spike["critical_lost_progress"] / spike["sensitivity"]
        self._sparse_z = spike["sparse_z"] / spike["sensitivity"]
        self._sparse_excess = spike["sparse_excess"] / spike["sensitivity"]
        self._page_after = int(divergence["page_after_points"])
        self._diverged_excess = divergence["min_excess"] / divergence["sensitivity"]
        self._healing_share = divergence["healing_share"]
        self._rebase_diverged_after = int(divergence["rebase_after_points"])
        self._rebase_shifted_after = int(shift["rebase_after_points"])
        self._shift_excess = shift["warning_excess"] / shift["sensitivity"]
        self._outlier_z = outlier["z"] / outlier["sensitivity"]
        self._collapse_after = max(1, int(outlier["collapse_after"]))
        self.level: float | None = None
        self.sigma: float | None = None
        self.z: float | None = None
        self.initial: float | None = None
        self.is_warm = False
        self.recent_median: float | None = None
        self.incident: dict[str, Any] | None = None
        self.points = 0
        self.returns = 0
        self._before_drop: dict[str, Any] | None = None
        self._first_values: list[float] = []
        self._first_step: int | None = None
        self._recent: deque[float] = deque(maxlen=RECENT_POINTS)
        self._recent_z: deque[list[float]] = deque(maxlen=max(1, int(spike["of_points"])))  # [step, z]
        self._medians: deque[float] = deque(maxlen=max(2, self._page_after // 2))
        self._outliers_at: deque[int] = deque(maxlen=self._collapse_after)
        self._collapsed_count = 0
        self.habit = SpikeHabit()

    def on_step(self, step: Step) -> None:
        value = self.context.loss
        self.z = None
        if value is not None and self.points == 0 and abs(value) < NOT_BEGUN:
            # Nothing is trained yet (an empty replay buffer): what is zero until then would be left by any first loss.
            value = self.context.loss = None
        if value is None:
            return
        self.points += 1
        if self._first_step is None:
            self._first_step = step.step
        if self.initial is None:
            self._first_values.append(value)
            if len(self._first_values) == INITIAL_POINTS:
                self.initial = median(self._first_values)
        self._recent.append(value)
        self.recent_median = median(self._recent)
        baseline = self.baseline
        if not baseline.is_ready:
            baseline.accept(value)
            baseline.remember(step.step, value, is_accepted=True)
            self.level = baseline.median()
            return
        if self.incident is not None:
            self.level, self.sigma = self.incident["level"], self.incident["sigma"]
        else:
            self.level, self.sigma = baseline.level_and_sigma()
            self.scale.follow(self.level, self.sigma)
        assert self.level is not None
        assert self.sigma is not None
        # Beyond this nothing is more abnormal, and infinity would spread into the state.
        z = self.z = max(-MAX_Z, min(MAX_Z, (value - self.level) / self.sigma))
        self._recent_z.append([step.step, z])
        if not self.is_warm:
            self.is_warm = self.points >= self._warmup_points or (
                self.points >= WARM_SPARSE_POINTS and step.step - self._first_step >= self._warmup_steps
            )
            if self.points >= SETTLED_SHARE * self._warmup_points and baseline.is_settled():
                self.is_warm = True
        if self.incident is None:
            self._look_for_spike(step, value, z)
        else:
            self._follow(step, value)
        is_hot = z >= self._hot_z and self.is_warm
        baseline.remember(step.step, value, is_accepted=self.incident is None and not is_hot)

    def on_resume(self, from_step: int) -> None:
        self._recent.clear()
        self._recent_z.clear()
        incident, is_return = self.incident, False
        if self._before_drop is not None and from_step <= self._before_drop["from_step"]:
            self._before_drop = None
            is_return = incident is not None and bool(incident.get("is_return"))
        if incident is not None:
            if from_step >= incident["first_step"] and not is_return:
                return  # resumed with the damaged weights: the incident goes on
            self._end_incident("; the run went back to step " + format_step(from_step))
        self.baseline.rewind(from_step)
        self.level = self.sigma = self.z = None
        if not self.baseline.is_ready:
            self._start_anew()

    def _start_anew(self) -> None:
        """The run went back to where there is no usual level yet: it warms up again."""
        kept = len(self.baseline.history)
        self.points = kept
        self.is_warm = False
        self._outliers_at.clear()
        if kept == 0:
            self._first_step = self.initial = None
            self._first_values = []
            self.scale.reset()

    def on_event(self, event: Event) -> None:
        if event.kind == "annotation" and self.incident is not None and self.context.is_silenced("loss_spike"):
            self._end_incident(EXPECTED)
            self.baseline.rebase()

    def excess(self, value: float) -> float:
        """How far above the level, as a share of it."""
        if self.level is None or self.sigma is None:
            return 0.0
        return (value - self.level) / max(abs(self.level), self.sigma)

    def lost_progress(self, value: float) -> float:
        """Share of (initial loss - level) given back; 0 when the run has made no progress yet."""
        if self.level is None or self.initial is None or self.initial <= self.level:
            return 0.0
        return (value - self.level) / (self.initial - self.level)

    def _look_for_spike(self, step: Step, value: float, z: float) -> None:
        baseline, silenced = self.baseline, self.context.is_silenced("loss_spike")
        is_hot = z >= self._hot_z
        if is_hot and self.is_warm and not silenced:
            is_alone_enough = (
                self.context.gap_steps >= SPARSE_GAP_STEPS and z >= self._sparse_z and self.excess(value) >= self._sparse_excess
            )
            hot = [item for item in self._recent_z if item[1] >= self._hot_z]
            typical = value if is_alone_enough else self.recent_median
            assert typical is not None
            is_enough = is_alone_enough or (len(hot) >= self._hot_points and self._is_more_than_chance(hot))
            is_far = self.excess(typical) >= self._min_excess and baseline.is_beyond_tail(typical, self.level, self._tail)
            if is_enough and is_far and not self.scale.is_negligible(typical):
                self._open_incident(step, value, int(hot[0][0]), typical)
                return
        if z >= self._outlier_z:
            self._mark_outlier(step, value)
        # A lone high point is cut rather than dropped so that the level keeps following a slow change.
        cut = self.level + self._hot_z * self.sigma if self.level is not None and self.sigma is not None else value
        is_cut = is_hot and self.is_warm and not silenced and not self.scale.is_unknown
        baseline.accept(cut if is_cut else value)

    def _is_more_than_chance(self, hot: list[list[float]]) -> bool:
        """In a run full of odd batches three of them fall within five points now and then: there they must stand together."""
        since = self.points - OUTLIER_WINDOW
        if sum(at > since for at in self._outliers_at) < MANY_OUTLIERS:
            return True
        newest = list(self._recent_z)[-self._hot_points :]
        return len(hot) > self._hot_points or all(item[1] >= self._hot_z for item in newest)

    def open_from_shift(self, step: Step, first_step: int, level: float, sigma: float, typical: float) -> None:
        """A rise so slow that the usual level followed it: go back to the level and spread from before it, and watch from there.

        Does nothing unless the rise is as high as a divergence and as clear as a spike over that level.
        """
        if self.incident is not None or not self.is_warm or self.context.is_silenced("loss_spike"):
            return
        rise = typical - level
        if rise < self._hot_z * sigma or rise < self._diverged_excess * abs(level) or self.scale.is_negligible(typical):
            return
        self.level, self.sigma = level, sigma
        self._open_incident(step, typical, first_step, typical)

    def _open_incident(self, step: Step, value: float, first_step: int, typical: float) -> None:
        is_return = self.is_return(step, typical)
        self.incident = {
            "first_step": first_step, "point": self.points, "level": self.level, "sigma": self.sigma,
            "peak": value, "peak_median": typical, "value": typical, "is_return": is_return,
        }  # fmt: skip
        self._medians.clear()
        if is_return:
            self._tell_return(self.incident, typical)
        else:
            self._tell_spike(self.incident, typical)

    def _tell_spike(self, incident: dict[str, Any], typical: float) -> None:
        level, first_step = incident["level"], incident["first_step"]
        self.ledger.open_finding(
            "loss_spike",
            Severity.INFO if self.habit.is_usual(self.points, incident) else Severity.WARNING,
            f"loss {format_change(level, max(self._recent))} since step {format_step(first_step)}",
            first_step=first_step,
            value=max(self._recent),
            expected=level,
            data={
                "z": round(self.z or 0.0, 2),
                "excess": round(self.excess(typical), 4),
                "rise_from": self.baseline.rise_from(first_step, level, incident["sigma"]),
            },
        )
        self._judge_severity(typical)

    # -- back to the level from before a resume -------------------------------------------------------------------

    def expect_return(self, from_step: int, level: float, sigma: float) -> None:
        """After the resume from ``from_step`` the loss is lower than ``level``; the run may see data again for as long as it ran."""
        self._before_drop = {"from_step": from_step, "level": level, "sigma": sigma, "last_step": 2 * from_step}

    def is_return(self, step: Step, typical: float, low: float | None = None) -> bool:
        """Whether a rise ends near the level from before the resume: at most there, and at least half-way from ``low`` (or the usual level)."""
        before, low = self._before_drop, self.level if low is None else low
        if before is None or low is None or step.step > before["last_step"] or low >= before["level"]:
            return False
        slack = max(self._clear_z * before["sigma"], RETURN_SHARE * abs(before["level"]))
        return bool(0.5 * (low + before["level"]) <= typical <= before["level"] + slack)

    def open_return(self, step: Step, first_step: int, level: float, sigma: float, typical: float) -> None:
        """Another rule saw the rise first."""
        if self.incident is None and not self.context.is_silenced("loss_level_shift"):
            self.level, self.sigma = level, sigma
            self._open_incident(step, typical, first_step, typical)

    def _tell_return(self, incident: dict[str, Any], typical: float) -> None:
        assert self._before_drop is not None
        excess, resumed = self.excess(typical), format_step(self._before_drop["from_step"])
        self.ledger.open_finding(
            "loss_level_shift",
            Severity.WARNING if excess > self._shift_excess else Severity.INFO,
            f"loss {format_change(incident['level'], typical)} since step {format_step(incident['first_step'])}, as it was before the resume "
            f"from step {resumed}: does new data begin here, after data that the run had seen before?",
            first_step=incident["first_step"],
            value=typical,
            expected=incident["level"],
            data={"excess": round(excess, 4), "is_return": True},
        )

    def _follow_return(self, step: Step, incident: dict[str, Any], typical: float) -> None:
        """Until it has stayed there it may still become a spike. A rise within the noise is judged by more points than a spike is."""
        before = self._before_drop
        assert before is not None
        age, middle = self.points - incident["point"], median(self._medians)
        if typical > before["level"] and not self.is_return(step, typical):
            incident["is_return"] = False
            self.ledger.close("loss_level_shift", None, f"; it went on to {format_value(typical)}")
            self._tell_spike(incident, typical)
        elif age >= min(RETURN_POINTS, self._page_after) and middle < 0.5 * (incident["level"] + before["level"]):
            self._end_incident(f"; back to {format_value(middle)} at step {format_step(step.step)}")
        elif age >= self._page_after and self.is_return(step, typical):
            self.baseline.forget_between(before["from_step"], incident["first_step"])
            self._before_drop = None
            self.returns += 1
            self._end_incident("; taken as usual again", is_accepted=True)

    def _follow(self, step: Step, value: float) -> None:
        incident = self.incident
        assert incident is not None
        assert self.level is not None
        assert self.recent_median is not None
        typical = self.recent_median
        incident["peak"] = max(incident["peak"], value)
        incident["peak_median"] = max(incident["peak_median"], typical)
        incident["value"] = typical
        age = self.points - incident["point"]
        if incident.get("is_return"):
            self._medians.append(typical)
            self._follow_return(step, incident, typical)
            return
        is_back = (typical - incident["level"]) / incident["sigma"] < self._clear_z or self.scale.is_negligible_again(typical)
        if is_back and age >= 3:
            if "loss_divergence" not in self.ledger.open:
                self.habit.healed(self.points, incident)
            self._end_incident(f"; back to {format_value(typical)} at step {format_step(step.step)}")
            return
        self._judge_severity(typical)
        self._medians.append(typical)
        if age >= self._page_after:
            self._judge_recovery(incident, typical)
        limit = self._rebase_shifted_after if "loss_divergence" not in self.ledger.open else self._rebase_diverged_after
        if age >= limit:
            self.baseline.rebase()
            self._end_incident(f"; taken as the new usual level after {format_count(age, 'point')}", is_accepted=True)

    def _judge_severity(self, typical: float) -> None:
        incident, lost = self.incident, self.lost_progress(typical)
        assert incident is not None
        spike, is_usual = self.ledger.open.get("loss_spike"), self.habit.is_usual(self.points, incident)
        if spike is not None and spike.severity is Severity.INFO and not is_usual:
            self.ledger.escalate("loss_spike", Severity.WARNING, spike.message, value=typical)
        # A run that has made little progress for its noise (reinforcement learning around zero, a fine-tuning that began flat) gives much of it
        # back by chance, and three odd batches within five steps happen in a heavy-tailed run, but are gone from the median soon.
        level, sigma = incident["level"], incident["sigma"]
        has_progress = self.initial is not None and self.initial - level >= NO_PROGRESS_SIGMA * sigma
        is_much = has_progress or self.excess(typical) >= NO_PROGRESS_EXCESS
        is_severe = is_much and lost >= self._critical_lost and typical - level >= CRITICAL_Z * sigma
        incident["severe_points"] = incident.get("severe_points", 0) + 1 if is_severe else 0
        if incident["severe_points"] >= (1 if self.context.gap_steps >= SPARSE_GAP_STEPS else SEVERE_POINTS):
            change = f"loss {format_change(level, typical)} since step {format_step(incident['first_step'])}"
            message = f"{change}: {100 * lost:.0f} % of all progress given back"
            self.ledger.escalate("loss_spike", Severity.CRITICAL, message, value=typical, data={"lost_progress": round(lost, 4)})

    def _judge_recovery(self, incident: dict[str, Any], typical: float) -> None:
        level, ledger = incident["level"], self.ledger
        excess = self.excess(typical)
        change = f"loss {format_change(level, typical)} since step {format_step(incident['first_step'])}"
        details: dict[str, Any] = {"first_step": incident["first_step"], "value": typical, "expected": level}
        data = {"excess": round(excess, 4), "lost_progress": round(self.lost_progress(typical), 4)}
        if excess < self._diverged_excess:
            if "loss_divergence" not in ledger.open and "loss_level_shift" not in ledger.open:
                message = f"{change} and flat: did the data mix change?"
                ledger.open_finding("loss_level_shift", Severity.WARNING, message, data=data, **details)
            return
        if self.initial is not None and level < self.initial and data["lost_progress"] < MIN_LOST:
            return
        is_healing = typical - level < self._healing_share * (self._medians[0] - level)
        if not is_healing and "loss_divergence" not in ledger.open:
            ledger.open_finding("loss_divergence", Severity.CRITICAL, f"{change}, not coming back", data=data, **details)

    def _end_incident(self, ending: str, **more: Any) -> None:
        incident = self.incident
        peak = {} if incident is None else {"peak": incident["peak"]}
        for rule in ("loss_spike", "loss_divergence", "loss_level_shift"):
            self.ledger.close(rule, None, ending, **peak, **more)
        self.incident = None
        self._recent_z.clear()

    def _mark_outlier(self, step: Step, value: float) -> None:
        """One mark each, until they come so often that one finding counts them all."""
        ledger, seen = self.ledger, self._outliers_at
        is_often = len(seen) == seen.maxlen and seen[0] > self.points - OUTLIER_WINDOW
        seen.append(self.points)
        assert self.level is not None
        if is_often:
            self._collapsed_count += 1
            message = f"more than {self._collapse_after} single high losses in {OUTLIER_WINDOW:,} points since step {format_step(step.step)}"
            ledger.open_finding("loss_outlier", Severity.INFO, message, value=value, expected=self.level)
            return
        ledger.close("loss_outlier", None, f"; {self._collapsed_count:,} counted here", count=self._collapsed_count)
        self._collapsed_count = 0
        message = f"loss {format_change(self.level, value)} at step {format_step(step.step)}"
        ledger.mark("loss_outlier", Severity.INFO, message, value=value, expected=self.level, data={"z": round(self.z or 0.0, 2)})
