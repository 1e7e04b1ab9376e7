"""What `Recorder.describe` writes: complete, masked, bounded, and never an exception."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.hook import Recorder, git, metadata
from trainvitals.hook.flatten import canonical_sha256, flatten
from trainvitals.hook.metadata import parts


def described(recorder):
    """Sections as a reader puts them together; every line is a whole JSON object of at most 48 KiB."""
    recorder.close()
    sections, pieces = {}, {}
    for line in pathlib.Path(recorder.path).read_bytes().splitlines():
        assert len(line) <= 48 * 1024
        record = json.loads(line)
        if record["type"] != "event" or record["kind"] != "metadata":
            continue
        data = record["data"]
        if data["part"] == 0:
            pieces = {}
        pieces[data["part"]] = data["values"]
        if len(pieces) == data["parts"]:
            sections[data["section"]] = {k: v for part in pieces.values() for k, v in part.items()}
    return sections


@pytest.fixture
def make(tmp_path, monkeypatch):
    # On a busy machine half a second is soon gone.
    monkeypatch.setattr(metadata, "flatten", functools.partial(flatten, budget_s=60))
    made = []

    def recorder(**options):
        made.append(Recorder(tmp_path, **{"run": "r", "writer": "direct"} | options))
        return made[-1]

    yield recorder
    for one in made:
        one.close()


@dataclasses.dataclass
class Optimizer:
    lr: float = 3e-4
    betas: tuple = (0.9, 0.95)


class Precision(enum.Enum):
    BF16 = "bf16"


@dataclasses.dataclass
class Config:
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    precision: Precision = Precision.BF16
    data: pathlib.Path = pathlib.Path("/data/web")
    hub_token: str = "plain-words"


def test_a_nested_configuration_becomes_flat_keys_with_secrets_masked(make):
    recorder = make()
    recorder.describe(Config())
    config = described(recorder)["config"]
    digest = config.pop("config_sha256")
    assert config == {
        "optimizer.lr": 3e-4, "optimizer.betas": "[0.9, 0.95]", "precision": "bf16", "data": "/data/web", "hub_token": "***",
    }  # fmt: skip
    assert digest == canonical_sha256(config)


def test_argparse_to_dict_and_imported_modules_are_configurations_too():
    class TrainingArguments:
        def to_dict(self):
            return {"learning_rate": 1e-4, "hub_token": "<HUB_TOKEN>"}

    module = type(sys)("config")
    module.batch_size = 12
    assert flatten(argparse.Namespace(lr=1.0, api_key="x")).values == {"lr": 1.0, "api_key": "***"}
    assert flatten(TrainingArguments()).values == {"learning_rate": 1e-4, "hub_token": "***"}
    assert flatten(module).values == {"batch_size": 12}


def test_a_configuration_whose_conversion_fails_is_read_field_by_field():
    @dataclasses.dataclass
    class Arguments:
        lr: float = 1e-4
        dtype: str = "bf16"
        never: int = dataclasses.field(init=False)

        def to_dict(self):
            raise RuntimeError("no")

    assert flatten({"a": Arguments()}).values == {"a.lr": 1e-4, "a.dtype": "bf16", "a.never": "<AttributeError>"}


def test_a_key_of_weights_and_biases_is_known_by_its_name_and_length():
    digest = "0123456789" * 4
    assert flatten({"wandb": digest, "wandb_run": "llama", "commit": digest}).values == {
        "wandb": "***", "wandb_run": "llama", "commit": digest,
    }  # fmt: skip


def test_an_installed_command_is_looked_for_in_the_directory_where_it_was_started(repository, tmp_path, monkeypatch, make):
    place, _ = repository
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "command")])
    monkeypatch.chdir(place)
    recorder = make()
    recorder.describe()
    assert described(recorder)["git"]["branch"] == "main"


def test_the_hash_of_the_configuration_does_not_depend_on_a_secret():
    first, second = ({"lr": 1, "wandb": {"api_key": key}} for key in ("abc", "def"))
    assert canonical_sha256(flatten(first).values) == canonical_sha256(flatten(second).values)


class Raises:
    def __repr__(self):
        raise RuntimeError("no")

    __str__ = __repr__

    def __getattr__(self, name):
        raise RuntimeError("no")


def test_exotic_objects_are_named_by_their_type(make):
    cycle = {"lr": 1.0}
    cycle["self"] = cycle
    deep = current = {}
    for _ in range(5_000):
        current["d"] = {}
        current = current["d"]
    recorder = make()
    recorder.describe(
        {
            "bad": Raises(), "cycle": cycle, "deep": deep, "text": "x" * 10_000_000, "number": 10**5_000, "nan": float("nan"),
            "half": "\ud800", 5: 6, None: {1, 2}, "bytes": b"abc", "function": flatten, "object": object(), "list": list(range(1000)),
        }
    )  # fmt: skip
    config = described(recorder)["config"]
    assert config["bad"] == "<Raises>" and config["cycle.self"] == "<cycle>" and config["nan"] == "nan"
    assert config["object"] == "<builtins.object>" and config["5"] == 6 and config["bytes"] == "<3 bytes>"
    assert config["text"].startswith("xxx") and "10000000 characters" in config["text"] and len(config["text"]) <= 1_000
    assert config["config_keys_failed"] >= 1
    assert recorder.lost == 0 and recorder.errors == 0


def test_a_mapping_without_end_and_a_hostile_one_do_not_stop_the_trainer(make):
    class Endless(dict):
        def __iter__(self):
            return (f"k{n}" for n in itertools.count())

    class Hostile(dict):
        def keys(self):
            raise RuntimeError("no")

        def __iter__(self):
            raise RuntimeError("no")

    recorder = make()
    recorder.describe(Endless(), endless=Endless())
    recorder.describe(Hostile(a=1), layout=Raises(), ranks=5, script=object(), fact=Raises())
    recorder.log(1, loss=1.0)
    recorder.close()
    assert '"step":1' in pathlib.Path(recorder.path).read_text()
    assert recorder.errors >= 1


def test_an_object_that_prints_its_address_is_the_same_at_every_start():
    class Scheduler:
        def __repr__(self):
            return f"<Scheduler at {hex(id(self))}>"

    assert flatten({"a": Scheduler()}).values == flatten({"a": Scheduler()}).values


def test_arrays_are_told_by_type_and_shape_and_are_never_read():
    class Tensor:
        dtype, shape = property(lambda _: "float32"), property(lambda _: (2, 3))

        def __repr__(self):
            raise AssertionError("this would wait for the device")

    assert flatten({"t": Tensor()}).values == {"t": "<Tensor float32 [2, 3]>"}


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5), max_leaves=30,
))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_whatever_json_holds_becomes_flat_plain_values_in_whole_parts(content):
    values = flatten(content).values
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    joined = {}
    for part in parts(values):
        joined |= part
    assert joined == values


def test_parts_are_bounded_and_what_is_beyond_the_limit_is_said():
    values = {f"key{n}": "v" * 900 for n in range(1_000)}
    found = parts(values)
    assert all(len(json.dumps(part)) <= 33 * 1024 for part in found)
    assert sum(len(json.dumps(part)) for part in found) <= 258 * 1024
    assert found[-1]["keys_beyond_limit"] == 1_000 - (sum(map(len, found)) - 1)


def test_a_large_configuration_is_written_in_parts_that_a_reader_joins(make):
    recorder = make()
    recorder.describe({f"key{n}": "v" * 200 for n in range(600)})
    config = described(recorder)["config"]
    assert len(config) == 601


def test_ranks_say_host_local_rank_and_gpu(make):
    recorder = make()
    ranks = [{"rank": n, "host": f"node{n // 8}", "local_rank": n % 8, "gpu_uuid": f"GPU-{n:08d}"} for n in range(5_120)]
    recorder.describe(ranks=ranks)
    found = described(recorder)["ranks"]
    assert found["12"] == "node1/4/GPU-00000012" and len(found) == 5_120


def test_facts_and_layout_have_sections_of_their_own_and_a_later_call_replaces_them(make):
    recorder = make(world_size=64)
    recorder.describe(layout={"tp": 8, "pp": 2}, precision="bf16", tokens_per_step=4_000_000)
    recorder.describe(layout={"tp": 4}, precision="fp8")
    found = described(recorder)
    assert found["layout"] == {"world_size": 64, "tp": 4}
    assert found["training"] == {"precision": "fp8"}


def test_the_surroundings_are_looked_up_once_in_a_thread(make, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[01-16]")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("WANDB_API_KEY", "private")
    monkeypatch.setenv("TORCH_HUB_TOKEN", "private")
    monkeypatch.setattr(sys, "argv", [__file__, "--token", "abc"])
    recorder = make()
    recorder.describe({"lr": 1})
    recorder.describe({"lr": 2})
    found = described(recorder)
    assert found["config"]["lr"] == 2
    assert found["job"] == {"scheduler": "slurm", "id": 4711, "hostlist": "node[01-16]"}
    assert found["environment"]["NCCL_DEBUG"] == "INFO" and found["environment"]["TORCH_HUB_TOKEN"] == "***"
    assert not any("private" in str(value) for value in found["environment"].values())
    assert found["script"]["path"] == __file__ and len(found["script"]["sha256"]) == 64
    assert found["script"]["argv"].endswith("--token ***")
    assert found["software"]["python"].startswith("3.")
    assert "numpy" in found["packages"]
    text = pathlib.Path(recorder.path).read_text()
    assert text.count('"section": "script"') == 1 and '"job":"4711"' in text.splitlines()[0]


def test_a_look_up_that_hangs_keeps_neither_the_trainer_nor_its_end(make, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(metadata, "CLOSE_WAIT_S", 0.05)
    monkeypatch.setattr(metadata, "describe_git", lambda *_: answers.wait(60) and {})
    recorder = make()
    recorder.describe({"lr": 1})
    recorder.close()
    assert not answers.is_set() and recorder.errors == 1
    answers.set()


def test_a_read_only_directory_costs_the_metadata_and_nothing_else(tmp_path):
    place = tmp_path / "file"
    place.write_text("no directory")
    recorder = Recorder(place / "x", writer="direct")
    recorder.describe({"lr": 1})
    recorder.close()
    assert recorder.lost >= 1


def test_a_forked_child_writes_no_metadata_of_its_own(make):
    recorder = make()
    recorder.describe({"lr": 1})
    pid = os.fork()
    if pid == 0:
        recorder.log(1, loss=1.0)
        recorder.close()
        os._exit(0)
    os.waitpid(pid, 0)
    child = pathlib.Path(recorder.path).with_name(f"metrics.rank00000.pid{pid}.jsonl").read_text()
    assert "metadata" not in child and '"step":1' in child


def test_describe_after_close_is_counted(make):
    recorder = make()
    recorder.close()
    recorder.describe({"lr": 1})
    assert recorder.lost == 1


# -- git ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    place = tmp_path / "code"
    place.mkdir()

    def run(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=place, check=True, capture_output=True
        )

    run("init", "-b", "main")
    (place / "train.py").write_text("print(1)\n")
    run("add", ".")
    run("commit", "-m", "x")
    return place, run


def test_git_tells_commit_branch_and_what_was_changed_since(repository):
    place, _ = repository
    clean = git.describe_git(str(place), 10)
    assert len(clean["commit"]) == 40 and clean["branch"] == "main" and clean["dirty"] is False
    (place / "train.py").write_text("print(2)\n")
    dirty = git.describe_git(str(place), 10)
    assert dirty["dirty"] is True and "train.py" in dirty["diffstat"] and "1 insertion" in dirty["diffstat"]


def test_a_repository_cannot_make_us_run_a_program(repository, tmp_path):
    place, run = repository
    proof = tmp_path / "ran"
    program = f"touch {proof}; cat"
    run("config", "core.fsmonitor", program)
    run("config", "diff.external", program)
    run("config", "filter.evil.clean", program)
    run("config", "filter.evil.process", program)
    run("config", "filter.evil.required", "true")
    run("config", "diff.evil.textconv", program)
    run("config", "core.pager", program)
    (place / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    (place / "train.py").write_text("print(3)\n")
    found = git.describe_git(str(place), 10)
    assert found["dirty"] is True and not proof.exists()


def test_without_a_repository_the_section_says_so(tmp_path):
    assert "repository" in git.describe_git(str(tmp_path), 10)["unavailable"]
    assert "unavailable" in git.describe_git(str(tmp_path / "gone"), 10)
    assert "time" in git.describe_git(str(tmp_path), 0)["unavailable"]


def test_a_git_that_hangs_is_killed_with_its_children(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "git"
    fake.write_text("#!/bin/sh\nsleep 60 & wait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    began_s = time.monotonic()
    assert "did not answer" in git.describe_git(str(tmp_path), 0.3)["unavailable"]
    assert time.monotonic() - began_s < 5
