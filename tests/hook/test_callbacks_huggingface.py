"""The Hugging Face callback with a Trainer's calls made by hand: what its logs mean. Real trainings: tests/integrations."""

import importlib
import importlib.util
import json
import math
import sys
import types
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def callback_class():
    """With the library's base class where it is installed; it holds no behaviour, so an empty one does as well."""
    if importlib.util.find_spec("transformers") is not None:
        yield importlib.import_module("trainvitals.hook.huggingface").TrainvitalsCallback
        return
    stand_in = types.ModuleType("transformers")
    stand_in.TrainerCallback = object
    sys.modules["transformers"] = stand_in
    try:
        yield importlib.import_module("trainvitals.hook.huggingface").TrainvitalsCallback
    finally:
        del sys.modules["transformers"], sys.modules["trainvitals.hook.huggingface"]


@dataclass
class Arguments:
    process_index: int = 0
    world_size: int = 4
    logging_nan_inf_filter: bool = True
    per_device_train_batch_size: int = 2
    train_batch_size: int = 2
    gradient_accumulation_steps: int = 3
    bf16: bool = True
    fp16: bool = False
    max_grad_norm: float = 1.0
    output_dir: str = "/nowhere"

    def to_dict(self):
        return {"learning_rate": 1e-4, "hub_token": "hf_secretsecretsecretsecret"}


@dataclass
class State:
    global_step: int = 0
    max_steps: int = 100
    is_world_process_zero: bool = True
    train_batch_size: int | None = 2
    logging_steps: int = 1


@dataclass
class Control:
    should_save: bool = False
    should_log: bool = False
    should_evaluate: bool = False


@dataclass
class Training:
    """The calls of a Trainer."""

    callback: object
    arguments: Arguments = field(default_factory=Arguments)
    state: State = field(default_factory=State)
    control: Control = field(default_factory=Control)

    def call(self, name, **named):
        return getattr(self.callback, name)(self.arguments, self.state, self.control, **named)

    def step(self, logs):
        self.call("on_step_begin")
        self.state.global_step += 1
        self.call("on_step_end")
        self.call("on_log", logs=logs)


@pytest.fixture
def training(callback_class, tmp_path):
    made = Training(callback_class(tmp_path, run="tiny", describe=False))
    made.call("on_train_begin")
    yield made
    made.call("on_train_end")
    assert made.callback.failures.count == 0, made.callback.failures.last


def records(tmp_path, kind):
    lines = (tmp_path / "metrics.rank00000.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["type"] == kind]


def losses(tmp_path):
    return [step["values"].get("loss", step.get("nonfinite", {}).get("loss")) for step in records(tmp_path, "step")]


def test_a_zero_loss_with_a_grad_norm_that_is_not_finite_is_a_hidden_nan(training, tmp_path):
    for loss, norm in ((1.9, 0.8), (0.0, math.nan), (0.0, math.inf), (1.8, 0.7)):
        training.step({"loss": loss, "grad_norm": norm, "learning_rate": 1e-4})
    assert losses(tmp_path) == [1.9, "nan", "nan", 1.8]


def test_a_zero_loss_with_a_finite_grad_norm_is_a_loss(training, tmp_path):
    for _ in range(5):
        training.step({"loss": 0.0, "grad_norm": 0.3})
    assert losses(tmp_path) == [0.0] * 5


def test_without_a_grad_norm_the_third_zero_after_a_real_loss_is_a_hidden_nan(training, tmp_path):
    for loss in (1.9, 0.0, 0.0, 0.0, 0.0):
        training.step({"loss": loss})
    assert losses(tmp_path) == [1.9, 0.0, 0.0, "nan", "nan"]


def test_a_trainer_that_hides_nothing_is_taken_at_its_word(training, tmp_path):
    training.arguments.logging_nan_inf_filter = False
    for loss in (1.9, 0.0, math.nan):
        training.step({"loss": loss, "grad_norm": math.nan})
    assert losses(tmp_path) == [1.9, 0.0, "nan"]


def test_numbers_logged_apart_from_the_loss_come_with_it_and_texts_do_not(training, tmp_path):
    training.step({"rewards/mean": 0.5, "name": "a text"})
    training.step({"loss": 2.0, "learning_rate": 1e-4, "num_tokens": 640, "table": [1, 2]})
    (step,) = records(tmp_path, "step")
    assert step["step"] == 2
    assert {name: step["values"][name] for name in ("loss", "lr", "tokens", "rewards/mean")} == {
        "loss": 2.0, "lr": 1e-4, "tokens": 640, "rewards/mean": 0.5,
    }  # fmt: skip
    assert training.callback.recorder.errors == 0


def test_a_trainer_that_never_logs_a_loss_has_steps_all_the_same(training, tmp_path):
    for number in range(1, 5):
        training.step({"reward": float(number)})
    training.call("on_step_begin")
    assert [(step["step"], step["values"]["reward"]) for step in records(tmp_path, "step")] == [(2, 2.0), (3, 3.0), (4, 4.0)]


def test_samples_and_tokens_a_second_are_of_all_processes(training, tmp_path):
    training.step({"loss": 2.0, "num_input_tokens_seen": 1000})
    training.step({"loss": 2.0, "num_input_tokens_seen": 3000})
    values = [step["values"] for step in records(tmp_path, "step")]
    assert values[1]["samples_per_s"] * values[1]["step_time_s"] == pytest.approx(2 * 3 * 4)
    assert values[1]["tokens_per_s"] * values[1]["step_time_s"] == pytest.approx(2000)
    assert "tokens_per_s" not in values[0]


@pytest.mark.parametrize("evaluates", [False, True])
def test_saving_begins_after_the_evaluation_and_ends_with_the_save(training, tmp_path, evaluates):
    training.control.should_save, training.control.should_log, training.control.should_evaluate = True, True, evaluates
    training.call("on_step_begin")
    training.state.global_step += 1
    training.call("on_step_end")
    training.control.should_log = False
    training.call("on_log", logs={"loss": 2.0})
    if evaluates:
        training.call("on_prediction_step")
        training.call("on_prediction_step")
        training.call("on_log", logs={"eval_loss": 2.5, "epoch": 1.0})
        training.control.should_evaluate = False
        training.call("on_evaluate", metrics={"eval_loss": 2.5, "eval_accuracy": math.nan, "eval_note": "fine"})
    training.control.should_save = False
    training.call("on_save")
    events = records(tmp_path, "event")
    phases = [(event["data"]["phase"], event["data"]["state"]) for event in events if event["kind"] == "phase"]
    saving = [("checkpoint", "begin"), ("checkpoint", "end")]
    assert phases == ([("eval", "begin"), ("eval", "end")] if evaluates else []) + saving
    if evaluates:
        (told,) = [event["data"] for event in events if event["kind"] == "message"]
        assert told == {"validation_loss": 2.5, "eval_accuracy": "nan"}


def test_a_start_from_a_checkpoint_is_a_resume_and_an_early_end_says_where(callback_class, tmp_path):
    training = Training(callback_class(tmp_path, run="tiny", describe=False), state=State(global_step=40))
    training.call("on_train_begin")
    training.step({"loss": 2.0})
    training.call("on_train_end")
    events = [(event["kind"], event["step"], event["data"]) for event in records(tmp_path, "event")]
    assert events[0] == ("resume", 40, {})
    assert events[-1][2]["reason"] == "stopped at step 41 of 100"


def test_a_trainer_that_begins_again_by_itself_is_a_second_start(training, tmp_path):
    training.step({"loss": 2.0})
    training.state.global_step = 0
    training.call("on_train_begin")
    training.step({"loss": 2.0})
    assert len(records(tmp_path, "header")) == 2
    assert [event["data"]["reason"] for event in records(tmp_path, "event")] == ["superseded"]


def test_other_ranks_are_silent_unless_each_is_wanted(callback_class, tmp_path):
    for every_rank in (False, True):
        training = Training(callback_class(tmp_path, every_rank=every_rank, describe=False), Arguments(process_index=3))
        training.state.is_world_process_zero = False
        training.call("on_train_begin")
        training.step({"loss": 2.0})
        training.call("on_train_end")
        assert [path.name for path in tmp_path.iterdir()] == (["metrics.rank00003.jsonl"] if every_rank else [])


def test_the_start_is_described_without_secrets(callback_class, tmp_path):
    training = Training(callback_class(tmp_path, run="tiny"))
    training.call("on_train_begin")
    training.call("on_train_end")
    sections = {
        event["data"]["section"]: event["data"]["values"]
        for event in records(tmp_path, "event") if event["kind"] == "metadata"
    }  # fmt: skip
    assert (sections["config"]["learning_rate"], sections["config"]["hub_token"]) == (1e-4, "***")
    assert (sections["layout"]["global_batch_size"], sections["training"]["precision"]) == (24, "bf16")


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["loss", "grad_norm", "learning_rate", "num_tokens", "eval_loss", "train_loss", "train_runtime", "x", ""]
            ),
            st.one_of(
                st.floats(), st.integers(), st.none(), st.text(max_size=3), st.booleans(), st.lists(st.integers(), max_size=2)
            ),
            max_size=5,
        ),
        max_size=8,
    )
)
def test_whatever_is_logged_nothing_is_raised_and_steps_only_rise(callback_class, tmp_path_factory, logged):
    place = tmp_path_factory.mktemp("run")
    training = Training(callback_class(place, describe=False))
    training.call("on_train_begin")
    for logs in logged:
        training.step(logs)
    training.call("on_train_end")
    steps = [record["step"] for record in records(place, "step")]
    assert steps == sorted(set(steps))


@dataclass
class TornArguments(Arguments):
    """Members of somebody's own class that raise."""

    learning_rate: float = 3e-4

    def to_dict(self):
        raise RuntimeError("cannot be copied")

    @property
    def parallelism_config(self):
        raise RuntimeError("no")


class TornConfig:
    def __init__(self):
        self.hidden_size = 64

    def to_dict(self):
        raise RuntimeError("no")


class TornModel:
    config = TornConfig()

    @property
    def dtype(self):
        raise RuntimeError("no")


def test_a_part_of_the_description_that_raises_costs_only_that_part(callback_class, tmp_path):
    training = Training(callback_class(tmp_path, run="tiny"), TornArguments())
    training.call("on_train_begin", model=TornModel())
    training.step({"loss": 2.0})
    training.call("on_train_end")
    sections = {
        event["data"]["section"]: event["data"]["values"]
        for event in records(tmp_path, "event") if event["kind"] == "metadata"
    }  # fmt: skip
    assert sections["config"]["learning_rate"] == 3e-4 and sections["config"]["model.hidden_size"] == 64
    assert sections["training"] == {"max_grad_norm": 1.0, "max_steps": 100} and {"git", "script", "software"} <= sections.keys()
    assert training.callback.failures.count >= 2 and losses(tmp_path) == [2.0]
