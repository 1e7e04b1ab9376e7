import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import checkpoint_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import find, inspect
from trainvitals.errors import InputError

TORCH = make.torch_zip_bytes()
TENSORS = make.safetensors_bytes({"w": ("F32", (8, 4)), "b": ("BF16", (4,))})


def state_of(path, level="structure"):
    report = inspect(str(path), level)
    return f"{report.state}({report.level})" if report.state == "verified" else str(report.state)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_whole_hugging_face_checkpoint_is_verified_with_its_level(tmp_path, shards, ranks):
    report = inspect(str(make.huggingface(tmp_path, 500, shards=shards, ranks=ranks)))
    assert (report.state, report.level, report.format, report.step) == ("verified", "structure", "huggingface", 500)
    assert report.has_optimizer is True
    assert report.loss == 2.5
    assert report.reasons == ()
    assert report.files == len(list((tmp_path / "checkpoint-500").iterdir()))
    assert report.bytes == sum(file.stat().st_size for file in (tmp_path / "checkpoint-500").iterdir())


def test_presence_alone_is_complete_and_never_verified(tmp_path):
    assert inspect(str(make.huggingface(tmp_path, 500)), "presence").state == "complete"


def test_weights_without_an_optimizer_are_said_to_have_none(tmp_path):
    report = inspect(str(make.huggingface(tmp_path, 500, optimizer=False)))
    assert (report.state, report.has_optimizer) == ("verified", False)
    assert "fresh optimizer" in report.reasons[0]


def test_every_file_of_a_hugging_face_checkpoint_cut_short_or_emptied_is_noticed(tmp_path):
    for name, content in make.huggingface_parts(500, shards=2, ranks=2).items():
        for kept in (0, 1, len(content) // 2, len(content) - 1):
            directory = make.huggingface(tmp_path / f"{name}-{kept}", 500, shards=2, ranks=2)
            (directory / name).write_bytes(content[:kept])
            report = inspect(str(directory))
            assert report.state in ("corrupt", "incomplete"), (name, kept, report)
            assert name in " ".join(report.reasons)


def test_every_needed_file_of_a_hugging_face_checkpoint_that_is_gone_makes_it_incomplete(tmp_path):
    for name in make.huggingface_parts(500, shards=3, ranks=2):
        if name in ("config.json", "training_args.bin", "model.safetensors.index.json", "rng_state_1.pth"):
            continue  # not every trainer writes the first two; names alone cannot tell the last two
        directory = make.huggingface(tmp_path / name, 500, shards=3, ranks=2)
        (directory / name).unlink()
        assert inspect(str(directory)).state == "incomplete", name


def test_a_step_that_differs_from_the_directory_is_corrupt(tmp_path):
    directory = make.write_parts(tmp_path / "checkpoint-900", make.huggingface_parts(500))
    report = inspect(str(directory))
    assert report.state == "corrupt"
    assert "step 500" in report.reasons[0]


def test_a_checkpoint_is_known_from_inside_and_under_another_name(tmp_path, monkeypatch):
    directory = make.huggingface(tmp_path, 500)
    (directory / "trainer_state.json").unlink()
    monkeypatch.chdir(directory)
    for path in (".", "../checkpoint-500/", f"{directory}//"):
        report = inspect(path)
        assert (report.state, report.step, report.format) == ("incomplete", 500, "huggingface")
    assert find(".") == ["."]
    directory.rename(tmp_path / "best")
    assert inspect(str(tmp_path / "best")).state == "incomplete"


def test_a_long_training_history_is_read_with_the_structure_only(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    history = [{"step": step, "loss": 2.0, "grad_norm": 1.0} for step in range(30_000)]
    content = json.dumps({"global_step": 500, "log_history": history}).encode()
    (directory / "trainer_state.json").write_bytes(content)
    assert inspect(str(directory), "presence").state == "complete"
    assert (inspect(str(directory)).state, inspect(str(directory)).loss) == ("verified", 2.0)
    (directory / "trainer_state.json").write_bytes(content[:-1])
    assert inspect(str(directory)).state == "corrupt"


def test_an_index_that_names_a_file_outside_is_corrupt_and_never_opened(tmp_path):
    directory = make.huggingface(tmp_path, 500, shards=2)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../../secret"}}))
    report = inspect(str(directory))
    assert report.state == "corrupt"
    assert "outside the checkpoint" in " ".join(report.reasons)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("whole", TORCH, "verified(structure)"),
        ("cut by one byte", TORCH[:-1], "corrupt"),
        ("cut by half", TORCH[: len(TORCH) // 2], "corrupt"),
        ("one byte too many", TORCH + b"\0", "corrupt"),
        ("zero tail of the same size", TORCH[:-300] + bytes(300), "corrupt"),
        ("random after a zip start", b"PK\x03\x04" + bytes(range(251)) * 4, "corrupt"),
        ("empty", b"", "corrupt"),
        ("zero hole in tensor data", TORCH[:-600] + bytes(8) + TORCH[-592:], "verified(structure)"),
    ],
)
def test_damage_to_a_torch_file_is_found_as_far_as_structure_can_see(tmp_path, name, content, expected):
    assert state_of(written(tmp_path / "model.pt", content)) == expected


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("whole", TENSORS, "verified(structure)"),
        ("one byte short", TENSORS[:-1], "corrupt"),
        ("one byte too many", TENSORS + b"\0", "corrupt"),
        ("zero tail of the same size", TENSORS[:-64] + bytes(64), "verified(structure)"),
        ("header byte flipped", TENSORS[:20] + b"\xff" + TENSORS[21:], "corrupt"),
        ("header length of 2^63", struct.pack("<Q", 1 << 63) + TENSORS[8:], "corrupt"),
        ("seven bytes", TENSORS[:7], "corrupt"),
        ("empty", b"", "corrupt"),
        ("no tensors", make.safetensors_from({}), "verified(structure)"),
        ("header is a list", make.safetensors_from([]), "corrupt"),
        ("deep nesting", make.safetensors_from(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "corrupt"),
        ("a key twice", make.safetensors_from(b'{"a":{},"a":{}}'), "corrupt"),
        ("endless number", make.safetensors_from(b'{"a":' + b"9" * 10_000 + b"}"), "corrupt"),
        ("gap", make.safetensors_from({"a": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]}}, bytes(16)), "corrupt"),
        (
            "wrong shape",
            make.safetensors_from({"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
            "corrupt",
        ),
        ("negative", make.safetensors_from({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, -1]}}), "corrupt"),
        ("new dtype", make.safetensors_from({"a": {"dtype": "Q1", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "complete"),
    ],
)
def test_damage_to_a_safetensors_file_is_found_as_far_as_structure_can_see(tmp_path, name, content, expected):
    assert state_of(written(tmp_path / "model.safetensors", content)) == expected


def test_our_verdict_on_safetensors_agrees_with_the_safetensors_package(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    from safetensors import SafetensorError

    whole = written(tmp_path / "ours.safetensors", TENSORS)
    raw = whole.read_bytes()
    safetensors.load(make.safetensors_bytes({"w": ("F32", (8, 4))}))  # our writer is understood by theirs
    theirs = safetensors.save({"x": __import__("numpy").arange(12.0).reshape(3, 4)})
    assert state_of(written(tmp_path / "theirs.safetensors", theirs)) == "verified(structure)"
    for cut in range(0, len(theirs), 7):
        with pytest.raises(SafetensorError):
            safetensors.load(theirs[:cut])
        assert state_of(written(tmp_path / "cut.safetensors", theirs[:cut])) == "corrupt"
    assert raw == TENSORS


def test_all_checksums_zero_means_none_were_recorded(tmp_path):
    raw = bytearray(TORCH)
    for signature, offset in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset : at + offset + 4] = bytes(4)
            at = raw.find(signature, at + 4)
    assert state_of(written(tmp_path / "model.pt", bytes(raw))) == "verified(structure)"


class _Payload:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_pickle_that_would_run_a_command_is_named_and_never_run(tmp_path):
    proof = tmp_path / "ran"
    for protocol in (0, 2, 4, 5):
        raw = pickle.dumps({"optimizer": _Payload(f"touch {proof}")}, protocol=protocol)
        report = inspect(str(written(tmp_path / "model.pt", make.torch_zip_bytes(pickled=raw, storages=()))))
        assert report.state == "corrupt"
        assert "system" in report.reasons[0]
    assert not proof.exists()


def test_a_class_nobody_knows_is_not_called_verified(tmp_path):
    raw = b"cmy_company.models\nSecret\n)R."
    report = inspect(str(written(tmp_path / "model.pt", make.torch_zip_bytes(pickled=raw, storages=()))))
    assert (report.state, report.level) == ("complete", "presence")
    assert "my_company.models.Secret" in report.reasons[0]


@pytest.mark.parametrize("raw", [b"(.", b"N(.", b"NN.", b".", b"N", b"", b"0.", b"h\x05.", b"\x85.", b"Nt.", b"N\x93."])
def test_opcodes_that_do_not_fit_together_are_corrupt(tmp_path, raw):
    report = inspect(str(written(tmp_path / "model.pt", make.torch_zip_bytes(pickled=raw, storages=()))))
    assert report.state == "corrupt"


def test_a_pickle_longer_than_what_is_looked_at_is_not_called_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("trainvitals.checkpoints.pickle_scan.MAX_OPCODES", 100)
    raw = b"N" + b"N0" * 50 + b"."
    report = inspect(str(written(tmp_path / "model.pt", make.torch_zip_bytes(pickled=raw, storages=()))))
    assert (report.state, report.level) == ("complete", "presence")


def test_zip64_directories_are_read(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", make.torch_pickle({"optimizer": 1}))
        for number in range(66_000):
            archive.writestr(f"archive/data/{number}", b"")
    assert inspect(str(path)).state == "verified"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    assert inspect(str(path)).state == "corrupt"


def test_the_optimizer_is_seen_in_the_keys_of_a_single_file(tmp_path):
    both = written(tmp_path / "ckpt_100.pt", make.torch_zip_bytes({"model": {}, "optimizer": {}, "iter_num": 100}))
    weights = written(tmp_path / "ckpt_200.pt", make.torch_zip_bytes({"model": {}}))
    assert [inspect(str(path)).has_optimizer for path in (both, weights)] == [True, False]
    assert [inspect(path).step for path in find(str(tmp_path))] == [100, 200]


def test_a_tensor_storage_that_is_missing_or_short_is_found(tmp_path):
    for change in ("drop", "shorten"):
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(TORCH)) as source, zipfile.ZipFile(buffer, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                if name == "archive/data/1":
                    if change == "drop":
                        continue
                    content = content[:-4]
                target.writestr(name, content)
        report = inspect(str(written(tmp_path / "model.pt", buffer.getvalue())))
        assert report.state == "corrupt"
        assert "tensor storage 1" in report.reasons[0]


def test_the_legacy_torch_format_is_recognised_but_not_proven(tmp_path):
    legacy = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2) + b"rest"
    report = inspect(str(written(tmp_path / "old.pth", legacy)))
    assert (report.state, report.level) == ("complete", "presence")
    assert "legacy" in report.reasons[0]


def test_a_zip_bomb_costs_neither_memory_nor_time(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(200_000_000))
    tracemalloc.start()
    try:
        assert inspect(str(path)).state == "complete"
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_special_files_and_links_out_are_named_and_never_opened(tmp_path):
    secret = written(tmp_path / "secret", b"{}")
    directory = make.huggingface(tmp_path / "run", 500)
    (directory / "optimizer.pt").unlink()
    os.mkfifo(directory / "optimizer.pt")
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to(secret)
    (directory / "generation_config.json").symlink_to("/dev/zero")
    (directory / "more").symlink_to("/")
    report = inspect(str(directory))
    assert report.state == "incomplete"
    assert {reason.split()[0] for reason in report.reasons} >= {"optimizer.pt", "config.json", "generation_config.json", "more"}


def test_a_link_to_a_file_beside_it_is_followed(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    blob = tmp_path / "blobs"
    blob.mkdir()
    (directory / "model.safetensors").rename(blob / "abc")
    (directory / "model.safetensors").symlink_to("../blobs/abc")
    assert state_of(directory) == "verified(structure)"


def test_names_with_newlines_and_bytes_that_are_no_text_stay_on_one_line(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    Path(os.fsdecode(os.fsencode(directory) + b"/bad\n\xff\x1b[31m.safetensors")).write_bytes(b"")
    report = inspect(str(directory))
    assert report.state == "corrupt"
    assert report.reasons[0].isprintable()
    report.reasons[0].encode()


def test_unknown_layouts_say_what_was_seen(tmp_path):
    directory = make.write_parts(tmp_path / "step_100" / "inner", {".metadata": b"x", "__0_0.distcp": b"y"})
    report = inspect(str(directory.parent))
    assert (report.state, report.step) == ("unknown_format", 100)
    assert "PyTorch distributed" in report.reasons[0]
    other = make.write_parts(tmp_path / "global_step5", {"readme.txt": b"x"})
    assert "readme.txt" in inspect(str(other)).reasons[0]


def test_levels_that_there_are_not_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="use one of presence, structure, content, load"):
        inspect(str(tmp_path), "certainty")
    with pytest.raises(InputError, match="there is no such file"):
        inspect(str(tmp_path / "nothing"))


def test_checkpoints_of_several_kinds_are_found_and_links_are_not(tmp_path):
    make.huggingface(tmp_path, 1000)
    make.huggingface(tmp_path, 500)
    written(tmp_path / "epoch=1-step=700.ckpt", TORCH)
    written(tmp_path / "training_args.bin", TORCH)
    (tmp_path / "last.ckpt").symlink_to("epoch=1-step=700.ckpt")
    (tmp_path / "runs").mkdir()
    names = [Path(path).name for path in find(str(tmp_path))]
    assert names == ["checkpoint-500", "epoch=1-step=700.ckpt", "checkpoint-1000"]
    assert find(str(tmp_path / "checkpoint-500")) == [str(tmp_path / "checkpoint-500")]


def test_sharded_safetensors_in_one_directory_are_one_checkpoint(tmp_path):
    parts = {name: content for name, content in make.huggingface_parts(5, shards=2).items() if "model" in name}
    directory = make.write_parts(tmp_path / "weights", parts)
    assert find(str(directory)) == [str(directory)]
    assert state_of(directory) == "verified(structure)"
    (directory / "model-00002-of-00002.safetensors").unlink()
    assert state_of(directory) == "incomplete"


def test_shards_are_counted_by_their_names_when_there_is_no_index(tmp_path):
    shard = make.safetensors_bytes({"a": ("F32", (2,))})
    names = ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors")
    report = inspect(str(make.write_parts(tmp_path / "weights", dict.fromkeys(names, shard))))
    assert report.state == "incomplete"
    assert report.reasons == ("1 of 3 shards are missing, the first is model-00002-of-00003.safetensors",)


def test_a_shard_of_another_model_is_seen_through_the_index(tmp_path):
    directory = make.huggingface(tmp_path, 500, shards=2)
    (directory / "model-00002-of-00002.safetensors").write_bytes(make.safetensors_bytes({"other": ("F32", (4, 4))}))
    report = inspect(str(directory))
    assert report.state == "corrupt"
    assert "1 tensors of the index are not in it, such as layer2.w" in report.reasons[0]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["safetensors", "pt"]))
def test_no_bytes_make_it_raise_and_no_cut_is_verified(tmp_path_factory, data, kind):
    whole = TENSORS if kind == "safetensors" else TORCH
    how = data.draw(st.sampled_from(["random", "cut", "flip", "splice"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    if how == "random":
        content = data.draw(st.binary(max_size=400))
    elif how == "cut":
        content = whole[:at]
    elif how == "flip":
        content = whole[:at] + bytes([whole[at] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[at + 1 :]
    else:
        content = whole[:at] + data.draw(st.binary(min_size=1, max_size=40)) + whole[at:]
    path = tmp_path_factory.getbasetemp() / f"property.{kind}"
    report = inspect(str(written(path, content)))
    if how in ("cut", "splice"):
        assert report.state == "corrupt"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_no_pickle_makes_the_scan_raise(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "pickle.pt"
    inspect(str(written(path, make.torch_zip_bytes(pickled=raw, storages=()))))
