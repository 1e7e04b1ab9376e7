"""JSON lines of loggers, trackers and home-made trainers."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.jsonl import Jsonl
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step


def read(*objects):
    grammar = Jsonl(LineTimes())
    records = []
    for item in objects:
        records += grammar.feed(item if isinstance(item, str) else json.dumps(item))
    records += grammar.finish()
    return [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)], grammar


@pytest.mark.parametrize(
    "item",
    [
        {
            "_step": 7,
            "_timestamp": 1770000000.5,
            "_runtime": 3.0,
            "train/global_step": 20,
            "train/loss": 2.5,
            "train/learning_rate": 0.1,
        },
        {
            "current_steps": 20,
            "total_steps": 900,
            "loss": 2.5,
            "lr": 0.1,
            "epoch": 0.2,
            "percentage": 2.2,
            "elapsed_time": "0:00:10",
        },
        {"lr": 0.1, "data_time": 0.01, "loss": 2.5, "time": 0.5, "epoch": 1, "iter": 20, "memory": 900, "step": 20},
        {"data_time": 0.01, "eta_seconds": 99.5, "iteration": 20, "loss_cls": 1.5, "lr": 0.1, "time": 0.5, "total_loss": 2.5},
        {"loss": 2.5, "learning_rate": 0.1, "epoch": 0.2, "step": 20, "grad_norm": 0.5},
        {"step": 20, "metrics": {"train": {"loss": 2.5, "lr": 0.1}}, "timestamp": "2026-02-02T02:40:00.500Z"},
        {"global_step": "20", "train_loss": "2.5", "lr": "0.1", "val_loss": None},
        {"num_updates": 20, "loss": 2.5, "lr": 0.1, "wps": 900},
        {"trainer/global_step": 20, "epoch": 0, "train_loss_step": 2.5, "lr-AdamW": 0.1},
        {"update": 20, "episodes": 4, "loss": 2.5, "policy_loss": 0.5, "lr": 0.1},
        {"step": 20, "train/CE loss": 2.5, "optim/LR (group 0)": 0.1},
    ],
)
def test_the_step_the_loss_and_the_learning_rate_are_found_by_their_names(item):
    assert Jsonl.claims(json.dumps(item))
    steps, events, _ = read(item)
    assert [(step.step, step.values["loss"], step.values["lr"]) for step in steps] == [(20, 2.5, 0.1)]
    assert events == []
    assert steps[0].time_ns in (None, 1_770_000_000_500_000_000)


def test_the_time_of_an_iteration_is_no_time_of_day():
    steps, _, _ = read({"data_time": 0.01, "iteration": 20, "total_loss": 2.5, "time": 0.5})
    assert (steps[0].values["step_time_s"], steps[0].time_ns) == (0.5, None)


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        (1770000000, 1_770_000_000_000_000_000),
        (1770000000.25, 1_770_000_000_250_000_000),
        (1770000000123, 1_770_000_000_123_000_000),
        (1770000000123456789, 1_770_000_000_123_456_789),
        ("2026-02-02 02:40:00,250", 1_770_000_000_250_000_000),
        (12.5, None),
        ("0:01:00", None),
    ],
)
def test_times_are_read_in_seconds_milliseconds_nanoseconds_and_as_text(time, ns):
    steps, _, _ = read({"step": 1, "loss": 2.0, "timestamp": time})
    assert steps[0].time_ns == ns


def test_lines_of_one_step_are_joined_whatever_their_order():
    steps, _, _ = read(
        {"step": 1, "name": "train/loss", "value": 2.5}, {"step": 1, "name": "lr", "value": 0.1}, {"step": 1, "grad_norm": 0.5},
        {"step": 2, "train/loss": 2.4}, {"step": 2, "lr": 0.1},
    )  # fmt: skip
    assert [dict(step.values) for step in steps] == [{"loss": 2.5, "lr": 0.1, "grad_norm": 0.5}, {"loss": 2.4, "lr": 0.1}]


def test_bare_and_quoted_nan_are_nonfinite_and_null_is_not_logged():
    steps, _, _ = read(
        '{"step": 1, "loss": NaN, "grad_norm": Infinity}', '{"step": 2, "loss": "NaN", "grad_norm": null, "lr": 1e-4}'
    )
    assert [step.nonfinite for step in steps] == [{"loss": "nan", "grad_norm": "inf"}, {"loss": "nan"}]


def test_validations_are_events_and_the_summary_of_a_training_is_nothing():
    steps, events, _ = read(
        {"step": 100, "loss": 2.5}, {"step": 100, "eval_loss": 2.7, "eval_runtime": 3.0},
        {"step": 200, "val/loss": 2.6}, {"step": 200, "split": "val", "loss": 2.55},
        {"step": 200, "train_runtime": 99.5, "train_loss": 2.9},
    )  # fmt: skip
    assert [step.step for step in steps] == [100]
    assert [event.data["validation_loss"] for event in events] == [2.7, 2.6, 2.55]


def test_mmcv_iterations_are_numbered_on_over_the_epochs():
    steps, events, _ = read(
        {"mode": "train", "epoch": 1, "iter": 50, "loss": 2.5}, {"mode": "train", "epoch": 1, "iter": 100, "loss": 2.4},
        {"mode": "val", "epoch": 1, "iter": 7, "loss": 2.6}, {"mode": "train", "epoch": 2, "iter": 50, "loss": 2.3},
    )  # fmt: skip
    assert [step.step for step in steps] == [50, 100, 150]
    assert [(event.step, event.data["validation_loss"]) for event in events] == [(100, 2.6)]


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1, "event": "checkpoint"}', '{"loss": 2.5}', '{"step": 1, "gpu_memory": 3}', "{'loss': 1.0, 'step': 3}", '{"step": 1, "loss": 2.5',
        '{"step": 1, "eval_loss": 2.5}', '{"step": -1, "loss": 2}', '{"step": 1.5, "loss": 2}',
        '{"step": true, "loss": 2}', '{"step": 1, "lm loss vs samples": 2}', "{" * 5000, '{"step":' + "[" * 5000,
    ],
)  # fmt: skip
def test_a_line_without_both_a_step_and_a_training_loss_is_not_claimed(line):
    assert not Jsonl.claims(line)


def test_torn_lines_are_counted_and_noise_is_not():
    _, _, grammar = read('{"step": 1, "loss": 2.', "Traceback (most recent call last):", "{'step': 3}", '{"a": 1}')
    assert grammar.bad_records == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["loss", "lr", "val_loss", "x", "grad_norm"]), st.floats()), max_size=30
    ),
    st.data(),
)
def test_a_restored_grammar_goes_on_exactly(cells, data):
    lines = [json.dumps({"step": step, name: value}) for step, name, value in cells]
    at = data.draw(st.integers(0, len(lines)))
    whole, first, second = (Jsonl(LineTimes()) for _ in range(3))
    expected = [record for line in lines for record in whole.feed(line)] + whole.finish()
    found = [record for line in lines[:at] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    found += [record for line in lines[at:] for record in second.feed(line)] + second.finish()
    assert found == expected
    assert all(math.isfinite(value) for record in found if isinstance(record, Step) for value in record.values.values())


def test_steps_that_are_counted_in_each_epoch_are_numbered_on_and_a_restart_keeps_its_numbers():
    rows = [{"epoch": epoch, "step": step, "loss": 2.0} for epoch in (0, 1, 2) for step in (0, 50, 100)]
    again = [{"epoch": 1, "step": step, "loss": 2.0} for step in (0, 50, 100)]
    steps, _, _ = read(*rows, *again)
    assert [step.step for step in steps] == [0, 50, 100, 101, 151, 201, 202, 252, 302, 101, 151, 201]
    steps, _, _ = read(*({"epoch": step / 40, "step": step, "loss": 2.0} for step in (10, 20, 30, 10, 20)))
    assert [step.step for step in steps] == [10, 20, 30, 10, 20]


def test_the_only_loss_of_a_log_is_the_loss_whatever_its_name_and_one_of_several_is_not():
    steps, _, _ = read(
        {"step": 1, "train_loss_nats_per_byte": 2.5}, {"step": 2, "train_loss_nats_per_byte": 2.4, "aux_loss": 0.1}
    )
    assert [step.values["loss"] for step in steps] == [2.5, 2.4]
    steps, _, _ = read({"step": 1, "actor_loss": 2.5, "critic_loss": 1.0}, {"step": 2, "actor_loss": 2.4})
    assert [dict(step.values) for step in steps] == [{"actor_loss": 2.5, "critic_loss": 1.0}, {"actor_loss": 2.4}]
    steps, _, _ = read({"step": 1, "loss": 2.5, "aux_loss": 0.5}, {"step": 2, "aux_loss": 0.4})
    assert [step.values.get("loss") for step in steps] == [2.5, None]


def test_a_count_of_valid_samples_in_a_training_step_is_no_validation():
    steps, events, _ = read({"step": 1, "train/loss": 2.5, "train/valid_trajectories": 106, "mean_test_ratio": 0.5})
    assert events == []
    assert steps[0].values == {"loss": 2.5, "train_valid_trajectories": 106, "mean_test_ratio": 0.5}


def test_one_line_an_epoch_is_counted_by_its_epoch_and_a_share_of_an_epoch_counts_nothing():
    steps, events, _ = read({"epoch": 1, "train_loss": 2.5, "val_loss": 2.6}, {"epoch": 2, "train_loss": 2.25, "val_loss": 2.5})
    assert [(step.step, step.values["loss"]) for step in steps] == [(1, 2.5), (2, 2.25)]
    assert [event.data["validation_loss"] for event in events] == [2.6, 2.5]
    assert not Jsonl.claims('{"loss": 2.5, "learning_rate": 0.1, "epoch": 1.0}')


@pytest.mark.parametrize(
    "prefix",
    ["INFO:root:", "[2026-02-02 02:40:00,250] [INFO] [train.py:77] ", "2026-02-02T02:40:00.250Z - trainer - INFO - metrics: "],
)
def test_an_object_behind_the_prefix_of_a_logger_is_read_with_its_time(prefix):
    line = prefix + '{"step": 20, "loss": 2.5}'
    assert Jsonl.claims(line)
    steps, _, _ = read(line)
    assert steps[0].values == {"loss": 2.5}
    assert steps[0].time_ns == (1_770_000_000_250_000_000 if "2026" in prefix else None)


def test_a_list_of_objects_on_one_line_is_read():
    steps, _, _ = read([{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}])
    assert [(step.step, step.values["loss"]) for step in steps] == [(1, 2.5), (2, 2.25)]


@pytest.mark.parametrize("unit", ["[", "{", "[a]", '{"', " [", "[]", "x[", "[{", '"step"'])
def test_a_hostile_line_takes_no_time(unit):
    line = (unit * 65536)[:65536] + '"step"'
    start = time.process_time()
    Jsonl.claims(line)
    assert time.process_time() - start < 0.05


def test_an_evaluation_in_mmengines_scalars_is_no_step_whatever_its_step_counts():
    train = '{{"lr": 0.01, "data_time": 0.1, "loss": {}, "time": 0.3, "epoch": 1, "iter": {}, "memory": 9, "step": {}}}\n'
    text = "".join(train.format(2.5 - n / 10, 50 * n, 50 * n) for n in (1, 2))
    text += '{"coco/bbox_mAP": 0.25, "data_time": 0.1, "time": 0.2, "step": 1}\n' + train.format(2.2, 150, 150)
    parser = Parser()
    records = parser.feed(text.encode()) + parser.finish()
    steps, events = [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]
    assert [(s.step, s.attempt) for s in steps] == [(50, 1), (100, 1), (150, 1)]
    assert [(e.kind, e.step) for e in events if e.kind == "message"] == [("message", 100)]


@pytest.mark.parametrize("step", ["-5", "4.5", "NaN", "1e400", "Infinity", "9" * 400, '"-3"', "9007199254740993000"])
def test_a_row_whose_step_is_none_is_left_out_and_counted(step):
    steps, _, grammar = read('{"step": 1, "loss": 2.5}', f'{{"step": {step}, "loss": 2.5}}', '{"step": 3, "loss": 2.5}')
    assert [record.step for record in steps] == [1, 3] and grammar.bad_records == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"step": null, "loss": 2.5}',
        '{"step": "warmup", "loss": 2.5}',
        '{"step": -1, "lr": 0.1}',
        '{"loss": 2.5, "epoch": 0.25, "update": null}',
        '{"train_loss": 2.5, "train_runtime": 9.5, "step": -1}',
    ],
)
def test_a_row_that_tells_no_step_is_no_broken_record(line):
    steps, _, grammar = read(line)
    assert steps == [] and grammar.bad_records == 0


def test_a_loss_of_hundreds_of_digits_is_not_finite():
    steps, _, _ = read('{"step": 1, "loss": ' + "9" * 400 + ', "grad_norm": -' + "9" * 400 + "}")
    assert steps[0].nonfinite == {"loss": "inf", "grad_norm": "-inf"}
