"""Records to points: pure functions, so most of this is stated as properties."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.errors import StoreError
from trainvitals.records import NONFINITE_CODES, Event, GpuSample, NodeSample, Point, Severity, Step, split_nonfinite
from trainvitals.schema import MAX_EXTRA_METRICS, SCHEMA, TRAIN_METRICS
from trainvitals.store.encode import (
    CUT_MARKER,
    MAX_TEXT_BYTES,
    RESERVED_NAMES,
    check_point,
    compact_json,
    cut_text,
    dropped_metrics,
    event_from_row,
    event_point,
    gpu_from_row,
    gpu_point,
    node_from_row,
    node_point,
    step_point,
)

T0 = 1_767_323_045_000_000_000
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


def row_of(point: Point) -> dict[str, Any]:
    """What a store would give back: all fields of the schema, those not written as missing."""
    missing = {"float": math.nan, "int": pd.NA, "bool": pd.NA, "str": None}
    empty = {name: missing[kind] for name, kind in SCHEMA[point.measurement].fields.items()}
    return {"time_ns": point.time_ns, **point.tags, **empty, **point.fields}


@given(
    step=st.integers(-(2**63), 2**63 - 1),
    raw=st.dictionaries(st.one_of(st.sampled_from([*TRAIN_METRICS, "worst_rank", "step", "ts", "a_nf"]), ANY_TEXT), st.floats(), max_size=8),
)  # fmt: skip
def test_any_step_becomes_a_point_that_the_schema_admits(step: int, raw: dict[str, float]) -> None:
    values, nonfinite = split_nonfinite(raw)
    record = Step(step, 1, None, values, nonfinite)
    point = step_point("r", record, T0)
    check_point(point)
    dropped = dropped_metrics(record)
    assert point.fields["step"] == step
    kept_nonfinite = {name: kind for name, kind in nonfinite.items() if name not in dropped}
    assert point.fields["nonfinite"] == len(kept_nonfinite)
    for name, kind in kept_nonfinite.items():
        assert name not in point.fields
        if name != "worst_rank":
            assert point.fields[f"{name}_nf"] == NONFINITE_CODES[kind]
    for name, value in values.items():
        assert (name in dropped) or name == "worst_rank" or point.fields[name] == value


def test_a_non_finite_number_among_the_values_is_coded_too() -> None:
    point = step_point("r", Step(1, 1, None, {"loss": math.nan, "grad_norm": 10**400, "lr": 1}), T0)
    assert point.fields == {"step": 1, "lr": 1.0, "loss_nf": 1, "grad_norm_nf": 2, "nonfinite": 2}
    check_point(point)


def test_an_estimated_time_is_marked() -> None:
    assert step_point("r", Step(1, 1, None, {}), T0, True).fields == {"step": 1, "nonfinite": 0, "time_estimated": 1}


def test_extra_metrics_beyond_the_bound_are_named_and_left_out() -> None:
    names = [f"m{k}" for k in range(MAX_EXTRA_METRICS + 2)]
    step = Step(1, 1, None, {"loss": 1.0, **dict.fromkeys(names, 1.0)}, {"last_one": "nan"})
    assert dropped_metrics(step) == (*names[-2:], "last_one")
    assert len(step_point("r", step, T0).fields) == 3 + MAX_EXTRA_METRICS


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED_NAMES - {"worst_rank"}), "Loss", "loss total", "", "a" * 65, "x_nf", "loss_nf", "_ts", "é"]
)
def test_a_name_that_may_not_be_a_metric_is_dropped(name: str) -> None:
    step = Step(1, 1, None, {name: 1.0})
    assert dropped_metrics(step) == (name,)
    assert step_point("r", step, T0).fields == {"step": 1, "nonfinite": 0}


EVENTS = st.builds(
    Event,
    kind=st.sampled_from(["finding", "control"]),
    time_ns=st.integers(0, 2**62),
    step=st.none() | st.integers(0, 2**62),
    attempt=st.none() | st.integers(1, 10**6),
    id=st.text(st.characters(exclude_categories=("Cs",)), max_size=60),
    severity=st.sampled_from(Severity),
    source=st.just("") | PRINTABLE,
    text=st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    data=st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))), st.integers() | st.booleans() | st.lists(st.none()), max_size=4
    ),
)


@given(EVENTS)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    point = event_point("r", event)
    check_point(point)
    assert event_from_row(row_of(point)) == event


@given(text=ANY_TEXT, source=ANY_TEXT, event_id=ANY_TEXT, data=st.dictionaries(ANY_TEXT, JSON, max_size=5))
def test_any_text_in_an_event_makes_a_point_that_the_schema_admits(
    text: str, source: str, event_id: str, data: dict[str, Any]
) -> None:
    point = event_point("r", Event("fault", T0, id=event_id, source=source, text=text, data=data))
    check_point(point)
    assert isinstance(json.loads(str(point.fields["json"]), parse_constant=pytest.fail), dict)
    event_from_row(row_of(point))


def test_an_event_about_a_path_that_is_no_utf8_has_a_place_of_its_own_and_comes_back() -> None:
    event = Event("checkpoint", T0, id="/runs/ckpt-\udcff.pt/verified")
    found = event_from_row(row_of(event_point("r", event)))
    assert found.time_ns == T0 and found.id == "/runs/ckpt-?.pt/verified"


def test_an_event_without_a_time_is_refused() -> None:
    with pytest.raises(StoreError, match="no time"):
        event_point("r", Event("fault", None))


def test_a_row_whose_json_is_broken_still_gives_its_event() -> None:
    point = event_point("r", Event("fault", T0, text="x"))
    for broken in ("{", "[1]", "nonsense"):
        event = event_from_row({**row_of(point), "json": broken, "severity": 99})
        assert event.data == {"_unreadable": broken} and event.severity is Severity.CRITICAL


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=300), st.integers(20, 400))
def test_text_is_cut_between_characters_and_says_so(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    assert len(cut.encode()) <= limit
    assert cut == text or (cut.endswith(CUT_MARKER) and text.startswith(cut.removesuffix(CUT_MARKER)))
    assert (cut == text) == (len(text.encode()) <= limit)


def test_long_text_and_large_data_of_an_event_are_capped() -> None:
    data = {"path": "/ckpt/1", "step": 5, "trace": "語" * MAX_TEXT_BYTES, "small": [1, 2]}
    point = event_point("r", Event("fault", T0, text="語" * MAX_TEXT_BYTES, data=data))
    assert len(str(point.fields["text"]).encode()) <= MAX_TEXT_BYTES
    assert len(str(point.fields["json"]).encode()) <= MAX_TEXT_BYTES
    assert event_from_row(row_of(point)).data == {"path": "/ckpt/1", "step": 5, "small": [1, 2], "_cut": ["trace"]}


@settings(max_examples=50)
@given(st.dictionaries(ANY_TEXT, JSON, max_size=8), st.integers(8_000, 9_000))
def test_json_of_any_data_is_valid_and_within_its_bound(data: dict[str, Any], limit: int) -> None:
    text = compact_json(data, limit)
    assert len(text.encode()) <= limit
    assert isinstance(json.loads(text, parse_constant=pytest.fail), dict)


def test_hostile_data_becomes_json_all_the_same() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"d": deep}
    many = {f"key {k}": k for k in range(50_000)}
    assert json.loads(compact_json({"deep": deep, "ok": 1})) == {"deep": "[nested too deep]", "ok": 1}
    assert len(compact_json(many).encode()) <= MAX_TEXT_BYTES
    assert json.loads(compact_json({"s": {1}, "t": (1,), "o": object, "nan": math.nan}))["nan"] is None


NUMBER = st.none() | st.floats(0, 1e6)
WHOLE = st.none() | st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@given(st.builds(
    NodeSample, node=PRINTABLE, time_ns=st.integers(0, 2**62), state=st.sampled_from(["ok", "fail"]), gpus=st.integers(0, 16),
    utilization_mean_percent=NUMBER, utilization_min_percent=NUMBER, temperature_max_c=NUMBER, power_sum_w=NUMBER,
    memory_used_max_bytes=WHOLE, ecc_uncorrected=WHOLE, xid_last=WHOLE, run=TEXT, is_simulated=st.booleans(), text=TEXT,
))  # fmt: skip
def test_a_node_sample_comes_back_as_it_was(sample: NodeSample) -> None:
    point = node_point(sample)
    check_point(point)
    assert node_from_row(row_of(point)) == sample


@given(st.builds(
    GpuSample, node=PRINTABLE, gpu=PRINTABLE, index=st.integers(0, 15), time_ns=st.integers(0, 2**62), state=st.just("ok"),
    name=st.none() | TEXT, utilization_percent=NUMBER, memory_used_bytes=WHOLE, memory_total_bytes=WHOLE, temperature_c=NUMBER,
    memory_temperature_c=NUMBER, power_w=NUMBER, power_limit_w=NUMBER, sm_clock_mhz=NUMBER, throttle_reasons=WHOLE,
    ecc_uncorrected=WHOLE, ecc_corrected=WHOLE, remapped_rows_pending=st.none() | st.booleans(),
    remapped_rows_failure=st.none() | st.booleans(), pcie_replays=WHOLE, xid_last=WHOLE,
))  # fmt: skip
def test_a_gpu_sample_comes_back_as_it_was(sample: GpuSample) -> None:
    point = gpu_point(sample)
    check_point(point)
    assert gpu_from_row(row_of(point)) == sample


def test_a_sample_with_nan_leaves_the_field_out() -> None:
    point = node_point(NodeSample("n", T0, "ok", temperature_max_c=math.nan))
    check_point(point)
    assert "temperature_max_c" not in point.fields


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (Point("trian", {}, T0, {"x": 1}), "'trian' is not in the schema"),
        (Point("node", {"node": "n"}, T0, {"gpus": True}), "gpus must be a whole number, not True"),
        (Point("node", {"node": "n"}, T0, {"gpus": np.int64(1)}), "gpus must be a whole number"),  # type: ignore[dict-item]
        (Point("node", {"node": "n"}, T0, {"gpus": -(2**63) - 1}), "does not fit in 64 bits"),
        (Point("node", {"node": "n"}, T0, {"power_sum_w": "5"}), "power_sum_w must be a number"),
        (Point("node", {"node": "n"}, T0, {"power_sum_w": math.inf}), "power_sum_w is inf"),
        (Point("node", {"node": "n"}, T0, {"power_sum_w": False}), "power_sum_w must be a number"),
        (Point("node", {"node": "n"}, T0, {"text": "\ud800"}), "text holds text that is not Unicode"),
        (Point("node", {"node": "n" * 1025}, T0, {"gpus": 1}), "longer than 1024 bytes"),
        (Point("node", {"node": 1}, T0, {"gpus": 1}), "must be text"),  # type: ignore[dict-item]
        (Point("node", {"node": "n", "run": "r"}, T0, {"gpus": 1}), "exactly the tags node"),
        (Point("node", {"node": "n"}, 1.5, {"gpus": 1}), "whole nanoseconds"),  # type: ignore[arg-type]
        (Point("node", {"node": "n"}, T0, {5: 1}), "field 5 is not in the schema"),  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_point_is_said(point: Point, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        check_point(point)


def test_a_numpy_float_is_a_number() -> None:
    check_point(Point("node", {"node": "n"}, T0, {"power_sum_w": np.float64(1.5), "temperature_max_c": 60}))
