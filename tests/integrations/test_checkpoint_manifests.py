"""Checkpoints that real trainers saved, with the manifest that the callbacks write after them: each says what lies on the disk."""

import hashlib
import json

import pytest

from tests.integrations import test_callback_huggingface, test_callback_lightning
from tests.integrations.roads import read, train
from trainvitals import manifest

pytestmark = pytest.mark.integration
NEVER = 10**6


def assert_true(checkpoint):
    """The manifest of a checkpoint; it names every file of it, with its hash."""
    is_file = checkpoint.is_file()
    place = checkpoint.with_name(f"{checkpoint.name}.{manifest.NAME}") if is_file else checkpoint / manifest.NAME
    found = manifest.parse(place.read_bytes())
    assert found.algorithm == "sha256" or pytest.importorskip("xxhash")
    make = hashlib.sha256 if found.algorithm == "sha256" else pytest.importorskip("xxhash").xxh3_128
    root = checkpoint.parent if is_file else checkpoint
    for file in found.files:
        content = (root / file.path).read_bytes()
        assert (file.size, file.hash) == (len(content), make(content).hexdigest()), file.path
    names = {str(path.relative_to(root)) for path in ([checkpoint] if is_file else checkpoint.rglob("*")) if path.is_file()}
    assert {file.path for file in found.files} == {name for name in names if not manifest.is_own_name(name)}
    return found


def saves(events):
    """(state, step), each save's together: its manifest may come after the next one has begun."""
    return sorted(((e.data["state"], e.step) for e in events if e.kind == "save"), key=lambda save: save[1])


@pytest.fixture(scope="module")
def huggingface(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(test_callback_huggingface.SCRIPT)
    return path


@pytest.fixture(scope="module")
def lightning(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(test_callback_lightning.SCRIPT)
    return path


def test_hugging_face_checkpoints_of_one_rank_and_a_resume_from_one(huggingface, tmp_path):
    train(huggingface, tmp_path, 20, False, NEVER, NEVER)
    train(huggingface, tmp_path, 40, True, NEVER, NEVER)
    _, events = read(tmp_path / "metrics.rank00000.jsonl")
    for step in (20, 40):
        found = assert_true(tmp_path / f"checkpoint-{step}")
        assert (found.step, found.trainer, found.has_optimizer, found.has_rng) == (step, "huggingface", True, True)
        assert found.loss is not None and found.lr is not None and found.config_sha256
        assert found.timing.blocked_s > 0 and found.timing.is_async is False
    assert saves(events) == [(state, step) for step in (20, 40) for state in ("begun", "persisted", "manifest")]
    (check,) = [event.data["resume_check"] for event in events if "resume_check" in event.data]
    assert (check["step"], check["step_is_equal"], check["script_is_equal"]) == (20, True, True)
    assert check["files_missing"] == check["files_of_other_size"] == []
    origin = assert_true(tmp_path / "checkpoint-40").resumed_from
    assert (origin["step"], origin["manifest_sha256"]) == (20, check["manifest_sha256"])


def test_hugging_face_checkpoints_of_two_ranks_are_hashed_by_both(huggingface, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    train(huggingface, tmp_path, 20, False, NEVER, NEVER, launcher=launcher)
    found = assert_true(tmp_path / "checkpoint-20")
    assert found.ranks == (0, 1)
    assert {file.path: file.rank for file in found.files if file.path.startswith("rng")} == {
        "rng_state_0.pth": 0, "rng_state_1.pth": 1,
    }  # fmt: skip


def test_lightning_checkpoints_have_a_manifest_beside_them(lightning, tmp_path):
    pytest.importorskip("lightning")
    train(lightning, "lightning.pytorch", tmp_path, 24, "", NEVER, NEVER)
    _, events = read(tmp_path / "metrics.rank00000.jsonl")
    for epoch, step in ((0, 10), (1, 20)):
        found = assert_true(tmp_path / f"epoch={epoch}-step={step}.ckpt")
        assert (found.step, found.trainer, found.has_optimizer, found.timing.is_async) == (step, "lightning", True, False)
    assert saves(events) == [(state, step) for step in (10, 20) for state in ("begun", "persisted", "manifest")]


LIGHTNING_ASYNC = """
import os, sys, time
import torch
import lightning.pytorch as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from trainvitals.hook.lightning import TrainvitalsCallback

directory = sys.argv[1]
torch.set_num_threads(1)


class Slow(TorchCheckpointIO):
    def save_checkpoint(self, *arguments, **named):
        time.sleep(0.3)
        super().save_checkpoint(*arguments, **named)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


callback = TrainvitalsCallback(directory, run="tiny")
trainer = L.Trainer(
    max_steps=4, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
    plugins=[AsyncCheckpointIO(Slow())],
    callbacks=[callback, ModelCheckpoint(directory, every_n_train_steps=2, save_top_k=1, monitor="step", mode="max", save_last=True)],
)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4))
trainer.save_checkpoint(directory + "/after.ckpt", weights_only=True)
assert callback.failures.count == 0, callback.failures.last
"""


def test_what_lightning_writes_in_a_thread_is_hashed_when_it_is_written(tmp_path):
    pytest.importorskip("lightning")
    script = tmp_path / "train.py"
    script.write_text(LIGHTNING_ASYNC)
    train(script, tmp_path)
    _, events = read(tmp_path / "metrics.rank00000.jsonl")
    for name in ("epoch=0-step=4.ckpt", "last.ckpt"):
        found = assert_true(tmp_path / name)
        assert found.step == 4 and found.timing.is_async
        assert found.timing.blocked_s < 0.3 <= found.timing.persisted_s
    assert assert_true(tmp_path / "after.ckpt").has_optimizer is False
    assert [state for state, _ in saves(events)].count("persisted") == 4


DCP = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from trainvitals.hook.torch_loop import TrainingMonitor

directory, is_async = sys.argv[1], sys.argv[2] == "async"
torch.set_num_threads(1)
dist.init_process_group("gloo" if not is_async else "cpu:gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
state = {"model": distribute_tensor(torch.arange(4096.0), mesh, [Shard(0)]), "step": 2}
monitor = TrainingMonitor(directory, run="tiny")
with monitor:
    for number in (1, 2):
        with monitor.step(number) as step:
            step.loss(1.5)
    path = os.path.join(directory, "step-2")
    with monitor.saving(path, has_optimizer=False, trainer="loop", format="dcp") as save:
        if is_async:
            future = dcp.async_save(state, checkpoint_id=path)
            save.follow(future)
        else:
            dcp.save(state, checkpoint_id=path)
    if is_async:
        getattr(future, "upload_completion", future).result()
    save.wait(60)
assert monitor.failures.count == 0, monitor.failures.last
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["sync", "async"])
def test_distributed_checkpoints_of_two_ranks_are_hashed_by_both(tmp_path, how):
    script = tmp_path / "train.py"
    script.write_text(DCP)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    train(script, tmp_path, how, launcher=launcher)
    found = assert_true(tmp_path / "step-2")
    assert (found.ranks, found.step, found.loss, found.timing.is_async) == ((0, 1), 2, 1.5, how == "async")
    ranks = {file.path: file.rank for file in found.files}
    assert ranks == {".metadata": 0, "__0_0.distcp": 0, "__1_0.distcp": 1}
    _, events = read(tmp_path / "metrics.rank00000.jsonl")
    expected = ["begun", "persisted", "manifest"] if how == "sync" else ["begun", "staged", "persisted", "manifest"]
    assert [state for state, _ in saves(events)] == expected
    lines = (tmp_path / "metrics.rank00000.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("kind") == "phase" for line in lines) == 2
