"""Real checkpoints of the Hugging Face Trainer: a tiny random model on CPU, nothing is downloaded."""

import shutil

import pytest

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")
transformers = pytest.importorskip("transformers", reason="needs transformers (make test-integrations)")
pytest.importorskip("accelerate", reason="needs accelerate (make test-integrations)")

from trainvitals.checkpoints import CheckpointWatcher, find, inspect  # noqa: E402
from trainvitals.clock import ManualClock  # noqa: E402


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 8))]
    clock = ManualClock()
    watcher = CheckpointWatcher([str(directory)], clock)
    seen = set()

    class Watch(transformers.TrainerCallback):
        def on_save(self, *arguments, **named):
            self.on_step_end()

        def on_step_end(self, *arguments, **named):
            clock.advance(5)
            seen.update(str(report.state) for report in watcher.scan())

    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=6, save_steps=2, save_total_limit=2, logging_steps=1, report_to=[], use_cpu=True,
        per_device_train_batch_size=2, disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Watch()]).train()
    assert not seen & {"incomplete", "corrupt"}
    return directory


def test_real_checkpoints_are_verified_up_to_structure(output):
    reports = [inspect(path) for path in find(str(output))]
    assert [(report.step, str(report.state), str(report.level)) for report in reports] == [
        (4, "verified", "structure"),
        (6, "verified", "structure"),
    ]
    assert all(report.has_optimizer and report.reasons == () and report.loss for report in reports)


def test_each_file_of_a_real_checkpoint_cut_short_is_noticed(output, tmp_path):
    source = output / "checkpoint-6"
    for number, file in enumerate(sorted(source.iterdir())):
        content = file.read_bytes()
        for kept in (0, len(content) // 2, len(content) - 1):
            copy = tmp_path / f"{number}-{kept}" / "checkpoint-6"
            shutil.copytree(source, copy)
            cut = content[:kept]
            (copy / file.name).write_bytes(cut)
            if file.suffix == ".json" and cut.rstrip().endswith(b"}"):
                continue  # only the line feed at the end went
            assert inspect(str(copy)).state in ("corrupt", "incomplete"), (file.name, kept)


def test_weights_only_checkpoints_are_said_to_have_no_optimizer(output, tmp_path):
    model = transformers.GPT2LMHeadModel.from_pretrained(str(output / "checkpoint-6"))
    model.save_pretrained(str(tmp_path / "weights"), max_shard_size="20KB")
    report = inspect(str(tmp_path / "weights"))
    assert (str(report.state), report.format, report.has_optimizer) == ("verified", "safetensors", False)


def test_files_of_torch_save_are_verified_and_their_optimizer_is_seen(tmp_path):
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(4)).sum().backward()
    optimizer.step()
    path = tmp_path / "ckpt_7.pt"
    torch.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 7}, path)
    report = inspect(str(path))
    assert (str(report.state), report.step, report.has_optimizer, report.reasons) == ("verified", 7, True, ())
    torch.save(layer.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert "legacy" in inspect(str(tmp_path / "old.pth")).reasons[0]
