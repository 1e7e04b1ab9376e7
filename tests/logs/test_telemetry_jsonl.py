"""Files as NVIDIA's two telemetry libraries write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.telemetry_jsonl import TelemetryJsonl
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

MS = 1_770_000_000_000


def record(kind, count, **fields):
    return json.dumps({"type": kind, **fields, "count": count, "pid": 77}, separators=(",", ":"))


def one_logger_update(n, count):
    attributes = {
        "train_iterations_start": 0, "current_iteration": n - 1, "num_iterations": n, "train_samples_start": 0, "num_train_samples": 32 * n,
        "interval": 5, "avg_iteration_time_sec": 0.5, "total_iteration_time_sec": 0.5 * n, "total_flops": 8 * 10**12 * n,
        "train_throughput_per_gpu": 2.0, "latest_loss": 2.5, "timestamp_msec": MS + n,
    }  # fmt: skip
    return record("event", count, span_id="b", event={"name": "training_metrics_update", "attributes": attributes})


ONE_LOGGER = [
    record("start", 1, id="a", name="application", start_event={"name": "span_start", "attributes": {"timestamp_msec": MS}}),
    record("event", 2, span_id="a", event={"name": "one_logger_initialization", "attributes": {"world_size": 8, "timestamp_msec": MS}}),
    record("start", 3, id="b", name="training_loop", attributes={"train_iterations_start": 0}, start_event={"name": "span_start", "attributes": {"timestamp_msec": MS}}),
    one_logger_update(5, 4),
    record("start", 5, id="c", name="checkpoint_save_sync", attributes={"current_iteration": 5}, start_event={"name": "span_start", "attributes": {"timestamp_msec": MS}}),
    record("event", 6, span_id="c", event={"name": "save_checkpoint_success", "attributes": {"current_iteration": 5, "checkpoint_directory": "/ckpt/5", "timestamp_msec": MS}}),
    record("stop", 7, id="c", name="checkpoint_save_sync", attributes={"current_iteration": 5}, stop_event={"name": "span_stop", "attributes": {"timestamp_msec": MS}}),
    one_logger_update(10, 7),
    record("application_error", 8, span_id="b", event={"name": "error", "attributes": {"error_message": "boom", "timestamp_msec": MS}}),
]  # fmt: skip


def telemetry(step, loss, count):
    metrics = {
        "current_iteration": step,
        "num_iterations": 10,
        "interval": 10,
        "average_iteration_time": 0.5,
        "tflops": 300.5,
        "tokens_per_second": 1000.0,
        "loss": loss,
    }
    return record(
        "event",
        count,
        id="b",
        name="training_loop",
        event={"name": "training_iterations", "timestamp": "2026-02-02T02:40:00.500000+00:00", "metrics": metrics},
    )


TELEMETRY = [
    record("start", 1, id="a", name="main_function", event={"name": "span_start", "timestamp": "2026-02-02T02:40:00+00:00", "metrics": {"world_size": 8}}),
    record("start", 2, id="b", name="training_loop", event={"name": "span_start", "timestamp": "2026-02-02T02:40:00+00:00"}),
    telemetry(10, 2.5, 3),
    record("complete", 4, id="c", name="checkpoint_save_sync", elapsed=1.5, start_event={"name": "span_start", "timestamp": "2026-02-02T02:40:00+00:00", "metrics": {"current_iteration": 10, "checkpoint_directory": "/x"}}, stop_event={"name": "span_stop", "timestamp": "2026-02-02T02:40:01+00:00"}),
    telemetry(20, float("nan"), 5),
    record("stop", 6, id="v", name="validation_loop", elapsed=1.5, event={"name": "span_stop", "timestamp": "2026-02-02T02:40:02+00:00", "metrics": {"loss": 2.75, "current_iteration": 20}}),
]  # fmt: skip


def parse(lines, format="auto"):
    parser = Parser(format)
    records = parser.feed("\n".join(lines).encode() + b"\n") + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def test_one_loggers_times_and_flops_are_those_since_the_record_before():
    parser, steps, events = parse(ONE_LOGGER)
    assert parser.format == "telemetry_jsonl"
    assert [step.step for step in steps] == [4, 9]
    assert steps[1].values["step_time_s"] == pytest.approx(0.5)
    assert steps[1].values["tflops_per_gpu"] == pytest.approx(2.0)
    assert (steps[1].values["samples"], steps[1].values["loss"]) == (320, 2.5)
    assert steps[0].time_ns == (MS + 5) * 1_000_000
    assert [(e.data["state"], e.step, e.data.get("path")) for e in events if e.kind == "phase" and e.data["phase"] == "checkpoint"] == [
        ("begin", 5, None), ("end", 5, "/ckpt/5"),
    ]  # fmt: skip
    assert [e.text for e in events if e.kind == "message"] == ["boom"]


def test_training_telemetry_gives_steps_checkpoints_and_validations():
    parser, steps, events = parse(TELEMETRY)
    assert parser.format == "telemetry_jsonl"
    assert [(step.step, step.values.get("loss"), step.nonfinite) for step in steps] == [
        (10, 2.5, {}),
        (20, None, {"loss": "nan"}),
    ]
    assert (steps[0].values["tflops_per_gpu"], steps[0].values["tokens_per_s"], steps[0].values["step_time_s"]) == (
        300.5,
        1000.0,
        0.5,
    )
    assert steps[0].time_ns == 1_770_000_000_500_000_000
    assert [(e.data["state"], e.step) for e in events if e.kind == "phase" and e.data["phase"] == "checkpoint"] == [
        ("begin", 10),
        ("end", 10),
    ]
    assert [e.data["validation_loss"] for e in events if e.kind == "message"] == [2.75]


def test_an_application_that_starts_again_in_the_same_file_is_a_new_attempt():
    _, steps, _ = parse([*TELEMETRY, TELEMETRY[0], telemetry(20, 2.5, 3)])
    assert [(step.step, step.attempt) for step in steps] == [(10, 1), (20, 1), (20, 2)]


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"step","step":1,"values":{"loss":2}}',
        '{"type":"event","pid":1,"count":2}',
        '{"type":"event","event":{"name":"x"},"pid":1,"count":2}',
        '{"type":',
        '{"type":"event","event":{"name":"training_iterations","metrics":{"loss":1}},"count":1,"pid":2}',
    ],
)
def test_other_lines_are_not_claimed(line):
    assert not TelemetryJsonl.claims(line)


@given(st.integers(0, 400), st.sampled_from([ONE_LOGGER, TELEMETRY]))
def test_a_restored_grammar_goes_on_exactly_and_torn_lines_are_counted(cut, lines):
    lines = [*lines, lines[3][:cut]]
    at = cut % len(lines)
    whole, first, second = (TelemetryJsonl(LineTimes()) for _ in range(3))
    expected = [record for line in lines for record in whole.feed(line)]
    found = [record for line in lines[:at] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    assert found + [record for line in lines[at:] for record in second.feed(line)] == expected
    assert whole.bad_records == second.bad_records == (cut < len([*lines][3]))
