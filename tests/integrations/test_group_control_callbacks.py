"""Real trainings with the Hugging Face Trainer and with Lightning that are saved, held, resumed and parked through the control file."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.integrations.roads import environment, read
from trainvitals.control import read_status, submit

pytestmark = pytest.mark.integration
for _library in ("torch", "transformers", "accelerate", "lightning"):
    pytest.importorskip(_library, reason=f"needs {_library} (make test-integrations)")

DEADLINE_S = 120.0
CONTROL = "control={'poll_s': 0.05, 'meet_every_s': 0.05, 'timeout_s': 60, 'hold_timeout_s': 30}"

HUGGINGFACE = f"""
import sys
import torch, transformers
from tests.integrations.leaving import leave_together
from trainvitals.hook.huggingface import TrainvitalsCallback

directory = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(0)
config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
data = [{{"input_ids": row, "labels": row}} for row in torch.randint(0, 64, (64, 16))]
arguments = transformers.TrainingArguments(
    output_dir=directory, max_steps=100_000, per_device_train_batch_size=4, logging_steps=5, save_strategy="no", report_to=[],
    use_cpu=True, disable_tqdm=True,
)
callback = TrainvitalsCallback(directory, run="tiny", {CONTROL})
trainer = transformers.Trainer(
    model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data, callbacks=[callback]
)
trainer.train()
assert callback.failures.count == 0, callback.failures.last
print("ended at", trainer.state.global_step, "on", arguments.process_index, flush=True)
leave_together(callback.exit_code)
"""

LIGHTNING = f"""
import sys
import torch
import lightning.pytorch as L
from lightning.pytorch.plugins import AsyncCheckpointIO
from tests.integrations.leaving import leave_together
from trainvitals.hook.lightning import TrainvitalsCallback

directory = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(0)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        loss = ((self.layer(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


callback = TrainvitalsCallback(directory, run="tiny", {CONTROL})
ranks = int(sys.argv[2])
plugins = [AsyncCheckpointIO()] if ranks == 1 else []
trainer = L.Trainer(
    max_steps=1_000_000, max_epochs=-1, log_every_n_steps=5, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto",
    enable_progress_bar=False, enable_model_summary=False, logger=False, default_root_dir=directory,
    callbacks=[callback], plugins=plugins,
)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4))
assert callback.failures.count == 0, callback.failures.last
print("ended at", trainer.global_step, "on", trainer.global_rank, flush=True)
if torch.distributed.is_initialized():
    leave_together(callback.exit_code)
sys.exit(callback.exit_code)
"""

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


class Training:
    def __init__(self, directory, script, ranks):
        self.directory = directory
        path = directory / "train.py"
        path.write_text(script)
        self.log = directory / "log"
        launcher = TORCHRUN if ranks > 1 else ()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *launcher, str(path), str(directory), str(ranks)], stdout=log, stderr=subprocess.STDOUT,
                env=environment(), start_new_session=True,
            )  # fmt: skip

    def ask(self, action, **options):
        request = submit(self.directory, "tiny", action=action, by="alice", source="cli", reason="spike", **options)
        return self.until(lambda s: s.applied_seq >= request.seq)

    def until(self, is_true):
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s and self.process.poll() is None:
            status = read_status(self.directory)
            if status is not None and is_true(status):
                return status
            time.sleep(0.02)
        return self.at_the_end(is_true)

    def at_the_end(self, is_true):
        status = read_status(self.directory)
        assert status is not None and is_true(status), (status, self.log.read_text()[-3000:])
        return status

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@pytest.mark.parametrize(
    ("script", "ranks", "checkpoint", "code"),
    [
        (HUGGINGFACE, 2, "checkpoint-{}", 0),  # under torchrun 0
        (LIGHTNING, 1, "checkpoints/epoch=*-step={}.ckpt", 75),
        (LIGHTNING, 2, "checkpoints/epoch=*-step={}.ckpt", 0),
    ],
    ids=["huggingface-2", "lightning-1", "lightning-2"],
)
def test_a_training_saves_and_holds_goes_on_saves_and_is_parked(tmp_path, script, ranks, checkpoint, code):
    training = Training(tmp_path, script, ranks)
    try:
        training.until(lambda s: (s.step or 0) > 5)
        saved = training.ask("checkpoint")
        assert (saved.refused_seq, saved.checkpoint_done) == (0, 1)
        paused = training.ask("pause")
        assert (paused.state, paused.refused_seq, paused.checkpoint_step) == ("paused", 0, paused.applied_at_step)
        beat = paused.heartbeat_seq
        later = training.until(lambda s: s.heartbeat_seq > beat + 5)
        assert later.step == paused.step
        training.ask("resume")
        training.until(lambda s: s.state == "running" and s.step > paused.step)
        bare = training.ask("pause", save=False)
        assert (bare.state, bare.checkpoint_step) == ("paused", paused.checkpoint_step)
        training.ask("resume")
        parked = training.ask("pause", how="park")
        assert training.process.wait(DEADLINE_S) == code, training.log.read_text()[-3000:]
    finally:
        training.end()
    assert (parked.state, parked.how, parked.checkpoint_step) == ("stopped", "park", parked.applied_at_step)
    for step in (saved.checkpoint_step, paused.checkpoint_step, parked.checkpoint_step):
        assert list(tmp_path.glob(checkpoint.format(step))), (step, training.log.read_text()[-2000:])
    ends = [line for line in training.log.read_text().splitlines() if line.startswith("ended at")]
    assert sorted(ends) == [f"ended at {parked.applied_at_step} on {rank}" for rank in range(ranks)]
    steps, events = read(tmp_path / "metrics.rank00000.jsonl")
    assert [event.data["reason"] for event in events if event.kind == "attempt_end"] == ["stopped: parked"]
    phases = [(e.data["phase"], e.data["state"]) for e in events if e.kind == "phase" and e.data["phase"] == "paused"]
    assert phases == [("paused", "begin"), ("paused", "end")] * 2
    assert steps

    if ranks == 1:
        again = Training(tmp_path, script, ranks)
        try:
            assert again.process.wait(DEADLINE_S) == code
        finally:
            again.end()
        told = again.log.read_text()
        assert "The run was parked by alice (spike; seq 6) and stays parked" in told and "ended at 0 on 0" in told
