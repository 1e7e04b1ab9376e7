"""A tiny real Hugging Face Trainer run: what it prints, parsed, agrees with what it keeps in ``state.log_history``."""

import json
import math
import os
import subprocess
import sys

import pytest

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

pytestmark = pytest.mark.integration
for _library in ("torch", "transformers", "accelerate"):
    pytest.importorskip(_library, reason=f"needs {_library} (make test-integrations)")


SCRIPT = """
import sys
import torch, transformers
torch.set_num_threads(1)
torch.manual_seed(0)
directory, verbosity, disable_tqdm = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
if verbosity == "info":
    transformers.logging.set_verbosity_info()
config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
rows = [torch.randint(0, 64, (16,)) for _ in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = transformers.TrainingArguments(
    output_dir=directory, num_train_epochs=3, per_device_train_batch_size=4, logging_steps=5, eval_strategy="epoch",
    save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=disable_tqdm,
)
trainer = transformers.Trainer(
    model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data, eval_dataset=data[:16]
)
trainer.train()
trainer.state.save_to_json(directory + "/trainer_state.json")
"""


def _train(directory, verbosity, disable_tqdm):
    """stdout and stderr of the run in one stream, as a job's log holds them, and its log history."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory), verbosity, str(disable_tqdm)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    return done.stdout, json.loads((directory / "trainer_state.json").read_text())["log_history"]


def _parse(data):
    parser = Parser()
    records = parser.feed(data) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


@pytest.mark.parametrize(("verbosity", "disable_tqdm"), [("warning", False), ("info", False), ("info", True)])
def test_steps_and_losses_of_a_real_run_agree_with_its_log_history(tmp_path, verbosity, disable_tqdm):
    output, history = _train(tmp_path, verbosity, disable_tqdm)
    expected = [row for row in history if "loss" in row]
    parser, steps, events = _parse(output)
    assert parser.format == "huggingface"
    assert [step.step for step in steps] == [row["step"] for row in expected] == list(range(5, 46, 5))
    for step, row in zip(steps, expected, strict=True):
        for name, key in (("loss", "loss"), ("grad_norm", "grad_norm"), ("lr", "learning_rate"), ("epoch", "epoch")):
            assert math.isclose(step.values[name], row[key], rel_tol=1e-3), (name, step, row)
    assert {step.attempt for step in steps} == {1}
    evaluations = [event for event in events if event.kind == "message" and "validation_loss" in event.data]
    assert len(evaluations) == len([row for row in history if "eval_loss" in row])
    assert [event.data["phase"] for event in events if event.kind == "phase"][-1] == "finished"

    parser, steps, _ = _parse((tmp_path / "trainer_state.json").read_bytes())
    assert parser.format == "huggingface_state"
    assert [(step.step, step.values["loss"]) for step in steps] == [(row["step"], row["loss"]) for row in expected]
