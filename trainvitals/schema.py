"""What is stored: measurements, their fixed tag sets and fixed field types. The one place that declares them.

A tag set and a field type can never change for stored data (InfluxDB fixes both), so a field is added here, never altered.
Never tags: step, rank, path, hash, message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

FieldType = Literal["float", "int", "str", "bool"]

#: Metrics with a name of their own in `train`. Everything else a trainer logs is an extra metric.
TRAIN_METRICS = (
    "loss", "grad_norm", "lr", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s", "mfu", "loss_scale",
    "samples", "tokens", "skipped", "loss_rank_min", "loss_rank_max", "loss_rank_std",
)  # fmt: skip
#: Throughput rules use the first of these that is there.
THROUGHPUT_METRICS = ("tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s")
EXTRA_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
MAX_EXTRA_METRICS = 100


@dataclass(frozen=True)
class Measurement:
    """tags: in key order. fields: name -> type. is_open: further float fields (and their ``_nf``) are allowed.

    series_first: the key order of the embedded store; (series, ts) for few series that append, else (ts, series).
    last_table: the embedded store keeps the newest row of each series beside it. rollup_of: rows are windows of that
    measurement's rows. A step is unique in its series only in a ``series_first`` measurement that has the field ``step``.
    """

    name: str
    tags: tuple[str, ...]
    fields: Mapping[str, FieldType]
    is_open: bool = False
    series_first: bool = False
    last_table: bool = False
    rollup_of: str = ""

    @property
    def has_unique_step(self) -> bool:
        """Whether (series, step) names a row."""
        return self.series_first and "step" in self.fields


def _fields(**types: FieldType) -> Mapping[str, FieldType]:
    return MappingProxyType(dict(types))


_train: dict[str, FieldType] = {"step": "int"}
for _name in TRAIN_METRICS:
    _train[_name] = "float"
    _train[f"{_name}_nf"] = "int"
_train |= {"worst_rank": "int", "nonfinite": "int", "time_estimated": "int"}

SECOND_NS = 1_000_000_000
#: Roll-ups of `train`: measurement -> width of a window in ns, finest first.
TRAIN_ROLLUPS: Mapping[str, int] = MappingProxyType(
    {"train_1m": 60 * SECOND_NS, "train_10m": 600 * SECOND_NS, "train_1h": 3600 * SECOND_NS}
)
NODE_ROLLUP = "node_10m"
NODE_ROLLUP_NS = 600 * SECOND_NS
#: What a roll-up keeps of each metric: NAME_min, NAME_max, … Extra metrics have no steps of their extremes, so that a run
#: with 100 of them stays under the 500 columns a table that InfluxDB 3 Core allows (15 x 6 + 100 x 4 + 4 + tags and time).
ROLLUP_PARTS = ("min", "max", "mean", "last")
ROLLUP_STEPS = ("min_step", "max_step")

_rollup: dict[str, FieldType] = {"step_min": "int", "step_max": "int", "n": "int", "nonfinite": "int"}
for _name in TRAIN_METRICS:
    for _part in ROLLUP_PARTS:
        _rollup[f"{_name}_{_part}"] = "float"
    for _part in ROLLUP_STEPS:
        _rollup[f"{_name}_{_part}"] = "int"

SCHEMA: Mapping[str, Measurement] = MappingProxyType(
    {
        m.name: m
        for m in (
            Measurement("train", ("run", "attempt"), MappingProxyType(_train), is_open=True, series_first=True),
            Measurement(
                "node", ("node",),
                _fields(state="str", gpus="int", utilization_mean_percent="float", utilization_min_percent="float",
                        temperature_max_c="float", power_sum_w="float", memory_used_max_bytes="int",
                        ecc_uncorrected="int", xid_last="int", infiniband_errors="int", run="str", job="str",
                        text="str", is_simulated="bool"),
                last_table=True,
            ),
            Measurement(
                "gpu", ("node", "gpu"),
                _fields(index="int", state="str", name="str", utilization_percent="float", memory_used_bytes="int",
                        memory_total_bytes="int", temperature_c="float", memory_temperature_c="float", power_w="float",
                        power_limit_w="float", sm_clock_mhz="float", throttle_reasons="int", ecc_uncorrected="int",
                        ecc_corrected="int", remapped_rows_pending="bool", remapped_rows_failure="bool",
                        pcie_replays="int", xid_last="int"),
                last_table=True,
            ),
            Measurement(
                "heartbeat", ("run", "node"),
                _fields(ranks="int", alive="int", step_min="int", step_max="int", oldest_age_s="float",
                        blocked_rank="int", lost_records="int", spool_depth="int", spool_age_s="float",
                        spool_dropped="int", spool_dead="int"),
                last_table=True,
            ),
            # What the trainer and those around it say of themselves in the control directory, for hosts that do not share it.
            Measurement("control", ("run",), _fields(seq="int", json="str"), last_table=True),
            # What people ask from such hosts: only the dashboard may write it, only `watch` may read it.
            Measurement("requests", ("run", "kind"), _fields(id="str", json="str", signature="str")),
            Measurement(
                "event", ("run", "kind", "source"),
                _fields(severity="int", step="int", attempt="int", id="str", text="str", json="str"),
            ),
            *(
                Measurement(
                    name, ("run", "attempt"), MappingProxyType(_rollup), is_open=True, series_first=True, rollup_of="train"
                )
                for name in TRAIN_ROLLUPS
            ),
            Measurement(
                NODE_ROLLUP, ("node",),
                _fields(state="str", worst_state="str", gpus="int", utilization_mean_percent="float",
                        utilization_min_percent="float", temperature_max_c="float", power_sum_w="float",
                        memory_used_max_bytes="int", ecc_uncorrected="int", xid_last="int", infiniband_errors="int",
                        run="str", job="str", is_simulated="bool", n="int"),
                rollup_of="node",
            ),
        )
    }
)  # fmt: skip


def extra_metric_of(measurement: str, name: str) -> tuple[str, FieldType]:
    """(extra metric that a field without a declaration belongs to, the field's type if that metric may be stored)."""
    if SCHEMA[measurement].rollup_of:
        for part in ROLLUP_PARTS:
            if name.endswith(f"_{part}"):
                return name.removesuffix(f"_{part}"), "float"
        return "", "float"
    return (name.removesuffix("_nf"), "int") if name.endswith("_nf") else (name, "float")


def field_type(measurement: str, name: str) -> FieldType | None:
    """Declared type of a field, ``float``/``int`` for an extra metric of an open measurement, None when unknown."""
    m = SCHEMA[measurement]
    declared = m.fields.get(name)
    if declared is not None or not m.is_open:
        return declared
    metric, kind = extra_metric_of(measurement, name)
    return kind if EXTRA_METRIC_NAME.match(metric) else None
