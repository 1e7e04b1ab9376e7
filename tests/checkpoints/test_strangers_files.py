"""Files that no trainer wrote, or that were made to cost memory, beside or in a good checkpoint."""

import os
import pickle
import subprocess
import sys

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.checkpoints import inspect


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("openvino_model.bin", b"\x00\x01raw"),
        ("notes.json", b"// JSON5\n{a: 1,}"),
        ("rows.json", b"{}\n{}\n"),
        ("empty.json", b""),
        ("empty.bin", b""),
    ],
)
def test_a_strangers_file_in_a_good_checkpoint_is_told_and_no_damage(tmp_path, name, content):
    directory = make.huggingface(tmp_path, 500)
    (directory / name).write_bytes(content)
    report = inspect(str(directory))
    assert report.state == "verified"
    assert any(name in reason for reason in report.reasons)


@pytest.mark.parametrize(
    "name", ["config.json", "optimizer.pt", "scheduler.pt", "model.safetensors", "rng_state.pth", "trainer_state.json"]
)
def test_an_empty_file_of_the_trainer_is_damage(tmp_path, name):
    directory = make.huggingface(tmp_path, 500)
    (directory / name).write_bytes(b"")
    assert inspect(str(directory)).state == "corrupt"


def test_a_shard_that_the_index_names_is_never_a_strangers(tmp_path):
    directory = make.huggingface(tmp_path, 500, shards=2)
    file = directory / "model-00002-of-00002.safetensors"
    file.write_bytes(made.flipped(file.read_bytes(), 8))
    assert inspect(str(directory)).state == "corrupt"


@pytest.mark.parametrize("kind", ["dictionaries", "memo", "stack", "tuples"])
def test_a_small_pickle_of_millions_of_objects_costs_no_memory(tmp_path, kind):
    body = {
        "dictionaries": b"}" * 2_900_000, "memo": b"}\x94" * 1_400_000, "stack": b"N" * 2_900_000,
        "tuples": b"N" + b"\x85\x94" * 1_450_000,
    }[kind]  # fmt: skip
    path = tmp_path / "model.pt"
    path.write_bytes(make.torch_zip_bytes(pickled=b"\x80\x04](" + body + b"e."))
    code = (
        "import resource, sys; from trainvitals.checkpoints import inspect;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; state = inspect(sys.argv[1]).state;"
        "print(state, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120, check=True)
    state, kib = ended.stdout.split()
    assert (state, int(kib) < 150_000) == ("complete", True)


def test_a_large_honest_pickle_is_still_scanned(tmp_path):
    state = {"state": {number: {"exp_avg": number, "step": 5.0} for number in range(50_000)}}
    (tmp_path / "model.pt").write_bytes(make.torch_zip_bytes(storages=(), pickled=pickle.dumps(state, 2)))
    assert inspect(str(tmp_path / "model.pt")).state == "verified"


def test_a_strangers_file_of_torch_that_is_damaged_or_runs_code_is_not_overlooked(tmp_path):
    payload = make.torch_zip_bytes(pickled=b"\x80\x02cos\nmkdir\nX\x01\x00\x00\x00a\x85R.")
    for step, content, why in ((500, payload, "os.mkdir"), (600, make.torch_zip_bytes()[:-30], "truncated")):
        directory = make.huggingface(tmp_path, step)
        (directory / "value_head.pt").write_bytes(content)
        report = inspect(str(directory))
        assert report.state == "corrupt" and why in report.reasons[0]


@pytest.mark.parametrize(
    ("name", "state"),
    [("tokenizer.json", "verified"), ("README.md", "verified"), ("fifo", "verified"), ("config.json", "incomplete"),
     ("scheduler.pt", "incomplete"), ("trainer_state.json", "incomplete")],
)  # fmt: skip
def test_a_link_out_or_a_pipe_in_the_place_of_a_file_without_state_is_told_only(tmp_path, name, state):
    directory = make.huggingface(tmp_path, 500)
    (directory / name).unlink(missing_ok=True)
    if name == "fifo":
        os.mkfifo(directory / name)
    else:
        (directory / name).symlink_to("/somewhere/else")
    report = inspect(str(directory))
    assert report.state == state and name in report.reasons[0]


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_a_strangers_json_is_told_only_in_a_directory_of_an_unknown_maker_too(tmp_path, kind):
    directory = tmp_path / "step_5"
    directory.mkdir()
    if kind == "torch":
        (directory / "model.pt").write_bytes(make.torch_zip_bytes())
    else:
        (directory / "model.safetensors").write_bytes(make.safetensors_bytes({"w": ("F32", (8, 4))}))
    (directory / "notes.json").write_text("// a comment")
    report = inspect(str(directory))
    assert report.state == "verified" and "notes.json" in report.reasons[0]
    (directory / "config.json").write_bytes(b"")
    assert inspect(str(directory)).state == "corrupt"
