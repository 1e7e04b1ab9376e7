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
    last_table: the embedded store keeps the newest row of each series beside it.
    """

    name: str
    tags: tuple[str, ...]
    fields: Mapping[str, FieldType]
    is_open: bool = False
    series_first: bool = False
    last_table: bool = False


def _fields(**types: FieldType) -> Mapping[str, FieldType]:
    return MappingProxyType(dict(types))


_train: dict[str, FieldType] = {"step": "int"}
for _name in TRAIN_METRICS:
    _train[_name] = "float"
    _train[f"{_name}_nf"] = "int"
_train |= {"worst_rank": "int", "nonfinite": "int", "time_estimated": "int"}

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
                        blocked_rank="int", lost_records="int"),
                last_table=True,
            ),
            Measurement(
                "event", ("run", "kind", "source"),
                _fields(severity="int", step="int", attempt="int", id="str", text="str", json="str"),
            ),
        )
    }
)  # fmt: skip


def field_type(measurement: str, name: str) -> FieldType | None:
    """Declared type of a field, ``float``/``int`` for an extra metric of an open measurement, None when unknown."""
    m = SCHEMA[measurement]
    declared = m.fields.get(name)
    if declared is not None or not m.is_open:
        return declared
    if name.endswith("_nf") and EXTRA_METRIC_NAME.match(name.removesuffix("_nf")):
        return "int"
    return "float" if EXTRA_METRIC_NAME.match(name) else None
