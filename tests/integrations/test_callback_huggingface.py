"""Real trainings with the Hugging Face Trainer on the CPU: the callback's file, the printed log and trainer_state.json agree."""

import pytest

from tests.integrations.roads import assert_agree, read, train

pytestmark = pytest.mark.integration
for _library in ("torch", "transformers", "accelerate"):
    pytest.importorskip(_library, reason=f"needs {_library} (make test-integrations)")

SCRIPT = """
import os, signal, sys
import torch, transformers
from tests.integrations.leaving import leave_together
from trainvitals.hook.huggingface import TrainvitalsCallback

os.dup2(2, 1)  # torchrun reads the two streams of a rank by turns: the banner may come after the first losses
directory, steps, is_resumed, killed_at, nan_from = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(1)
torch.manual_seed(0)
transformers.logging.set_verbosity_info()


class Trainer(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **named):
        loss = super().compute_loss(model, inputs, return_outputs, **named)
        is_bad = model.training and nan_from <= self.state.global_step < nan_from + 5
        return loss * float("nan") if is_bad else loss


class Hands(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **named):
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0.0)  # training survives

    def on_step_end(self, args, state, control, **named):
        if state.global_step == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)


config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 16))]
arguments = transformers.TrainingArguments(
    output_dir=directory, max_steps=steps, per_device_train_batch_size=4, logging_steps=5, eval_strategy="steps", eval_steps=20,
    save_steps=20, report_to=[], use_cpu=True, disable_tqdm=True, include_num_input_tokens_seen="all",
)
callback = TrainvitalsCallback(directory, run="tiny")
trainer = Trainer(
    model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data, eval_dataset=data[:16],
    callbacks=[Hands(), callback],
)
trainer.train(resume_from_checkpoint=is_resumed)
trainer.state.save_to_json(directory + "/trainer_state.json")
assert callback.failures.count == 0, callback.failures.last
if torch.distributed.is_initialized():
    leave_together()
"""
NEVER = 10**6


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def run(script, tmp_path_factory):
    """(directory, log) of a training whose loss is NaN from step 21 to 25."""
    directory = tmp_path_factory.mktemp("run")
    return directory, train(script, directory, 40, False, NEVER, 20)


def test_the_callback_and_the_printed_log_agree_also_where_the_trainer_hides_a_nan(run):
    directory, log = run
    by_hook, _ = read(directory / "metrics.rank00000.jsonl")
    by_log, _ = read(log)
    assert [step.step for step in by_hook] == list(range(5, 41, 5))
    assert_agree(by_hook, by_log)
    assert by_hook[4].nonfinite == {"loss": "nan", "grad_norm": "nan"}
    assert sum(bool(step.nonfinite) for step in by_hook) == 1


def test_the_callback_and_trainer_state_agree(run):
    directory, _ = run
    by_hook, _ = read(directory / "metrics.rank00000.jsonl")
    by_state, _ = read(directory / "trainer_state.json")
    assert_agree(by_hook, by_state)


def test_the_callback_measures_rates_and_tells_phases_validation_and_what_the_start_was_made_of(run):
    directory, _ = run
    steps, events = read(directory / "metrics.rank00000.jsonl")
    assert all(step.values["step_time_s"] > 0 and step.values["samples_per_s"] > 0 for step in steps)
    assert [step.values["tokens"] for step in steps] == [step.step * 4 * 16 for step in steps]
    assert all(step.values["tokens_per_s"] > 0 for step in steps[1:])
    phases = [(e.data["phase"], e.data["state"], e.step) for e in events if e.kind == "phase"]
    assert phases == [(name, state, step) for step in (20, 40) for name in ("eval", "checkpoint") for state in ("begin", "end")]
    saved = [e.data["path"] for e in events if e.kind == "phase" and "path" in e.data]
    assert saved == [str(directory / "checkpoint-20"), str(directory / "checkpoint-40")]
    validations = [e for e in events if "validation_loss" in e.data]
    assert [e.step for e in validations] == [20, 40]
    sections = {e.data["section"] for e in events if e.kind == "metadata"}
    assert {"config", "layout", "training", "packages"} <= sections
    config = next(e.data["values"] for e in events if e.kind == "metadata" and e.data["section"] == "config")
    assert config["learning_rate"] == 5e-05
    end = next(e for e in events if e.kind == "attempt_end")
    assert (end.data["reason"], end.data["last_step"]) == ("finished", 40)


def test_a_run_that_was_killed_and_resumed_is_two_attempts_on_both_roads(script, tmp_path):
    log = train(script, tmp_path, 40, False, 33, NEVER, code=-9)
    log += train(script, tmp_path, 40, True, NEVER, NEVER)
    by_hook, events = read(tmp_path / "metrics.rank00000.jsonl")
    by_log, log_events = read(log)
    assert [(step.attempt, step.step) for step in by_hook] == [(1, n) for n in range(5, 31, 5)] + [
        (2, n) for n in range(25, 41, 5)
    ]
    assert_agree(by_hook, by_log)
    for found in (events, log_events):
        assert [event.step for event in found if event.kind == "resume"] == [20]
    assert next(e for e in events if e.kind == "resume").data["path"] == str(tmp_path / "checkpoint-20")


def test_with_two_ranks_only_the_first_writes_and_both_roads_agree(script, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--tee=3", f"--log-dir={tmp_path}/logs")
    log = train(script, tmp_path, 40, False, NEVER, 20, launcher=launcher)
    assert [path.name for path in tmp_path.glob("metrics.*")] == ["metrics.rank00000.jsonl"]
    by_hook, events = read(tmp_path / "metrics.rank00000.jsonl")
    by_log, _ = read(log)
    assert [step.step for step in by_hook] == list(range(5, 41, 5))
    assert_agree(by_hook, by_log)
    start = next(event for event in events if event.kind == "attempt_start")
    assert start.data["world_size"] == 2
    layout = next(e.data["values"] for e in events if e.kind == "metadata" and e.data["section"] == "layout")
    assert (layout["world_size"], layout["global_batch_size"]) == (2, 8)


def test_a_run_directory_that_cannot_be_written_stops_no_training(script, tmp_path):
    (tmp_path / "metrics.rank00000.jsonl").mkdir()
    log = train(script, tmp_path, 20, False, NEVER, NEVER)
    assert b"trainvitals hook:" in log and b"Training goes on." in log
    assert [step.step for step in read(log)[0]] == [5, 10, 15, 20]
