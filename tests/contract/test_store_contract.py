"""What every store promises (trainvitals.store.protocol), whatever is behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.errors import StoreError
from trainvitals.records import Event, NodeSample, Point, Severity, Step
from trainvitals.store.encode import event_point, node_from_row, node_point, step_point
from trainvitals.store.protocol import Store

SECOND = 1_000_000_000
T0 = 1_767_323_045 * SECOND
EVER = (0, 2**62)


def train(step: int, attempt: int = 1, run: str = "r", time_ns: int | None = None, **values: float) -> Point:
    time_ns = T0 + step * SECOND if time_ns is None else time_ns
    good = {name: value for name, value in values.items() if math.isfinite(value)}
    bad = {name: str(value) for name, value in values.items() if not math.isfinite(value)}
    return step_point(run, Step(step, attempt, time_ns, good, bad), time_ns)  # type: ignore[arg-type]


def node(name: str, at_s: float, **fields: Any) -> Point:
    return Point("node", {"node": name}, T0 + round(at_s * SECOND), {"state": "ok", **fields})


def rows(store: Store, measurement: str, fields: list[str], where: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    return store.raw(measurement, fields, where or {}, *EVER).to_dict("records")


def test_writing_the_same_points_again_changes_nothing(store: Store) -> None:
    points = [train(step, loss=1.0 / (step + 1)) for step in range(50)] + [node("n1", s, gpus=8) for s in range(5)]
    store.write(points)
    before = rows(store, "train", ["step", "loss"]), rows(store, "node", ["gpus"])
    store.write(points)
    store.write(points[10:20])
    assert (rows(store, "train", ["step", "loss"]), rows(store, "node", ["gpus"])) == before
    assert len(before[0]) == 50 and len(before[1]) == 5


def test_the_same_row_written_again_with_other_fields_merges_field_by_field(store: Store) -> None:
    store.write([node("n1", 0, gpus=8, temperature_max_c=60.0)])
    store.write([node("n1", 0, gpus=7, power_sum_w=2000.0)])
    (row,) = rows(store, "node", ["gpus", "temperature_max_c", "power_sum_w"])
    assert (row["gpus"], row["temperature_max_c"], row["power_sum_w"]) == (7, 60.0, 2000.0)


def test_a_step_read_again_at_another_time_keeps_its_first_timestamp(store: Store) -> None:
    first = train(7, loss=2.0)
    store.write([first])
    store.write([train(7, time_ns=first.time_ns + 90 * SECOND, grad_norm=0.5)])
    (row,) = rows(store, "train", ["loss", "grad_norm"])
    assert (row["time_ns"], row["loss"], row["grad_norm"]) == (first.time_ns, 2.0, 0.5)
    assert store.time_of_step("r", 1, 7) == first.time_ns


def test_two_steps_of_one_nanosecond_are_both_kept_and_stay_put_on_replay(store: Store) -> None:
    points = [train(step, time_ns=T0, loss=float(step)) for step in (1, 2, 3)]
    store.write(points)
    store.write(points)
    found = rows(store, "train", ["step", "loss"])
    assert [(row["step"], row["loss"]) for row in found] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert len({row["time_ns"] for row in found}) == 3


def test_the_same_step_of_two_attempts_is_two_points(store: Store) -> None:
    store.write([train(5, attempt=1, loss=1.0), train(5, attempt=2, loss=2.0, time_ns=T0 + 99 * SECOND)])
    assert [(row["attempt"], row["loss"]) for row in rows(store, "train", ["loss"])] == [("1", 1.0), ("2", 2.0)]
    assert store.time_of_step("r", 2, 5) == T0 + 99 * SECOND
    assert store.time_of_step("r", 3, 5) is None and store.time_of_step("other", 1, 5) is None


def test_nan_and_both_infinities_come_back_as_what_they_were(store: Store) -> None:
    store.write([train(1, loss=math.nan, grad_norm=math.inf), train(2, loss=-math.inf), train(3, loss=1.5)])
    frame = store.raw("train", ["loss", "loss_nf", "grad_norm", "nonfinite"], {}, *EVER)
    assert math.isnan(frame["loss"][0]) and frame["loss"][1] == -math.inf and frame["loss"][2] == 1.5
    assert frame["loss_nf"].to_list()[:2] == [1, 3] and frame["loss_nf"][2] is pd.NA
    assert frame["grad_norm"][0] == math.inf and math.isnan(frame["grad_norm"][2])
    assert frame["nonfinite"].to_list() == [2, 1, 0]


def test_a_bucket_counts_non_finite_values_and_leaves_them_out_of_its_numbers(store: Store) -> None:
    store.write([train(step, loss=math.nan if step == 4 else 1.0) for step in range(10)])
    frame = store.buckets("train", ["loss"], {"run": "r"}, *EVER, count=1, by="step")
    assert frame["nonfinite"].sum() == 1 and frame["n"].sum() == 10
    assert frame["loss_min"].min() == 1.0 and frame["loss_mean"].max() == 1.0


def test_latest_gives_one_whole_row_per_series_and_none_that_is_too_old(store: Store) -> None:
    store.write([node("n1", 0, gpus=8, temperature_max_c=60.0), node("n1", 10, gpus=7), node("old", -500, gpus=1)])
    store.write([node("n2", 5, gpus=4), node("n1", 3, gpus=2, power_sum_w=5.0)])  # a late one of n1 changes nothing
    frame = store.latest("node", ["gpus", "temperature_max_c", "power_sum_w"], {}, 60 * SECOND, T0 + 20 * SECOND)
    assert dict(zip(frame["node"], frame["gpus"], strict=True)) == {"n1": 7, "n2": 4}
    newest = frame.set_index("node").loc["n1"]
    assert newest["time_ns"] == T0 + 10 * SECOND
    assert pd.isna(newest["temperature_max_c"]) and pd.isna(newest["power_sum_w"])  # never mixed with older rows


def test_latest_merges_what_arrives_for_the_same_moment(store: Store) -> None:
    store.write([node("n1", 0, gpus=8)])
    store.write([node("n1", 0, power_sum_w=5.0)])
    (row,) = store.latest("node", ["gpus", "power_sum_w"], {}, SECOND, T0).to_dict("records")
    assert (row["gpus"], row["power_sum_w"]) == (8, 5.0)


def test_latest_of_training_and_of_events_is_the_newest_of_each_series(store: Store) -> None:
    store.write([train(step, attempt=attempt, loss=float(step), time_ns=T0 + 50 * attempt * SECOND + step * SECOND)
                 for attempt in (1, 2) for step in range(5)])  # fmt: skip
    store.write([event_point("r", Event("finding", T0 + s * SECOND, step=s, id=f"f{s}")) for s in range(3)])
    frame = store.latest("train", ["step", "loss"], {"run": "r"}, 1000 * SECOND, T0 + 200 * SECOND)
    assert [(row["attempt"], row["loss"]) for row in frame.to_dict("records")] == [("1", 4.0), ("2", 4.0)]
    assert store.latest("event", ["step"], {}, 1000 * SECOND, T0)["step"].to_list() == [2]


@pytest.mark.parametrize("by", ["step", "time_ns"])
def test_a_one_step_spike_is_in_the_maximum_of_its_bucket(store: Store, by: str) -> None:
    spikes = {1234: 99.0, 4999: 98.0, 0: 97.0}
    store.write([train(step, loss=spikes.get(step, 2.0)) for step in range(5000)])
    frame = store.buckets("train", ["loss"], {"run": "r"}, *EVER, count=50, by=by)
    assert len(frame) <= 52 and frame["n"].sum() == 5000
    assert sorted(frame["loss_max"])[-3:] == [97.0, 98.0, 99.0]
    assert frame["loss_min"].max() == 2.0 and frame["loss_last"].iloc[-1] == 98.0


def test_buckets_of_few_steps_are_the_steps_themselves(store: Store) -> None:
    store.write([train(step, loss=float(step)) for step in (3, 4, 9)])
    frame = store.buckets("train", ["loss"], {}, *EVER, count=100, by="step")
    assert frame["bucket"].to_list() == frame["step"].to_list() == [3, 4, 9]
    assert frame["loss_min"].to_list() == frame["loss_max"].to_list() == frame["loss_last"].to_list() == [3.0, 4.0, 9.0]


@pytest.mark.parametrize("by", ["step", "time_ns"])
def test_attempts_that_repeat_steps_stay_apart_in_buckets(store: Store, by: str) -> None:
    first = [train(step, loss=1.0) for step in range(100)]
    second = [train(step, attempt=2, loss=2.0, time_ns=T0 + (1000 + step) * SECOND) for step in range(60, 160)]
    store.write(first + second)
    frame = store.buckets("train", ["loss"], {"run": "r"}, *EVER, count=20, by=by)
    for attempt, value in (("1", 1.0), ("2", 2.0)):
        mine = frame[frame["attempt"] == attempt]
        assert mine["n"].sum() == 100
        assert set(mine["loss_min"]) == set(mine["loss_max"]) == {value}
    assert frame["time_ns"].is_monotonic_increasing
    if by == "step":
        assert frame[frame["attempt"] == "2"]["step"].min() == 60


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_buckets_equal_what_the_rows_say(open_again: Callable[[], Store], data: st.DataObject) -> None:
    """Any order of steps in time, gaps, missing values, a window that cuts: compared with pandas over raw rows."""
    store = open_again()
    run = f"r{data.draw(st.integers(0, 10**9))}"
    steps = data.draw(st.lists(st.integers(-20, 300), min_size=1, max_size=60, unique=True))
    if data.draw(st.booleans()):
        steps.sort()
    value = st.one_of(st.none(), st.floats(-1e9, 1e9))
    points = []
    for at, step in enumerate(steps):
        loss = data.draw(value)
        points.append(
            train(step, attempt=1 + step % 2, run=run, time_ns=T0 + at * SECOND, **({} if loss is None else {"loss": loss}))
        )
    store.write(points)
    start = T0 + data.draw(st.integers(-5, 20)) * SECOND
    end = T0 + data.draw(st.integers(10, 80)) * SECOND
    count = data.draw(st.integers(1, 400))
    by = data.draw(st.sampled_from(["step", "time_ns"]))
    raw = store.raw("train", ["step", "loss"], {"run": run}, start, end)
    frame = store.buckets("train", ["loss"], {"run": run}, start, end, count, by)
    store.close()
    assert frame["n"].sum() == len(raw)
    for attempt, mine in frame.groupby("attempt"):
        assert len(mine) <= count + 2
        starts = mine["bucket"].sort_values().to_numpy()
        its = raw[raw["attempt"] == attempt]
        at_bucket = starts[np.searchsorted(starts, its[by].to_numpy(dtype=np.int64), side="right") - 1]
        for bucket, members in its.groupby(at_bucket):
            row = mine[mine["bucket"] == bucket].iloc[0]
            losses = members["loss"].dropna()
            assert row["n"] == len(members)
            assert row["time_ns"] == members["time_ns"].min() and row["step"] == members["step"].min()
            if losses.empty:
                assert math.isnan(row["loss_max"]) and math.isnan(row["loss_last"])
            else:
                assert (row["loss_min"], row["loss_max"], row["loss_last"]) == (losses.min(), losses.max(), losses.iloc[-1])
                assert math.isclose(row["loss_mean"], losses.mean(), rel_tol=1e-9, abs_tol=1e-6)


def test_one_point_with_an_odd_clock_changes_no_other_bucket(store: Store) -> None:
    odd = {300: T0 + 5000 * SECOND, 700: T0 - 5000 * SECOND, 500: T0 + 100 * SECOND + 5}
    store.write([train(step, loss=float(step), time_ns=odd.get(step)) for step in range(1000)])
    frame = store.buckets("train", ["loss"], {}, *EVER, count=100, by="step").sort_values("bucket")
    assert frame["bucket"].to_list() == list(range(0, 1000, 10)) == frame["loss_min"].to_list()
    assert frame["loss_max"].to_list() == list(range(9, 1000, 10)) and set(frame["n"]) == {10}
    last = frame.set_index("bucket")["loss_last"]
    assert (last[300], last[700], last[500]) == (300.0, 709.0, 509.0)  # the last in time


def test_buckets_of_a_measurement_with_many_series(store: Store) -> None:
    store.write([node(f"n{k}", s, gpus=k, temperature_max_c=60.0 + (s == 30)) for s in range(60) for k in range(3)])
    frame = store.buckets("node", ["temperature_max_c", "gpus"], {"node": ["n1", "n2"]}, T0, T0 + 60 * SECOND, count=6)
    assert set(frame["node"]) == {"n1", "n2"} and frame["n"].sum() == 120
    assert frame[frame["node"] == "n2"]["temperature_max_c_max"].max() == 61.0
    assert set(frame[frame["node"] == "n2"]["gpus_last"]) == {2.0}


def test_both_time_bounds_hold_and_the_end_is_left_out(store: Store) -> None:
    store.write([train(step, loss=1.0, time_ns=T0 + step) for step in range(10)] + [node("n", s) for s in range(10)])
    assert store.raw("train", ["step"], {}, T0 + 2, T0 + 5)["step"].to_list() == [2, 3, 4]
    assert store.buckets("train", ["loss"], {}, T0 + 2, T0 + 5, 100, "step")["step"].to_list() == [2, 3, 4]
    assert store.buckets("train", ["loss"], {}, T0 + 2, T0 + 5, 100)["n"].sum() == 3
    assert len(store.raw("node", [], {}, T0 + SECOND, T0 + 4 * SECOND)) == 3
    assert len(store.raw("node", [], {}, T0 + 4 * SECOND, T0 + SECOND)) == 0


def test_raw_obeys_where_limit_and_order(store: Store) -> None:
    store.write([train(step, run=run, attempt=attempt, loss=1.0, time_ns=T0 + step * SECOND + attempt)
                 for run in "ab" for attempt in (1, 2) for step in range(5)])  # fmt: skip
    newest = store.raw("train", ["step"], {"run": "a"}, *EVER, limit=3, newest_first=True)
    assert newest["step"].to_list() == [4, 4, 3] and newest["attempt"].to_list() == ["2", "1", "2"]
    assert len(store.raw("train", [], {"run": ["a", "b"], "attempt": "2"}, *EVER)) == 10
    assert len(store.raw("train", [], {"run": []}, *EVER)) == 0
    assert store.raw("train", ["step"], {}, *EVER)["time_ns"].is_monotonic_increasing


def test_events_are_filtered_ordered_and_limited(store: Store) -> None:
    wanted = [
        Event(kind, T0 + s * SECOND, step=s, attempt=2, id=f"{kind}/{s}", severity=Severity.WARNING, source="log",
              text="<b>bold</b>", data={"x": [1, {"y": None}]})
        for s, kind in enumerate(["finding", "incident", "finding", "control"])
    ]  # fmt: skip
    store.write([event_point("r", event) for event in wanted] + [event_point("other", wanted[0])])
    assert store.events("r", [], *EVER) == wanted
    assert store.events("r", ["finding"], *EVER) == [wanted[0], wanted[2]]
    assert store.events("r", ["finding", "control"], *EVER, limit=2, newest_first=True) == [wanted[3], wanted[2]]
    assert len(store.events(None, ["finding"], *EVER)) == 3
    assert store.events("r", [], T0 + SECOND, T0 + 2 * SECOND) == [wanted[1]]
    assert store.events("nobody", [], *EVER) == []


def test_an_event_written_twice_is_one_event(store: Store) -> None:
    event = Event("fault", T0, id="fault/1", text="NCCL")
    store.write([event_point("r", event)])
    store.write([event_point("r", event), event_point("r", Event("fault", T0, id="fault/2"))])
    assert [found.id for found in store.events("r", [], *EVER)] in (["fault/1", "fault/2"], ["fault/2", "fault/1"])


HOSTILE = ['it\'s "quoted"', "'; DROP TABLE train; --", "训练-运行", "a\\b%_*", "run=1,x y", "🧨", " "]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_just_a_name(store: Store, name: str) -> None:
    store.write([train(1, run=name, loss=1.0), train(1, run="plain", loss=2.0), event_point(name, Event("fault", T0, text=name))])
    assert rows(store, "train", ["loss"], {"run": name})[0]["loss"] == 1.0
    assert store.tag_values("train", "run", 100 * SECOND, T0) == sorted([name, "plain"])
    assert [event.text for event in store.events(name, [], *EVER)] == [name]
    assert store.time_of_step(name, 1, 1) is not None


@pytest.mark.parametrize("name", ["two\nlines", "tab\t", "nul\0", "\x1b[31mred", "\ud800"])
def test_a_name_with_control_characters_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="control characters"):
        store.write([train(1, run=name, loss=1.0)])


def test_names_outside_the_schema_are_refused_in_reads(store: Store) -> None:
    for wrong in (
        lambda: store.raw("nothing", [], {}, *EVER),
        lambda: store.raw("node", ["gpus; DROP TABLE node"], {}, *EVER),
        lambda: store.raw("node", [], {"run": "r"}, *EVER),
        lambda: store.latest("node", ["nope"], {}, 1, T0),
        lambda: store.buckets("node", ["state"], {}, *EVER, 5),
        lambda: store.buckets("node", ["gpus"], {}, *EVER, 5, "step"),
        lambda: store.buckets("train", ["loss"], {}, *EVER, 5, "weeks"),
        lambda: store.tag_values("node", "run", 1, T0),
        lambda: store.delete_before("nothing", T0),
    ):
        with pytest.raises(StoreError):
            wrong()


def test_tag_values_come_from_data_of_the_asked_time_only(store: Store) -> None:
    store.write([train(1, run="new", loss=1.0), train(1, run="old", loss=1.0, time_ns=T0 - 1000 * SECOND)])
    store.write([node("b", 0), node("a", 0), node("gone", -1000), event_point("r", Event("fault", T0))])
    assert store.tag_values("train", "run", 100 * SECOND, T0) == ["new"]
    assert store.tag_values("train", "run", 10_000 * SECOND, T0) == ["new", "old"]
    assert store.tag_values("node", "node", 100 * SECOND, T0) == ["a", "b"]
    assert store.tag_values("event", "kind", 100 * SECOND, T0) == ["fault"]


def test_old_rows_are_deleted_and_counted(store: Store) -> None:
    store.write([node(name, s) for s in range(10) for name in ("a", "b")] + [train(step, loss=1.0) for step in range(10)])
    if store.health().flavour == "influxdb3":  # cannot delete: core/iox_query_influxql/src/plan
        with pytest.raises(StoreError, match="retention period"):
            store.delete_before("node", T0 + 4 * SECOND)
        return
    assert store.delete_before("node", T0 + 4 * SECOND) == 8
    assert store.delete_before("node", T0 + 4 * SECOND) == 0
    assert len(store.raw("node", [], {}, *EVER)) == 12
    assert store.delete_before("train", T0 + 9 * SECOND) == 9
    assert store.raw("train", ["step"], {}, *EVER)["step"].to_list() == [9]
    assert store.delete_before("node", T0 + 99 * SECOND) == 12
    assert store.latest("node", [], {}, 1000 * SECOND, T0).empty


BAD_POINTS = [
    Point("nothing", {}, T0, {"x": 1}),
    Point("node", {"node": "n"}, T0, {"nope": 1}),
    Point("node", {"node": "n"}, T0, {"gpus": True}),
    Point("node", {"node": "n"}, T0, {"gpus": 2**63}),
    Point("node", {"node": "n"}, T0, {"gpus": 1.5}),
    Point("node", {"node": "n"}, T0, {"state": 1}),
    Point("node", {"node": "n"}, T0, {"temperature_max_c": math.nan}),
    Point("node", {"node": "n"}, T0, {"is_simulated": 1}),
    Point("node", {"node": "n"}, T0, {}),
    Point("node", {"host": "n"}, T0, {"gpus": 1}),
    Point("node", {"node": "n"}, 2**63, {"gpus": 1}),
    Point("train", {"run": "r", "attempt": "1"}, T0, {"loss": 1.0}),
    Point("train", {"run": "r", "attempt": "1"}, T0, {"step": 1, "Loss Total": 1.0}),
    Point("train", {"run": "r", "attempt": "1"}, T0, {"step": 1, "bucket": 1.0}),
]


@pytest.mark.parametrize("bad", BAD_POINTS, ids=range(len(BAD_POINTS)))
def test_one_bad_point_in_a_batch_means_nothing_is_written(store: Store, bad: Point) -> None:
    store.write([train(1, loss=1.0)])
    with pytest.raises(StoreError):
        store.write([train(2, loss=1.0), bad, train(3, loss=1.0)])
    assert store.raw("train", ["step"], {}, *EVER)["step"].to_list() == [1]


def test_what_one_client_wrote_another_one_reads(store: Store, open_again: Callable[[], Store]) -> None:
    other = open_again()
    assert other.raw("train", ["loss"], {}, *EVER).empty
    store.write([train(1, run="late", loss=1.0, custom_metric=5.0)])
    other.write([train(2, run="late", loss=2.0, custom_metric=6.0)])
    assert other.raw("train", ["custom_metric"], {"run": "late"}, *EVER)["custom_metric"].to_list() == [5.0, 6.0]
    assert store.buckets("train", ["custom_metric"], {}, *EVER, 10, "step")["custom_metric_max"].to_list() == [5.0, 6.0]


def test_a_node_that_went_through_the_store_is_the_same_node(store: Store) -> None:
    sample = NodeSample("n1", T0, "warn", gpus=8, temperature_max_c=71.5, xid_last=79, run="r", is_simulated=True, text="XID 79")
    store.write([node_point(sample)])
    fields = ["state", "gpus", "utilization_mean_percent", "temperature_max_c", "xid_last", "run", "is_simulated", "text"]
    (row,) = store.latest("node", fields, {}, SECOND, T0).to_dict("records")
    assert node_from_row({str(key): value for key, value in row.items()}) == sample


def test_empty_results_have_their_columns_and_dtypes(store: Store) -> None:
    def filled_and_empty(read: Callable[[int, int], pd.DataFrame]) -> None:
        empty, full = read(0, 1), read(*EVER)
        assert len(empty) == 0 and len(full) > 0
        assert list(empty.dtypes.items()) == list(full.dtypes.items())

    node_fields = ["state", "gpus", "temperature_max_c", "is_simulated"]
    empty_store = store.raw("node", node_fields, {}, *EVER)
    store.write([node("n", 0, gpus=1, temperature_max_c=1.0, is_simulated=False), train(1, loss=1.0)])
    full = store.raw("node", node_fields, {}, *EVER)
    assert list(empty_store.dtypes.items()) == list(full.dtypes.items())
    assert list(full.columns) == ["time_ns", "node", *node_fields]
    assert full["time_ns"].dtype == np.int64 and full["gpus"].dtype == "Int64"
    assert full["temperature_max_c"].dtype == np.float64 and full["state"].dtype == object
    filled_and_empty(lambda a, b: store.raw("node", node_fields, {}, a, b))
    filled_and_empty(lambda a, b: store.raw("train", ["step", "loss", "extra"], {}, a, b))
    filled_and_empty(lambda a, b: store.buckets("train", ["loss", "extra"], {}, a, b, 10, "step"))
    filled_and_empty(lambda a, b: store.buckets("train", ["loss"], {}, a, b, 10))
    filled_and_empty(lambda a, b: store.buckets("node", ["gpus"], {}, a, b, 10))
    columns = ["bucket", "run", "attempt", "time_ns", "step", "n", "nonfinite", "loss_min", "loss_max", "loss_mean", "loss_last"]
    assert list(store.buckets("train", ["loss"], {}, 0, 1, 10, "step").columns) == columns
    assert list(store.latest("node", node_fields, {}, 0, 2**62).dtypes.items()) == list(full.dtypes.items())


def test_health_says_which_store_it_is(store: Store) -> None:
    health = store.health()
    assert health.is_reachable and health.flavour and health.version and health.dropped == 0


def test_a_closed_store_refuses_in_a_sentence_and_its_health_still_answers(store: Store) -> None:
    store.write([train(1, loss=1.0)])
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.raw("train", ["loss"], {}, *EVER)
    assert not store.health().is_reachable


def test_what_a_run_logs_beside_the_usual_metrics_is_named(store: Store) -> None:
    assert store.extra_metrics("r") == []
    store.write([train(1, loss=2.0, moe_aux=0.1), train(2, loss=math.nan, z_loss=0.2)])
    assert store.extra_metrics("r") == ["moe_aux", "z_loss"]
    assert {"step", "loss", "moe_aux", "z_loss"} <= set(store.stored_fields("train"))
