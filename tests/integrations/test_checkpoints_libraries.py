"""Checkpoints that the real libraries write: torch.save, safetensors, Lightning, Orbax; read right, and damage is found."""

import os
import shutil
from pathlib import Path

import pytest

from trainvitals.checkpoints import CheckpointWatcher, find, inspect
from trainvitals.checkpoints.resume_choice import choose_all
from trainvitals.clock import ManualClock

#: Lightning asks torch for what torch has deprecated, and advises on settings.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*num_workers"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available"),  # Slurm is here for other tests
]
BAD = ("corrupt", "incomplete")


def cut_each_file(source, copy_to, keeps=(0, 0.5, -1)):
    """(name, how much was kept, report) for each file of a copy of ``source`` that is cut short."""
    files = [source] if source.is_file() else [path for path in sorted(source.rglob("*")) if path.is_file()]
    for number, file in enumerate(files):
        content = file.read_bytes()
        for keep in keeps:
            kept = len(content) + keep if keep < 0 else int(len(content) * keep)
            if kept >= len(content):
                continue
            copy = copy_to / f"{number}-{keep}" / source.name
            copy.parent.mkdir(parents=True)
            if source.is_file():
                copy.write_bytes(content[:kept])
            else:
                shutil.copytree(source, copy)
                (copy / file.relative_to(source)).write_bytes(content[:kept])
            yield str(file.relative_to(source.parent)), content[:kept], inspect(str(copy))


class TestTorch:
    @pytest.fixture
    def state(self):
        torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")
        layer = torch.nn.Linear(16, 16)
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.ones(16)).sum().backward()
        optimizer.step()
        return torch, {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 70, "best_val_loss": 2.5}

    def test_the_zip_format_is_verified_and_every_cut_is_seen(self, state, tmp_path):
        torch, content = state
        torch.save(content, tmp_path / "ckpt.pt")
        report = inspect(str(tmp_path / "ckpt.pt"))
        assert (report.format, report.step, report.has_optimizer, str(report.state)) == ("nanogpt", 70, True, "verified")
        assert all(str(cut.state) == "corrupt" for _, _, cut in cut_each_file(tmp_path / "ckpt.pt", tmp_path / "cut"))

    def test_the_legacy_format_is_recognised_and_never_called_verified(self, state, tmp_path):
        torch, content = state
        torch.save(content, tmp_path / "model_7.pt", _use_new_zipfile_serialization=False)
        report = inspect(str(tmp_path / "model_7.pt"))
        assert (report.format, report.step, str(report.state)) == ("torch", 7, "complete")

    def test_files_without_checksums_are_no_damage(self, state, tmp_path):
        torch, content = state
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(content, tmp_path / "ckpt.pt")
        finally:
            torch.serialization.set_crc32_options(True)
        assert str(inspect(str(tmp_path / "ckpt.pt")).state) == "verified"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
class TestDistributedInside:
    """A real distributed checkpoint where other trainers put it; what they add is written as their sources do."""

    @pytest.fixture(params=["lightning", "olmo", "composer", "nemo"])
    def saved(self, request, tmp_path):
        torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")
        dcp = pytest.importorskip("torch.distributed.checkpoint")
        layer = torch.nn.Linear(16, 16)
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.ones(16)).sum().backward()
        optimizer.step()
        state = {"model": layer.state_dict(), "optimizer": optimizer.state_dict()}
        trainer = {"global_step": 500, "pytorch-lightning_version": "2.6.6", "loops": {}, "lr_schedulers": [{}]}
        name, inner = {
            "lightning": ("epoch=1-step=500.ckpt", ""),
            "olmo": ("step500", "model_and_optim"),
            "composer": ("ep1-ba500", ""),
            "nemo": ("gpt--val_loss=2.5-step=500-consumed_samples=4000.0", "weights"),
        }[request.param]
        directory = tmp_path / "run" / name
        directory.mkdir(parents=True)
        if request.param == "olmo":
            (directory / "train").mkdir()
            torch.save(trainer, directory / "train" / "rank0.pt")
        if request.param == "nemo":
            (directory / "context").mkdir()
            (directory / "context" / "io.json").write_text("{}")
        dcp.save({"state": state} if request.param == "composer" else state, checkpoint_id=directory / inner, no_dist=True)
        if request.param == "lightning":
            torch.save(trainer, directory / "meta.pt")
        if request.param == "olmo":
            (directory / ".metadata.json").write_text('{"version": "2.1.0"}')
        if request.param == "nemo":
            (directory / "weights" / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
        return request.param, directory

    def test_it_is_read_right_and_every_cut_is_seen(self, saved, tmp_path):
        expected, directory = saved
        (path,) = find(str(directory.parent))
        report = inspect(path)
        assert (report.format, report.step, report.has_optimizer, str(report.state)) == (expected, 500, True, "verified"), report
        for name, kept, cut in cut_each_file(directory, tmp_path / "cut"):
            if not kept.rstrip().endswith(b"}"):
                assert str(cut.state) in BAD, (name, len(kept), cut)

    def test_a_shard_that_is_missing_is_seen_at_presence(self, saved):
        _, directory = saved
        next(directory.rglob("*.distcp")).unlink()
        assert str(inspect(str(directory), "presence").state) == "incomplete"


def test_safetensors_of_the_library_are_verified_and_every_cut_is_seen(tmp_path):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {"w": numpy.ones((16, 16), dtype="float32"), "b": numpy.zeros(16, dtype="float16")}
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    assert str(inspect(str(tmp_path / "model.safetensors")).state) == "verified"
    assert all(str(cut.state) == "corrupt" for _, _, cut in cut_each_file(tmp_path / "model.safetensors", tmp_path / "cut"))


class TestLightning:
    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, tmp_path_factory):
        torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")
        lightning = pytest.importorskip("lightning", reason="needs lightning (make test-integrations)")
        root = tmp_path_factory.mktemp("lightning")
        clock = ManualClock()
        watcher = CheckpointWatcher([str(root)], clock)
        seen = set()

        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)

            def training_step(self, batch, _):
                return self.layer(batch).mean()

            def configure_optimizers(self):
                optimizer = torch.optim.AdamW(self.parameters())
                return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

        class Watch(lightning.Callback):
            def on_train_batch_end(self, *_arguments, **_named):
                clock.advance(5)
                seen.update(str(report.state) for report in watcher.scan())

        saver = lightning.pytorch.callbacks.ModelCheckpoint(every_n_train_steps=2, save_top_k=-1, save_last="link")
        loader = torch.utils.data.DataLoader(torch.randn(12, 8), batch_size=2)
        trainer = lightning.Trainer(
            max_steps=6, log_every_n_steps=2, accelerator="cpu", default_root_dir=str(root), callbacks=[saver, Watch()], enable_progress_bar=False,
            enable_model_summary=False, logger=lightning.pytorch.loggers.CSVLogger(str(root)),
        )  # fmt: skip
        trainer.fit(Model(), loader)
        trainer.save_checkpoint(root / "weights.ckpt", weights_only=True)
        assert not seen & set(BAD)
        return root

    def test_they_are_found_where_lightning_puts_them_and_verified(self, trained):
        reports = {report.step: report for report in map(inspect, find(str(trained))) if report.format == "lightning"}
        assert sorted(reports) == [2, 4, 6]
        assert {str(report.state) for report in reports.values()} == {"verified"}
        told = {(report.has_optimizer, report.has_scheduler, report.has_data_position) for report in reports.values()}
        assert told == {(True, True, True)}

    def test_the_choice_is_its_link_to_the_last(self, trained):
        reports = [inspect(path) for path in find(str(trained))]
        choice = next(choice for choice in choose_all(reports) if choice.directory.endswith("checkpoints"))
        assert (choice.step, choice.how, choice.problem) == (6, 'last.ckpt (ckpt_path="last")', "")

    def test_weights_only_have_no_optimizer(self, trained):
        report = inspect(str(trained / "weights.ckpt"))
        assert (report.has_optimizer, str(report.state), report.step) == (False, "verified", 6)

    def test_every_cut_is_seen(self, trained, tmp_path):
        source = Path(next(path for path in find(str(trained)) if path.endswith("step=6.ckpt")))
        assert all(str(cut.state) == "corrupt" for _, _, cut in cut_each_file(source, tmp_path))


class TestOrbax:
    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, tmp_path_factory):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        numpy = pytest.importorskip("numpy")
        pytest.importorskip("zstandard", reason="needs zstandard (make test-integrations)")
        jax = pytest.importorskip("jax", reason="needs jax (make test-integrations)")
        orbax = pytest.importorskip("orbax.checkpoint", reason="needs orbax-checkpoint (make test-integrations)")
        root = tmp_path_factory.mktemp("orbax")
        values = numpy.random.default_rng(1).standard_normal((64, 64)).astype("float32")
        tree = {"params": {"w": jax.numpy.asarray(values)}, "opt_state": {"mu": {"w": jax.numpy.asarray(values * 2)}}}
        clock = ManualClock()
        watcher = CheckpointWatcher([str(root)], clock)
        seen = set()
        with orbax.CheckpointManager(root) as manager:
            for step in (100, 200):
                arguments = orbax.args.Composite(state=orbax.args.StandardSave(tree), extra=orbax.args.JsonSave({"a": step}))
                manager.save(step, args=arguments)
                for _ in range(200):
                    clock.advance(0.1)
                    seen.update(str(report.state) for report in watcher.scan())
                manager.wait_until_finished()
        assert not seen & set(BAD)
        return root

    def test_they_are_read_right(self, saved):
        reports = [inspect(path) for path in find(str(saved))]
        assert [(report.format, report.step, str(report.state)) for report in reports] == [
            ("orbax", 100, "verified"),
            ("orbax", 200, "verified"),
        ]
        assert all(report.has_optimizer and report.world_size == 1 for report in reports)
        assert all(any("the save took" in reason for reason in report.reasons) for report in reports)

    def test_the_choice_is_the_highest(self, saved):
        (choice,) = choose_all(inspect(path) for path in find(str(saved)))
        assert (choice.step, choice.problem) == (200, "")

    def test_what_a_cut_breaks_is_seen(self, saved, tmp_path):
        unseen = set()
        for name, kept, report in cut_each_file(saved / "200", tmp_path):
            if str(report.state) not in BAD:
                unseen.add(name)
                # Marks are known by their names, and a JSON text may lose the line feed at its end.
                assert name.endswith(("commit_success.txt", "extra/metadata")) or kept.rstrip().endswith(b"}"), name
        assert not any(name.endswith("manifest.ocdbt") or "/d/" in name for name in unseen)

    def test_each_data_file_that_is_missing_is_seen(self, saved, tmp_path):
        for number, file in enumerate(path for path in sorted((saved / "200").rglob("*")) if path.parent.name == "d"):
            copy = tmp_path / f"{number}" / "200"
            shutil.copytree(saved / "200", copy)
            (copy / file.relative_to(saved / "200")).unlink()
            assert str(inspect(str(copy)).state) == "incomplete", file.name

    def test_without_a_decompressor_a_whole_step_stays_complete(self, saved, monkeypatch):
        monkeypatch.setattr("trainvitals.checkpoints.ocdbt_names._reader", lambda raw: None)
        report = inspect(str(saved / "200"))
        assert (str(report.state), "trainvitals[orbax]" in report.reasons[0]) == ("complete", True)

    def test_a_step_under_its_temporary_name_is_unfinished(self, saved, tmp_path):
        shutil.copytree(saved / "200", tmp_path / "200.orbax-checkpoint-tmp")
        (report,) = (inspect(path) for path in find(str(tmp_path)))
        assert (report.format, report.step, str(report.state)) == ("orbax", 200, "incomplete")

    def test_the_step_in_a_state_is_read_and_compared_with_the_name(self, saved, tmp_path):
        import jax
        import orbax.checkpoint

        tree = {
            "step": jax.numpy.int32(101),
            "params": {"w": jax.numpy.ones((64, 64))},
            "opt_state": {"count": jax.numpy.int32(7)},
        }
        with orbax.checkpoint.CheckpointManager(tmp_path / "run") as manager:
            manager.save(100, args=orbax.checkpoint.args.Composite(items=orbax.checkpoint.args.PyTreeSave(tree)))
            manager.wait_until_finished()
        assert str(inspect(str(tmp_path / "run" / "100")).state) == "verified"
        shutil.copytree(tmp_path / "run" / "100", tmp_path / "copy" / "300")
        report = inspect(str(tmp_path / "copy" / "300"))
        assert (str(report.state), "step in its state is 101" in report.reasons[0]) == ("complete", True)
