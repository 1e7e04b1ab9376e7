"""Real trainings with Lightning on the CPU, under both of its names: the callback's file and metrics.csv agree."""

from dataclasses import replace

import pytest

from tests.integrations.roads import assert_agree, read, train

pytestmark = pytest.mark.integration
for _library in ("torch", "lightning"):
    pytest.importorskip(_library, reason=f"needs {_library} (make test-integrations)")

SCRIPT = """
import importlib, sys
import torch
L = importlib.import_module(sys.argv[1])
from trainvitals.hook.lightning import TrainvitalsCallback

directory, steps, start, fails_at, nan_at = sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
torch.set_num_threads(1)
torch.manual_seed(0)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"width": 4})
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        if self.global_step == fails_at:
            raise ZeroDivisionError("on purpose")
        loss = ((self.layer(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
        if self.global_step == nan_at:
            loss = loss * float("nan")
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("lr", self.optimizers().param_groups[0]["lr"])
        return loss

    def on_before_optimizer_step(self, optimizer):
        gradients = [parameter.grad for parameter in self.parameters()]
        self.log("grad_norm", torch.nn.utils.get_total_norm(gradients))
        for gradient in gradients:
            gradient.nan_to_num_(0.0)

    def validation_step(self, batch, number):
        self.log("val_loss", ((self.layer(batch) - batch.sum(1, keepdim=True)) ** 2).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.LinearLR(optimizer), "interval": "step"}]


data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4)
callback = TrainvitalsCallback(directory, run="tiny")
trainer = L.Trainer(
    max_steps=steps, log_every_n_steps=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
    logger=importlib.import_module(L.__name__ + ".loggers").CSVLogger(directory),
    callbacks=[
        callback,
        importlib.import_module(L.__name__ + ".callbacks").ModelCheckpoint(directory, every_n_train_steps=10, save_top_k=-1),
    ],
)
trainer.fit(Module(), data, data, ckpt_path=start or None)
assert callback.failures.count == 0, callback.failures.last
"""
NEVER = 10**6


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_the_callback_and_the_csv_agree_in_a_run_with_a_nan(script, tmp_path, package):
    train(script, package, tmp_path, 24, "", NEVER, 11)
    by_hook, events = read(tmp_path / "metrics.rank00000.jsonl")
    by_csv, _ = read(tmp_path / "lightning_logs" / "version_0" / "metrics.csv")
    assert [step.step for step in by_hook] == list(range(2, 25, 2))
    # Lightning's loggers count from 0, its checkpoints and global_step from 1.
    assert_agree(by_hook, [step for step in by_csv if "loss" in step.values or "loss" in step.nonfinite], step_offset=1)
    assert by_hook[5].nonfinite == {"loss": "nan", "grad_norm": "nan"}
    assert all(step.values["step_time_s"] > 0 for step in by_hook)
    phases = [(e.data["phase"], e.data["state"], e.step) for e in events if e.kind == "phase"]
    assert phases == [
        ("checkpoint", "begin", 10), ("checkpoint", "end", 10), ("eval", "begin", 16), ("eval", "end", 16),
        ("checkpoint", "begin", 20), ("checkpoint", "end", 20),
    ]  # fmt: skip
    assert [e.data["path"] for e in events if e.kind == "phase" and "path" in e.data] == [
        str(tmp_path / f"epoch={epoch}-step={step}.ckpt") for epoch, step in ((0, 10), (1, 20))
    ]
    assert [e.step for e in events if "validation_loss" in e.data] == [16]
    values = {
        f"{e.data['section']}.{name}": value
        for e in events if e.kind == "metadata"
        for name, value in e.data["values"].items()
    }  # fmt: skip
    assert (values["config.model.width"], values["config.trainer.max_steps"]) == (4, 24)
    assert next(e.data["reason"] for e in events if e.kind == "attempt_end") == "finished"


def test_a_run_that_failed_and_was_resumed_is_two_attempts_and_says_why_the_first_ended(script, tmp_path):
    train(script, "lightning.pytorch", tmp_path, 24, "", 13, NEVER, code=1)
    train(script, "lightning.pytorch", tmp_path, 24, tmp_path / "epoch=0-step=10.ckpt", NEVER, NEVER)
    by_hook, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert [(step.attempt, step.step) for step in by_hook] == [(1, n) for n in range(2, 13, 2)] + [
        (2, n) for n in range(12, 25, 2)
    ]
    assert [e.data["reason"] for e in events if e.kind == "attempt_end"] == ["exception: ZeroDivisionError", "finished"]
    assert [e.step for e in events if e.kind == "resume"] == [10]
    for attempt in (1, 2):
        by_csv, _ = read(tmp_path / "lightning_logs" / f"version_{attempt - 1}" / "metrics.csv")
        mine = [replace(step, attempt=1) for step in by_hook if step.attempt == attempt]
        assert_agree(mine, [step for step in by_csv if "loss" in step.values], step_offset=1)


def test_importing_the_callback_takes_the_package_that_is_already_imported():
    for package in ("lightning.pytorch", "pytorch_lightning"):
        code = (
            f"import importlib; L = importlib.import_module({package!r})\n"
            "from trainvitals.hook.lightning import TrainvitalsCallback\n"
            "assert issubclass(TrainvitalsCallback, L.Callback)\n"
        )
        train("-c", code)


def test_the_module_is_not_imported_by_the_hook_itself():
    code = "import sys, trainvitals.hook; assert not {'torch', 'lightning', 'transformers'} & set(sys.modules)"
    train("-c", code)
