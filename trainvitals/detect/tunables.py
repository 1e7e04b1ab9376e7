"""Every number of a rule that a person may change, with unit, default and meaning. Settings and documentation read this table.

Points are logged steps. Evidence for the defaults: docs/detection.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Tunable:
    """One number: its default, its unit and what it does, in a sentence."""

    default: float
    unit: str
    help: str


_SENSITIVITY = Tunable(1.0, "factor", "2 = twice as sensitive: the rule's thresholds are divided by it")

_TABLE: dict[str, dict[str, Tunable]] = {
    "loss_nonfinite": {
        "critical_in_a_row": Tunable(2, "points", "non-finite points in a row that make it critical"),
        "critical_in_window": Tunable(10, "points", "non-finite points within window that make it critical"),
        "window": Tunable(1000, "points", "length of that window"),
        "masked_in_a_row": Tunable(3, "points", "zeros in a row, after a loss above 0.05 and without a grad norm, that count as hidden NaN"),
        "absent_in_a_row": Tunable(3, "points", "steps in a row without a loss, in a run that always logged one, that count as hidden NaN"),
        "close_after_points": Tunable(50, "points", "finite points in a row that close it"),
    },
    "loss_outlier": {
        "sensitivity": _SENSITIVITY,
        "z": Tunable(6.0, "sigma", "height above the usual level of a single marked point"),
        "collapse_after": Tunable(20, "points", "outliers in 1,000 points after which they are counted in one finding"),
    },
    "loss_spike": {
        "sensitivity": _SENSITIVITY,
        "window": Tunable(128, "points", "accepted points that make the usual level and its spread"),
        "short_window": Tunable(32, "points", "the same while the curve is steep"),
        "min_points": Tunable(64, "points", "points before there is a usual level at all"),
        "warmup_points": Tunable(200, "points", "points before any loss rule but loss_nonfinite rises above info; 40 % of it once a quiet level has settled"),
        "warmup_steps": Tunable(1500, "steps", "... or this many steps with at least 80 points, for sparse logs"),
        "z": Tunable(4.5, "sigma", "height above the usual level that makes a point hot"),
        "hot_points": Tunable(3, "points", "hot points within of_points that open a spike"),
        "of_points": Tunable(5, "points", "length of that look back"),
        "min_excess": Tunable(0.01, "share of the level", "a spike must rise at least this far"),
        "spread_floor": Tunable(0.001, "share of the level", "the spread is never taken smaller (quantised losses)"),
        "clear_z": Tunable(2.5, "sigma", "the median of five below this closes it"),
        "negligible_share": Tunable(0.005, "share of the first losses", "a loss below this is as good as zero: no loss rule but loss_nonfinite warns"),
        "critical_lost_progress": Tunable(0.15, "share of progress", "giving back this share of (initial loss - level) for three points is critical"),
        "sparse_z": Tunable(10.0, "sigma", "logged every 4 steps or rarer: one point this high is a spike by itself"),
        "sparse_excess": Tunable(0.08, "share of the level", "... if it also rises this far"),
    },
    "loss_divergence": {
        "sensitivity": _SENSITIVITY,
        "page_after_points": Tunable(50, "points", "a spike still open and not falling after this is critical"),
        "min_excess": Tunable(0.03, "share of the level", "below this an unrecovered spike is a level shift"),
        "healing_share": Tunable(0.8, "share", "excess falling below this share within page_after_points / 2 counts as healing"),
        "rebase_after_points": Tunable(2000, "points", "the new level is accepted as usual after this"),
    },
    "loss_level_shift": {
        "sensitivity": _SENSITIVITY,
        "rebase_after_points": Tunable(400, "points", "the new level is accepted as usual after this"),
        "cusum_slack": Tunable(0.75, "sigma", "excess per point that the running sum forgives"),
        "cusum_limit": Tunable(25.0, "sigma", "running sum at which a shift is believed"),
        "info_excess": Tunable(0.005, "share of the level", "smallest shift that is marked"),
        "warning_excess": Tunable(0.02, "share of the level", "smallest shift that is a warning"),
        "block_points": Tunable(64, "points", "points of a block; the best recent three blocks are the reference"),
    },
    "loss_drift": {
        "sensitivity": _SENSITIVITY,
        "block_points": Tunable(64, "points", "points of a block; a second scale uses eight times as many"),
        "blocks": Tunable(4, "blocks", "blocks in a row that must all lie above the best level so far"),
        "z": Tunable(5.0, "sigma of blocks", "height above it"),
        "min_excess": Tunable(0.005, "share of the level", "smallest drift on the long scale; three times that on the short one"),
        "critical_excess": Tunable(0.02, "share of the level", "drift that is critical at twice z"),
        "early_points": Tunable(40, "points", "from here on, before other loss rules speak, the last ten points are compared with the best ten"),
        "early_excess": Tunable(0.8, "share of the best level", "... and must lie this far above them in the middle, and each half as far"),
    },
    "loss_plateau": {
        "info_points": Tunable(2000, "points", "points without a better smoothed level that are marked"),
        "info_share": Tunable(0.30, "share of the run", "... and at least this share of all points"),
        "warning_points": Tunable(4000, "points", "points without a better smoothed level that are a warning"),
        "warning_share": Tunable(0.45, "share of the run", "... and at least this share of all points"),
    },
    "loss_not_learning": {
        "min_steps": Tunable(3000, "steps", "steps after which a run must have learnt something"),
        "min_points": Tunable(80, "points", "... and points"),
        "level_share": Tunable(0.92, "share of the first loss", "still above this is not learning"),
        "min_initial_loss": Tunable(6.0, "loss", "only runs that start near ln(vocabulary) are judged"),
    },
    "loss_implausible_drop": {
        "sensitivity": _SENSITIVITY,
        "level_share": Tunable(0.25, "share of the level", "falling below this within of_points is not learning but a fault"),
        "hot_points": Tunable(4, "points", "such points within of_points"),
        "of_points": Tunable(5, "points", "length of that look back"),
        "z": Tunable(10.0, "sigma", "depth below the usual level"),
        "min_level": Tunable(0.05, "loss", "smaller usual levels are not judged"),
    },
    "loss_frozen": {
        "sensitivity": _SENSITIVITY,
        "points": Tunable(30.0, "points", "exactly the same loss in a row; ten times as many where it has fewer than five digits, thirty times where it never changed yet"),
        "longest_factor": Tunable(10.0, "factor", "... and this many times the longest repetition of the run so far, where it repeats at all"),
        "min_changes": Tunable(64.0, "points", "other losses that must have been seen before"),
    },
    "validation_nonfinite": {
        "close_after_evaluations": Tunable(1.0, "evaluations", "of that set, finite and in a row, that close it"),
    },
    "validation_rise": {
        "sensitivity": _SENSITIVITY,
        "min_evaluations": Tunable(8.0, "evaluations", "of a set before it is judged"),
        "z": Tunable(8.0, "sigma", "height of the lowest of the newest three above the best three, by this set's own noise"),
        "min_excess": Tunable(0.02, "share of the best", "... and at least this far"),
    },
    "validation_missing": {
        "gaps": Tunable(4.0, "intervals", "of nearly the same length that make it usual"),
        "intervals": Tunable(3.0, "intervals", "that must have passed without one"),
    },
    "grad_norm_spike": {
        "sensitivity": _SENSITIVITY,
        "window": Tunable(128, "points", "accepted points that make the usual grad norm"),
        "min_points": Tunable(64, "points", "points before there is one"),
        "warmup_points": Tunable(200, "points", "points before the rule speaks"),
        "ratio": Tunable(3.0, "times the usual", "hot_points of of_points above this open it"),
        "hot_points": Tunable(3, "points", "see ratio"),
        "of_points": Tunable(5, "points", "see ratio"),
        "single_ratio": Tunable(10.0, "times the usual", "one point above this is marked, and a warning when another high one or the loss follows; at once at its square"),
        "spread": Tunable(6.0, "sigma of the log", "either must also lie this far out of the run's own spread"),
        "clear_ratio": Tunable(2.0, "times the usual", "the median of five below this closes it"),
        "rebase_after_points": Tunable(400, "points", "the new level is accepted as usual after this"),
    },
    "grad_norm_nonfinite": {
        "close_after_points": Tunable(50, "points", "finite points in a row that close it"),
    },
    "resume_rebound": {
        "sensitivity": _SENSITIVITY,
        "points": Tunable(200, "points", "points after a resume that are compared with those before it"),
        "paired_excess": Tunable(0.005, "share of the level", "smallest rebound when the same steps were run before"),
        "unpaired_excess": Tunable(0.02, "share of the level", "smallest rebound otherwise"),
        "paired_z": Tunable(4.0, "sigma", "... and its certainty"),
        "unpaired_z": Tunable(5.0, "sigma", "... and its certainty"),
        "critical_excess": Tunable(0.03, "share of the level", "rebound that is critical"),
    },
    "resume_drop": {
        "sensitivity": _SENSITIVITY,
        "paired_excess": Tunable(0.01, "share of the level", "smallest drop when the same steps were run before"),
        "unpaired_excess": Tunable(0.03, "share of the level", "smallest drop otherwise, beyond what the curve was falling anyway"),
        "paired_z": Tunable(4.0, "sigma", "... and its certainty"),
        "unpaired_z": Tunable(5.0, "sigma", "... and its certainty"),
    },
    "resume_config_changed": {
        "shown_changes": Tunable(4, "changes", "changes that the message names; the finding's data holds up to 50"),
    },
    "resume_lr_mismatch": {
        "sensitivity": _SENSITIVITY,
        "tolerance": Tunable(0.01, "share of the learning rate", "smallest difference from the learning rates logged around the same step before"),
        "hot_points": Tunable(3, "points", "such points within of_points"),
        "of_points": Tunable(10, "points", "points after a resume that are compared"),
    },
    "lr_schedule_mismatch": {
        "sensitivity": _SENSITIVITY,
        "tolerance": Tunable(0.02, "share of the learning rate", "smallest difference from the declared schedule, two steps to either side"),
        "points": Tunable(10, "points", "such points in a row"),
        "fitting_points": Tunable(20, "points", "points that must have followed a declared schedule before leaving it is a warning"),
    },
    "throughput_drop": {
        "sensitivity": _SENSITIVITY,
        "bucket_s": Tunable(10.0, "s", "values of this long are merged by median, fewer while the run is young; without times a point is a bucket"),
        "window": Tunable(256, "buckets", "buckets that make the usual throughput"),
        "min_points": Tunable(64, "buckets", "buckets before there is one"),
        "recent_points": Tunable(15, "buckets", "buckets whose median is compared"),
        "drop": Tunable(0.10, "share", "drop of that median that opens it"),
        "slow_points": Tunable(61, "buckets", "a longer look for a smaller drop"),
        "slow_drop": Tunable(0.045, "share", "drop over slow_points that opens it"),
        "noise_factor": Tunable(4.0, "sigma", "either drop must also exceed this many of the run's own block noise"),
        "critical_drop": Tunable(0.30, "share", "a drop this deep is critical after critical_after_points"),
        "critical_after_points": Tunable(60, "buckets", "see critical_drop"),
        "rebase_after_points": Tunable(1000, "buckets", "the new throughput is accepted as usual after this"),
        "mute_after_resume_points": Tunable(20, "points", "points after a start, resume or pause that are not judged"),
    },
    "rank_loss_mismatch": {
        "sensitivity": _SENSITIVITY,
        "same_rank_samples": Tunable(10, "samples", "of of_samples in which the same rank must stand farthest from the others, on the same side"),
        "of_samples": Tunable(12, "samples", "length of that look back; the hook compares ranks at sampled steps"),
        "min_excess": Tunable(0.005, "share of the mean", "... and at least this far"),
        "often_of_samples": Tunable(200, "samples", "a longer look for a smaller bias"),
        "often_share": Tunable(0.1, "share of the samples", "in which a rank must be the worst there"),
        "often_ratio": Tunable(3.0, "factor", "... and so many times as often as the next one"),
        "unequal_share": Tunable(0.001, "share of the mean", "difference between ranks that held the same, reduced loss before"),
        "unequal_samples": Tunable(2, "samples", "such samples in a row"),
    },
    "straggler": {
        "sensitivity": _SENSITIVITY,
        "same_rank_samples": Tunable(15, "samples", "of of_samples in which the same rank must be the last before the all-reduce"),
        "of_samples": Tunable(20, "samples", "length of that look back"),
        "min_excess": Tunable(0.10, "share of the fastest rank's time", "lateness that seven of eight of these samples must exceed"),
        "clip": Tunable(0.30, "share of the fastest rank's time", "a single lateness counts at most this much: hiccups"),
        "late_samples": Tunable(
            10, "samples", "64 ranks or more: in a row in which the smoothed lateness of a rank exceeds min_excess of the median's time"
        ),
        "noise_factor": Tunable(6, "sigma", "... and by this many standard deviations of all ranks"),
    },
    "rank_silent": {
        "samples": Tunable(3, "samples", "in a row in which more ranks than usual told nothing"),
    },
    "stall": {
        "floor_s": Tunable(60.0, "s", "the deadline is never shorter"),
        "median_factor": Tunable(10.0, "factor", "times the usual time between steps"),
        "longest_factor": Tunable(1.5, "factor", "times the longest time between steps of the last 2,000"),
        "cap_s": Tunable(1800.0, "s", "the deadline is never longer, unless the run has waited that long in two different hundreds of the last 2,000 gaps, or every tenth time"),
        "first_step_s": Tunable(1800.0, "s", "deadline of the first step after a start or a pause, and of an announced phase never seen before"),
        "phase_factor": Tunable(3.0, "factor", "times the longest such phase so far, while an evaluation or checkpoint is announced"),
        "critical_factor": Tunable(2.0, "factor", "times the deadline: critical"),
        "min_points": Tunable(16, "gaps", "times between steps before they count; until then first_step_s, or longest_factor times what the run has needed"),
    },
    "time_limit_near": {
        "warning_s": Tunable(900.0, "s", "from this long before the job's time limit on it is a warning"),
    },
    "run_dead_holding_nodes": {
        "holding_s": Tunable(900.0, "s", "the job keeps its nodes for this long after the supervisor gave up: a warning"),
        "critical_s": Tunable(3600.0, "s", "... and critical"),
    },
    "pause_not_honoured": {
        "points": Tunable(2, "points", "steps that were under way when a pause was asked for"),
        "min_wait_s": Tunable(10.0, "s", "... and the time until the trainer must have seen it"),
        "points_without_time": Tunable(20, "points", "the same for a source that tells no times"),
    },
    "checkpoint_corrupt": {
        "critical_after_s": Tunable(1800.0, "s", "a damaged one that a restart would load is critical after this"),
        "critical_intervals": Tunable(3.0, "intervals between saves", "... and any damaged one when the newest good one is this old"),
    },
    "checkpoint_no_optimizer": {
        "points": Tunable(10, "points", "points after it: before that it may be the last save of the run, which needs none"),
        "saves": Tunable(2, "saves", "saves in a row without it, in a run that saved it before"),
        "intervals": Tunable(1.5, "intervals between saves", "... and the last one that holds it is this old"),
    },
    "checkpoint_stuck": {
        "factor": Tunable(3.0, "factor", "times the usual time from begin to durable"),
        "floor_s": Tunable(600.0, "s", "the deadline is never shorter"),
        "first_save_s": Tunable(3600.0, "s", "deadline of the first three saves"),
    },
    "checkpoint_overdue": {
        "factor": Tunable(2.0, "factor", "times the usual interval, in steps and in time"),
        "disk_lag_s": Tunable(300.0, "s", "... and this much more before one is missed on disk: it is seen there later"),
        "gaps": Tunable(4, "intervals", "intervals of nearly the same length that make it usual; none where the settings declare it"),
        "sure_gaps": Tunable(8, "intervals", "... and sure; before that it is an info"),
        "unsure_factor": Tunable(4.0, "factor", "... until this many times the interval"),
    },
    "checkpoint_blocking": {
        "share": Tunable(0.05, "share of the time", "time that saves block the training"),
        "saves": Tunable(8, "saves", "saves that are counted for it"),
        "min_window_s": Tunable(1200.0, "s", "... and the time that they must span"),
        "fast_saves": Tunable(3, "saves", "the same for twice the share, or a jump"),
        "fast_window_s": Tunable(600.0, "s", "... and the time that they must span"),
        "jump": Tunable(2.0, "factor", "blocked time of the last three saves against the ones before"),
        "jump_floor_s": Tunable(10.0, "s", "... and at least this much longer"),
    },
    "checkpoint_too_few_verified": {
        "verified": Tunable(2, "checkpoints", "verified ones that must be on disk"),
        "after_saves": Tunable(3, "saves", "saves before they must be there"),
        "after_s": Tunable(1800.0, "s", "for this long: verifying takes its time"),
    },
    "resume_behind": {
        "critical_redo_s": Tunable(14_400.0, "s", "training that is done again: critical"),
        "pointer_after_s": Tunable(600.0, "s", "what a restart would load must be wrong for this long"),
    },
    "nccl_timeout": {
        "fault_grace_s": Tunable(60.0, "s", "no step for this long after it: critical"),
    },
    "out_of_memory": {
        "fault_grace_s": Tunable(60.0, "s", "no step for this long after it: critical"),
    },
    "run_dead": {
        "fault_grace_s": Tunable(60.0, "s", "no step for this long after a deadly line in the log: the run is dead"),
    },
}  # fmt: skip

#: rule -> name -> number. ``[detect.RULE] name = value`` in the settings.
TUNABLES: Mapping[str, Mapping[str, Tunable]] = MappingProxyType(
    {rule: MappingProxyType(table) for rule, table in _TABLE.items()}
)


def numbers_of(rule: str, changed: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """All numbers of one rule: the defaults, overlaid with what the settings changed."""
    numbers = {name: tunable.default for name, tunable in TUNABLES[rule].items()}
    numbers.update({name: float(value) for name, value in changed.get(rule, {}).items() if name in numbers})
    if not numbers.get("sensitivity", 1.0) > 0:
        numbers["sensitivity"] = 1.0
    return numbers
