"""MLPerf's :::MLLOG lines, made up in the shape that the submissions of v4.0 to v6.0 hold."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.mllog import MLLog
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"
START_MS = 1_767_323_045_000


def entry(key, value=None, *, ms=0, kind="POINT_IN_TIME", **metadata):
    body = {"namespace": "", "time_ms": START_MS + ms, "event_type": kind, "key": key, "value": value, "metadata": metadata}
    return f":::MLLOG {json.dumps(body)}\n"


def stats(step, loss, *, ms, seconds=1.0, **metadata):
    return entry("tracked_stats", {"train_step_time": seconds, "reduced_train_loss": loss}, ms=ms, step=step, **metadata)


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def test_a_whole_submission_gives_its_training_steps_and_nothing_else():
    parser, steps, events = parse((DATA / "mllog.log").read_text())
    assert parser.format == "mllog"
    assert [step.step for step in steps] == [3, 7, 11, 15]
    assert {step.attempt for step in steps} == {1}
    assert steps[0].values == {"loss": 9.25, "step_time_s": 0.5, "samples": 64.0}
    assert steps[0].time_ns == 1_767_323_052_000_000_000
    validations = [(e.step, e.data) for e in events if "validation_loss" in e.data]
    assert validations == [(8, {"validation_loss": 8.5}), (16, {"validation_loss": 7.75})]
    assert parser.counters["bad_records"] == 0


def test_a_thousand_ranks_that_start_are_one_start_and_its_hyper_parameters_one_record():
    text = "".join(f"{rank:3}: {entry('init_start', ms=rank)}" for rank in range(1000)) + entry("seed", 7)
    _, _, events = parse(text + entry("run_start") * 8)
    assert [(e.kind, e.data.get("phase")) for e in events] == [("phase", "start"), ("metadata", None), ("phase", "train")]
    assert events[1].data == {"section": "config", "values": {"seed": 7}, "part": 0, "parts": 1}


def test_steps_that_hold_samples_are_divided_by_the_batch():
    text = entry("global_batch_size", 64) + entry("run_start")
    text += "".join(stats(64.0 * n, 9.0 - n / 10, ms=1000 * n) for n in range(1, 6))
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert steps[1].values["samples"] == 128.0


def test_real_steps_that_happen_to_be_multiples_of_the_batch_stay_steps():
    text = entry("global_batch_size", 16) + entry("run_start")
    text += "".join(stats(32.0 * n, 9.0, ms=32_000 * n) for n in range(1, 4))
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [32, 64, 96]


def test_the_samples_beside_the_step_tell_that_the_step_is_one():
    text = entry("global_batch_size", 16) + entry("run_start") + stats(16.0, 9.0, ms=1000, samples_count=256.0)
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [16]
    text = entry("global_batch_size", 16) + entry("run_start") + stats(16.0, 9.0, ms=1000, samples_count=16.0)
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [1]


def test_a_step_beyond_the_last_one_holds_samples():
    text = entry("global_batch_size", 8) + entry("max_steps", 100)
    text += entry("tracked_stats", {"train_loss": 2.0}, step=800)
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [100]


def test_a_loss_with_samples_only_is_counted_in_batches():
    text = entry("global_batch_size", 32) + "".join(
        entry("train_loss", 11.0 - n, ms=n, samples_count=32 * 4 * n, lr=1e-5) for n in range(4)
    )
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [0, 4, 8, 12]
    assert steps[1].values == {"loss": 10.0, "lr": 1e-5, "samples": 128.0}


def test_a_count_that_is_no_multiple_of_the_batch_is_the_step():
    text = entry("global_batch_size", 8) + "".join(entry("train_loss", 1.0, ms=n, samples_count=10 * n) for n in range(1, 5))
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [10, 20, 30, 40]


@pytest.mark.parametrize("key", ["iteration_num", "epoch_num", "epoch"])
def test_a_loss_of_an_iteration_or_of_an_epoch_is_a_step_of_that_number(key):
    _, steps, _ = parse(entry("global_batch_size", 8) + "".join(entry("train_loss", 1.0, **{key: n}) for n in (1, 2, 3)))
    assert [step.step for step in steps] == [1, 2, 3]


def test_statistics_without_a_loss_are_no_steps():
    text = entry("run_start") + entry("tracked_stats", {"throughput": 5.5}, step=1920)
    text += entry("tracked_stats", {"validation_step_time": 0.1}, step=3) + entry("tracked_stats", {"warmup_time": 40.0}, step=0)
    _, steps, events = parse(text)
    assert steps == []
    assert [e.data for e in events if e.kind == "message"] == [{"throughput": 5.5}, {"warmup_time": 40.0}]


def test_an_accuracy_is_no_loss_and_several_metrics_keep_their_names():
    text = entry("submission_benchmark", "bert") + entry("run_start") + entry("eval_accuracy", 0.71, epoch_num=5)
    text += entry("eval_accuracy", {"BBOX": 0.37, "SEGM": 0.33})
    _, _, events = parse(text)
    found = [e.data for e in events if e.kind == "message"]
    assert found == [{"validation_accuracy": 0.71}, {"validation_BBOX": 0.37, "validation_SEGM": 0.33}]


def test_a_nan_loss_and_a_torn_line_are_told():
    text = entry("run_start") + stats(1.0, float("nan"), ms=1) + stats(2.0, 3.0, ms=2)[:-40] + "\n" + stats(3.0, 3.0, ms=3)
    parser, steps, _ = parse(text)
    assert [(step.step, step.nonfinite) for step in steps] == [(1, {"loss": "nan"}), (3, {})]
    assert parser.counters["bad_records"] == 1


def test_a_run_that_starts_again_in_the_same_file_is_a_new_attempt():
    one = entry("init_start") + entry("run_start") + stats(1.0, 3.0, ms=1) + stats(2.0, 2.9, ms=2)
    _, steps, _ = parse(one + one)
    assert [(step.step, step.attempt) for step in steps] == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_a_line_of_another_program_beside_them_is_read_instead():
    assert MLLog.is_weak
    assert not MLLog.claims(entry("cache_clear", True))
    assert MLLog.claims(" 0: " + stats(1.0, 2.0, ms=1))


@pytest.mark.parametrize("tail", ["", "{", '{"key": 1}', "[" * 60_000, '{"key": "tracked_stats", "value": {"train_loss": "x"}}'])
def test_a_broken_line_is_no_record(tail):
    _, steps, _ = parse(f":::MLLOG {tail}\n", format="mllog")
    assert steps == []


@given(
    st.text(max_size=60), st.sampled_from(["tracked_stats", "train_loss", "eval_accuracy", "run_start", "init_start"]), st.data()
)
def test_no_value_makes_the_grammar_raise_and_its_state_goes_through_json(text, key, data):
    numbers = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5))
    value = data.draw(st.one_of(numbers, st.dictionaries(st.sampled_from(["train_loss", "loss", "x"]), numbers)))
    metadata = data.draw(st.dictionaries(st.sampled_from(["step", "samples_count", "epoch_num"]), numbers))
    grammar = MLLog(None)
    line = ":::MLLOG " + json.dumps({"key": key, "time_ms": data.draw(numbers), "value": value, "metadata": metadata}) + text
    grammar.feed(entry("global_batch_size", data.draw(numbers)))
    grammar.feed(line)
    grammar.feed(entry(text, value))
    other = MLLog(None)
    other.restore(json.loads(json.dumps(grammar.to_state(), allow_nan=False)))
    assert other.feed(line) == grammar.feed(line)
