"""One step of several distributed checkpoints: ``model/`` and ``optim/``, each of a call of its own."""

import shutil

import checkpoint_makers
import dcp_makers as make
import pytest

from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.verification import verify
from trainvitals.clock import ManualClock
from trainvitals.records import VerificationLevel

MODEL = {"model.layers.0.weight": 64, "model.norm": 8}
OPTIMIZER = {"optim.state.layers.0.weight.exp_avg": 64}


def below(prefix, files):
    return {f"{prefix}/{name}": content for name, content in files.items()}


def zipped():
    return checkpoint_makers.torch_zip_bytes()


def automodel(directory, ranks=2):
    return make.write(
        directory,
        {
            **below("model", make.parts(MODEL, ranks)),
            **below("optim", make.parts(OPTIMIZER, ranks)),
            **{f"{kind}/{kind}_dp_rank_{rank}.pt": zipped() for kind in ("rng", "dataloader") for rank in range(ranks)},
            "step_scheduler.pt": zipped(),
            "losses.json": b'{"train_loss": 2.5}',
            "config.yaml": b"seed: 1\n",
        },
    )


def rl(directory):
    return make.write(
        directory,
        {
            "training_info.json": b'{"step": 20}',
            **below("policy/weights", make.parts(MODEL)),
            **below("policy/optimizer", make.parts(OPTIMIZER)),
            "train_dataloader.pt": zipped(),
        },
    )


def verl(directory):
    part = {**make.parts(MODEL | {"optimizer.state.exp_avg": 64}), "metadata.json": b'{"sharded_backend": "torch_dist"}'}
    return make.write(directory, {**below("actor/dist_ckpt", part), "data.pt": zipped()})


WHOLE = {"epoch_0_step_20": automodel, "step_20": rl, "global_step_20": verl, "step-20": automodel}


def content_of(path):
    clock = ManualClock()
    return verify(str(path), VerificationLevel.CONTENT, Work(clock, Pace(clock), keeps_hashes=True))


def said(path):
    report = inspect(str(path))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_step_is_one_checkpoint_with_all_its_parts_from_outside_and_from_inside(tmp_path, name):
    path = WHOLE[name](tmp_path / "run" / name)
    assert find(str(tmp_path / "run")) == [str(path)]
    assert find(str(path)) == [str(path)]
    report = inspect(str(path))
    assert (report.format, report.step, str(report.state)) == ("dcp_parts", 20, "verified"), report.reasons
    assert (report.has_optimizer, report.has_data_position, report.reasons) == (True, True, ())


@pytest.mark.parametrize("name", WHOLE)
def test_each_shard_and_metadata_cut_or_gone_counts_for_the_whole_and_names_its_part(tmp_path, name):
    source = WHOLE[name](tmp_path / "whole" / name)
    for file in [file for file in source.rglob("*") if file.suffix == ".distcp" or file.name == ".metadata"]:
        inner = file.relative_to(source)
        for change, expected in ((b"", "corrupt"), (file.read_bytes()[:-1], "corrupt"), (None, "incomplete")):
            copy = tmp_path / "copy" / name
            shutil.copytree(source, copy)
            if change is None:
                (copy / inner).unlink()
            else:
                (copy / inner).write_bytes(change)
            state, reasons = said(copy)
            assert state == expected, (inner, reasons)
            assert str(inner.parent) in reasons
            shutil.rmtree(tmp_path / "copy")


def test_a_step_without_its_optimizer_says_so(tmp_path):
    path = automodel(tmp_path / "epoch_0_step_20")
    shutil.rmtree(path / "optim")
    report = inspect(str(path))
    assert report.has_optimizer is False
    assert "none of its parts holds an optimizer" in " ".join(report.reasons)


def test_a_rank_whose_state_is_missing_makes_it_incomplete(tmp_path):
    path = automodel(tmp_path / "epoch_0_step_20", ranks=3)
    (path / "rng" / "rng_dp_rank_1.pt").unlink()
    state, reasons = said(path)
    assert (state, "rng_dp_rank_*.pt of 1 ranks is missing" in reasons) == ("incomplete", True)


def test_every_byte_of_every_part_is_proven_by_the_checksums_in_it(tmp_path):
    path = automodel(tmp_path / "epoch_0_step_20")
    shard = path / "optim" / "__1_0.distcp"
    content = bytearray(shard.read_bytes())
    content[content.index(bytes(range(100))) + 50] ^= 1
    assert str(content_of(path)[0].report.state) == "verified"
    shard.write_bytes(content)
    report = content_of(path)[0].report
    assert str(report.state) == "corrupt", report.reasons
    assert "optim/__1_0.distcp" in report.reasons[0]


def test_weights_as_safetensors_of_each_rank_beside_a_distributed_optimizer_are_never_called_verified(tmp_path):
    """Which ranks there were stands nowhere; a rank writes only the files of which it holds a tensor (pipeline stages)."""
    path = automodel(tmp_path / "epoch_0_step_20")
    shutil.rmtree(path / "model")
    one = _safetensors()
    for name in ("shard-00001-model-00001-of-00002", "shard-00002-model-00002-of-00002"):
        (path / "model").mkdir(exist_ok=True)
        (path / "model" / f"{name}.safetensors").write_bytes(one)
    state, reasons = said(path)
    assert (state, "nothing tells how many ranks there were" in reasons) == ("complete", True)
    (path / "model" / "shard-00002-model-00002-of-00002.safetensors").unlink()
    assert said(path)[0] == "incomplete"


def _safetensors():
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    return len(header).to_bytes(8, "little") + header + bytes(16)


def test_a_run_that_holds_steps_is_not_one_checkpoint(tmp_path):
    for step in (100, 200):
        make.torchtitan(tmp_path / "run", step)
    assert inspect(str(tmp_path / "run")).format != "dcp_parts"
    assert len(find(str(tmp_path / "run"))) == 2
