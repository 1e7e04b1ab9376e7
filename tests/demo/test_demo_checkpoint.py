"""The demo's checkpoints: read by the real library, by our own inspection, and resumed bit for bit."""

from __future__ import annotations

import json
import pickletools
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import checkpoints
from trainvitals.demo import safetensors as own_safetensors
from trainvitals.demo import torch_file
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.errors import InputError
from trainvitals.records import CheckpointState


def small(directory: Path, **changes: object) -> TrainingOptions:
    directory.mkdir(exist_ok=True)
    plain = {"steps": 60, "batch": 32, "hidden": 16, "text_bytes": 20_000, "step_time_s": 0.0, "checkpoint_every": 10}
    return TrainingOptions(run_dir=directory, checkpoints=directory / "checkpoints", **(plain | changes))  # type: ignore[arg-type]


def trained(directory: Path, steps: int = 10) -> tuple[Training, Path]:
    training = Training(small(directory))
    for _ in range(steps):
        training.advance()
    return training, training.save()


def test_a_resume_continues_bit_for_bit(tmp_path: Path) -> None:
    uninterrupted = Training(small(tmp_path / "one"))
    whole = [(r.step, r.loss, r.grad_norm, r.lr, r.first) for r in (uninterrupted.advance() for _ in range(30))]
    _, path = trained(tmp_path / "two", 12)
    resumed = Training(small(tmp_path / "two"))
    resumed.resume(path)
    rest = [(r.step, r.loss, r.grad_norm, r.lr, r.first) for r in (resumed.advance() for _ in range(18))]
    assert rest == whole[12:]
    for name, value in uninterrupted.parameters.items():
        assert value.tobytes() == resumed.parameters[name].tobytes()


def test_a_resume_across_the_end_of_the_text_continues_bit_for_bit(tmp_path: Path) -> None:
    uninterrupted = Training(small(tmp_path / "one", text_bytes=4_000, batch=40))
    whole = [uninterrupted.advance().loss for _ in range(8)]
    first = Training(small(tmp_path / "two", text_bytes=4_000, batch=40))
    for _ in range(3):
        first.advance()
    resumed = Training(small(tmp_path / "two", text_bytes=4_000, batch=40))
    resumed.resume(first.save())
    assert [resumed.advance().loss for _ in range(5)] == whole[3:]


def test_files_are_those_of_the_hugging_face_trainer_and_the_state_comes_last(tmp_path: Path) -> None:
    _, path = trained(tmp_path / "run")
    assert path.name == "checkpoint-10"
    files = sorted(path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert {file.name for file in files} == {
        "config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json",
    }  # fmt: skip
    assert files[-1].stat().st_mtime_ns == (path / "trainer_state.json").stat().st_mtime_ns
    assert json.loads((path / "trainer_state.json").read_text())["global_step"] == 10


def test_the_real_safetensors_library_reads_the_weights(tmp_path: Path) -> None:
    training, path = trained(tmp_path / "run")
    loaded = safetensors.numpy.load_file(path / "model.safetensors")
    assert loaded.keys() == training.parameters.keys()
    for name, value in training.parameters.items():
        assert np.array_equal(loaded[name], value)


def test_weights_written_by_the_real_library_are_read(tmp_path: Path) -> None:
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.c": np.zeros((), np.float32)}
    safetensors.numpy.save_file(tensors, tmp_path / "other.safetensors", metadata={"format": "pt"})
    loaded = own_safetensors.read(tmp_path / "other.safetensors")
    assert {name: value.tolist() for name, value in loaded.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b.c": 0.0}


def test_our_inspection_verifies_a_checkpoint_and_not_a_truncated_one(tmp_path: Path) -> None:
    _, path = trained(tmp_path / "run")
    report = checkpoints.inspect(str(path), level="structure")
    assert (report.state, report.step, report.has_optimizer) == (CheckpointState.VERIFIED, 10, True)
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert checkpoints.inspect(str(path), level="structure").state is CheckpointState.CORRUPT


def test_only_the_newest_five_are_kept(tmp_path: Path) -> None:
    training = Training(small(tmp_path / "run"))
    for _ in range(7):
        training.advance()
        training.save()
    kept = sorted(int(path.name.removeprefix("checkpoint-")) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == [3, 4, 5, 6, 7]


@given(cut=st.integers(0, 40_000))
def test_a_cut_weights_file_is_an_input_error(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "model.safetensors"
    own_safetensors.write(path, {"a": np.ones((100, 100), np.float32)})
    raw = path.read_bytes()
    path.write_bytes(raw[: min(cut, len(raw) - 1)])
    with pytest.raises(InputError, match="take another"):
        own_safetensors.read(path)


@given(st.binary(max_size=200))
def test_noise_is_an_input_error_not_a_crash(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "optimizer.pt"
    path.write_bytes(noise)
    with pytest.raises(InputError):
        torch_file.read_records(path)
    path.write_bytes(len(noise).to_bytes(8, "little") + noise)
    with pytest.raises(InputError):
        own_safetensors.read(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    _, path = trained(tmp_path / "run")
    with pytest.raises(InputError, match="another model"):
        Training(small(tmp_path / "wide", hidden=32)).resume(path)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Training(small(tmp_path / "run")).resume(tmp_path / "nothing")


def test_optimizer_files_look_like_torch_wrote_them(tmp_path: Path) -> None:
    training, path = trained(tmp_path / "run")
    with zipfile.ZipFile(path / "optimizer.pt") as archive:
        names = set(archive.namelist())
        body = archive.read("optimizer/data.pkl")
        assert archive.testzip() is None
        assert archive.read("optimizer/version") == b"3\n"
    assert {"optimizer/data.pkl", "optimizer/byteorder", "optimizer/version", "optimizer/data/0"} <= names
    assert len([name for name in names if name.startswith("optimizer/data/")]) == 3 * len(training.parameters)
    globals_ = {argument for opcode, argument, _ in pickletools.genops(body) if opcode.name == "GLOBAL"}
    assert globals_ == {"torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )
)
def test_the_pickle_written_by_hand_says_what_was_meant(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    import pickle  # our own bytes, written two lines below

    path = tmp_path_factory.mktemp("plain") / "plain.pt"
    torch_file.write(path, value)
    with zipfile.ZipFile(path) as archive:
        assert pickle.loads(archive.read("plain/data.pkl")) == value
