"""Real trainings on the CPU that log to TensorBoard: the event files say what the trainers' other records of themselves say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.cli.parse import read_log
from trainvitals.records import Event, Step

pytestmark = pytest.mark.integration
for _library in ("torch", "tensorboard"):
    pytest.importorskip(_library, reason=f"needs {_library} (make test-integrations)")

HUGGING_FACE = """
import os, sys
import torch
os.environ["TENSORBOARD_LOGGING_DIR"] = sys.argv[1] + "/tb"
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(80)]
arguments = TrainingArguments(
    output_dir=sys.argv[1] + "/out", max_steps=33, logging_steps=5, eval_strategy="steps", eval_steps=10, save_steps=33,
    report_to=["tensorboard"], use_cpu=True, disable_tqdm=True,
)
Trainer(model=Model(), args=arguments, train_dataset=data, eval_dataset=data).train()
"""

LIGHTNING = """
import sys
import torch
import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        loss = (self.layer(batch) ** 2).mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", (self.layer(batch) ** 2).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.001)
        return [optimizer], [torch.optim.lr_scheduler.LinearLR(optimizer)]


data = torch.utils.data.DataLoader(torch.randn(80, 4), batch_size=4)
loggers = [TensorBoardLogger(sys.argv[1], name="tb", version=0), CSVLogger(sys.argv[1], name="csv", version=0)]
trainer = L.Trainer(
    max_epochs=3, log_every_n_steps=5, accelerator="cpu", logger=loggers, callbacks=[LearningRateMonitor("step")],
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
trainer.fit(Module(), data, data)
"""


def train(script, directory):
    subprocess.run([sys.executable, "-c", script, str(directory)], check=True, capture_output=True, timeout=240)


def read(path):
    records = [record for _, found in read_log(str(path)) for record in found]
    steps = {r.step: r.values for r in records if isinstance(r, Step)}
    validations = {r.step: r.data["validation_loss"] for r in records if isinstance(r, Event) and r.kind == "message"}
    return steps, validations


def test_the_event_file_of_hugging_faces_trainer_agrees_with_its_state(tmp_path):
    pytest.importorskip("transformers", reason="needs transformers (make test-integrations)")
    train(HUGGING_FACE, tmp_path)
    steps, validations = read(tmp_path / "tb")
    [state] = (tmp_path / "out").rglob("trainer_state.json")
    history = json.loads(Path(state).read_text())["log_history"]
    rows = [row for row in history if "loss" in row]
    assert list(steps) == [row["step"] for row in rows] == [5, 10, 15, 20, 25, 30]
    for row in rows:
        values = steps[row["step"]]
        assert values["loss"] == pytest.approx(float(row["loss"]), rel=1e-3)
        assert values["lr"] == pytest.approx(float(row["learning_rate"]), rel=1e-3)
        assert values["grad_norm"] == pytest.approx(float(row["grad_norm"]), rel=1e-3)
    assert list(validations) == [row["step"] for row in history if "eval_loss" in row]


def test_the_event_file_of_lightning_agrees_with_its_table(tmp_path):
    pytest.importorskip("lightning", reason="needs lightning (make test-integrations)")
    train(LIGHTNING, tmp_path)
    steps, validations = read(tmp_path / "tb" / "version_0")
    rows, others = read(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert list(steps) == list(rows) == list(range(4, 60, 5))
    assert list(validations) == list(others) == [19, 39, 59]
    for step, values in rows.items():
        assert steps[step]["loss"] == pytest.approx(values["loss"], rel=1e-6)
        assert steps[step]["lr"] == pytest.approx(values["lr"], rel=1e-6)
