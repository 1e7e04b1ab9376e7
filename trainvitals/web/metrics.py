"""The newest values of a run's metrics, what is usual for them, and how fast steps come."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from trainvitals.identity import MILLISECOND_NS
from trainvitals.records import Finding, Incident, NonFinite, Severity
from trainvitals.schema import TRAIN_METRICS
from trainvitals.store.protocol import Store
from trainvitals.web.view import MetricNow

DAY_NS = 86_400 * 10**9
#: Points that say what is usual.
USUAL_POINTS = 128
#: More steps than this share have the time of the step before them: the log tells whole seconds, or steps are shorter than a millisecond.
COARSE_SHARE = 0.1
PAUSE_GAPS = 5
#: Which rule speaks of which metric; a rule of no row here marks none.
METRIC_OF_RULE = (
    ("loss_", "loss"),
    ("rank_loss_", "loss"),
    ("resume_rebound", "loss"),
    ("resume_drop", "loss"),
    ("grad_norm_", "grad_norm"),
)
_KINDS: Mapping[int, NonFinite] = {1: "nan", 2: "inf", 3: "-inf"}
THROUGHPUT = ("tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s")


@dataclass(frozen=True)
class Row:
    """One training point as stored."""

    step: int
    attempt: int
    time_ns: int
    values: Mapping[str, float] = field(default_factory=dict)
    nonfinite: Mapping[str, NonFinite] = field(default_factory=dict)


@dataclass(frozen=True)
class Pace:
    """step_s: median seconds a step; gap_s: median seconds between two records. None when fewer than two points are known."""

    step_s: float | None = None
    gap_s: float | None = None


def last_rows(store: Store, run: str, now_ns: int, before_ns: int | None = None, limit: int = 2 * USUAL_POINTS) -> list[Row]:
    """The newest rows of a run, oldest first; at most ``limit``."""
    fields = ["step", *(name for metric in TRAIN_METRICS for name in (metric, f"{metric}_nf"))]
    end_ns = now_ns + DAY_NS if before_ns is None else before_ns
    frame = store.raw("train", fields, {"run": run}, 0, end_ns, limit=limit, newest_first=True)
    return sorted(rows_of(frame), key=lambda row: row.time_ns)


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """Rows of a ``train`` frame; a row without a step or with an attempt that is no number is left out."""
    rows = []
    for record in frame.to_dict("records"):
        step, attempt = record.get("step"), str(record.get("attempt", ""))
        if step is None or pd.isna(step) or not attempt.isdigit():
            continue
        values: dict[str, float] = {}
        nonfinite: dict[str, NonFinite] = {}
        for metric in TRAIN_METRICS:
            value, code = record.get(metric), record.get(f"{metric}_nf")
            kind = None if code is None or pd.isna(code) else _KINDS.get(int(code))
            if kind is not None:
                nonfinite[metric] = kind
            elif value is not None and math.isfinite(float(value)):
                values[metric] = float(value)
        rows.append(Row(int(step), int(attempt), int(record["time_ns"]), values, nonfinite))
    return rows


def pace(rows: Sequence[Row]) -> Pace:
    """How fast steps come, from the newest rows of the newest attempt; by the count over the time where times are coarser than steps."""
    if not rows:
        return Pace()
    mine = [row for row in rows if row.attempt == rows[-1].attempt][-USUAL_POINTS:]
    # Stored times of one moment differ by the step's own nanoseconds, which are no time.
    points = [(row.time_ns // MILLISECOND_NS, row.step) for row in mine]
    pairs = [
        (later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in itertools.pairwise(points) if later[1] > earlier[1]
    ]
    gaps = [gap / 1e3 for gap, _ in pairs if gap > 0]
    if not gaps:
        return Pace()
    if len(pairs) - len(gaps) > COARSE_SHARE * len(pairs) or all(at % 1000 == 0 for at, _ in points):
        longest_s = PAUSE_GAPS * statistics.median(gaps)  # a save or a pause is not the pace of steps
        ends = [place for place, (gap, _) in enumerate(pairs) if gap > 0]
        whole = pairs[ends[0] + 1 : ends[-1] + 1] or pairs  # from one change of the clock to another: what is before is a part
        counted = [(gap / 1e3, count) for gap, count in whole if gap / 1e3 <= longest_s]
        took_s, steps = sum(gap for gap, _ in counted), sum(count for _, count in counted)
        return Pace(took_s / steps, took_s / len(counted))
    return Pace(statistics.median(gap / 1e3 / count for gap, count in pairs if gap > 0), statistics.median(gaps))


def is_about_metrics(incident: Incident) -> bool:
    """Whether an incident moves a metric away from what is usual; a damaged checkpoint moves none, however long it is open."""
    return any(rule == "throughput_drop" or rule.startswith(prefix) for rule in incident.rules for prefix, _ in METRIC_OF_RULE)


def metrics_now(
    store: Store, run: str, rows: Sequence[Row], incident: Incident | None, findings: Sequence[Finding], onset_ns: int | None
) -> dict[str, MetricNow]:
    """Newest value of every metric that the run logs, and what is usual: before the onset while ``incident`` is open (one that
    ``is_about_metrics``)."""
    if not rows:
        return {}
    before = list(rows[:-1])
    if incident is not None and onset_ns is not None:
        before = [row for row in rows if row.time_ns < onset_ns]
        if len(before) < USUAL_POINTS:
            before = last_rows(store, run, onset_ns, before_ns=onset_ns, limit=USUAL_POINTS)
    abnormal = _abnormal(findings)
    metrics: dict[str, MetricNow] = {}
    for name in TRAIN_METRICS:
        newest = next((row for row in reversed(rows) if name in row.values or name in row.nonfinite), None)
        if newest is None:
            continue
        usual = [row.values[name] for row in before if name in row.values][-USUAL_POINTS:]
        kind = newest.nonfinite.get(name)
        metrics[name] = MetricNow(
            name, newest.values.get(name), kind, statistics.median(usual) if usual else None, newest.step,
            kind is not None or name in abnormal,
        )  # fmt: skip
    return metrics


def _abnormal(findings: Sequence[Finding]) -> set[str]:
    names: set[str] = set()
    for finding in findings:
        if not finding.is_open or finding.severity.rank < Severity.WARNING.rank:
            continue
        names.update(metric for prefix, metric in METRIC_OF_RULE if finding.rule.startswith(prefix))
        if finding.rule == "throughput_drop":
            names.update(THROUGHPUT)
    return names
