"""Checkpoints that the real DeepSpeed and the real Megatron-Core save with two processes (gloo, CPU): read right, then damaged."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integrations.roads import TIMEOUT_S, environment
from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.resume_choice import choose_all

pytestmark = pytest.mark.integration
WORKER = Path(__file__).with_name("save_large_run.py")
LIBRARIES = {"deepspeed": "deepspeed", "megatron": "megatron.core"}
#: What was saved -> (library, format, step, ranks).
SAVED = {
    "stage-1": ("deepspeed", "deepspeed", 3, 2),
    "stage-3": ("deepspeed", "deepspeed", 3, 2),
    "pipeline": ("deepspeed", "deepspeed", 0, 2),
    "torch_dist": ("megatron", "megatron_dist", 500, 2),
}


def is_there(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Library -> what it saved; both ranks of a library are started once."""
    made = {}

    def of(library):
        if not is_there("torch") or not is_there(LIBRARIES[library]):
            pytest.skip(f"needs {library} (make test-integrations)")
        if library not in made:
            root = tmp_path_factory.mktemp(library)
            ranks = [
                subprocess.Popen(
                    [sys.executable, str(WORKER), library, str(root / "run"), str(root / "meeting"), str(rank)],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(),
                )
                for rank in (0, 1)
            ]  # fmt: skip
            try:
                outputs = [rank.communicate(timeout=TIMEOUT_S)[0].decode(errors="replace") for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
            assert [rank.returncode for rank in ranks] == [0, 0], outputs[0][-3000:]
            made[library] = root / "run"
        return made[library]

    return of


@pytest.fixture(params=SAVED)
def saved(request, runs):
    library, *expected = SAVED[request.param]
    root = runs(library) / request.param if library == "deepspeed" else runs(library)
    return root, *expected


def checkpoint_in(root):
    (path,) = find(str(root))
    return Path(path)


def copied(source, parent):
    return Path(shutil.copytree(source, parent / source.name))


def files_in(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


def rewrite(file, content):
    """Other bytes at the same time: what a bad disk leaves."""
    times = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_it_is_read_right(saved):
    root, form, step, ranks = saved
    report = inspect(str(checkpoint_in(root)), "content")
    assert (report.format, report.step, report.world_size) == (form, step, ranks), report
    assert (str(report.state), report.has_optimizer) == ("verified", True), report
    (choice,) = choose_all([report])
    assert (choice.step, choice.problem) == (step, "")


def test_each_file_that_is_cut_short_or_emptied_is_seen(saved, tmp_path):
    copy = copied(checkpoint_in(saved[0]), tmp_path)
    for file in files_in(copy):
        content = file.read_bytes()
        for damaged in (b"", content[: len(content) // 2], content[:-1]):
            rewrite(file, damaged)
            report = inspect(str(copy))
            assert str(report.state) in ("corrupt", "incomplete"), (file.name, len(content), len(damaged))
            assert file.name in " ".join(report.reasons), (file.name, report.reasons)
        rewrite(file, content)
    assert str(inspect(str(copy)).state) == "verified"


def test_each_file_that_is_missing_is_seen(saved, tmp_path):
    copy = copied(checkpoint_in(saved[0]), tmp_path)
    for file in files_in(copy):
        if file.name == "layer_02-model_states.pt":
            continue  # a layer without parameters: one that is no module has no file either, and nothing tells them apart
        hidden = file.rename(tmp_path / "hidden")
        report = inspect(str(copy))
        assert str(report.state) == "incomplete", (file.name, report)
        hidden.rename(file)


def test_a_flipped_bit_in_any_shard_is_seen_at_level_content(saved, tmp_path):
    copy = copied(checkpoint_in(saved[0]), tmp_path)
    for file in files_in(copy):
        if file.suffix not in (".pt", ".distcp"):
            continue
        content = file.read_bytes()
        # Inside the last tensor: the directory of the zip stands at the end.
        at = content.rindex(b"PK\x07\x08") - 1 if b"PK\x07\x08" in content else len(content) // 2
        rewrite(file, content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
        assert str(inspect(str(copy), "content").state) == "corrupt", file.name
        rewrite(file, content)


def test_a_shard_that_is_newer_than_the_metadata_of_megatron_is_never_verified(runs, tmp_path):
    copy = copied(checkpoint_in(runs("megatron")), tmp_path)
    shard = next(copy.glob("*.distcp"))
    later_ns = (copy / ".metadata").stat().st_mtime_ns + 600 * 10**9
    os.utime(shard, ns=(later_ns, later_ns))
    report = inspect(str(copy))
    assert str(report.state) == "complete"
    assert "newer than .metadata" in " ".join(report.reasons)


def test_a_rank_that_saved_another_step_is_seen(runs, tmp_path):
    """Two attempts into one directory: each rank writes its own files."""
    copy = copied(checkpoint_in(runs("deepspeed") / "stage-3"), tmp_path)
    file = copy / "zero_pp_rank_1_mp_rank_00_model_states.pt"
    torch = pytest.importorskip("torch")
    state = torch.load(file, weights_only=False)
    torch.save({**state, "global_steps": 2}, file)
    report = inspect(str(copy))
    assert str(report.state) == "corrupt"
    assert "two saves are mixed" in " ".join(report.reasons)


def test_the_optimizer_of_a_smaller_run_beside_the_model_is_seen(runs, tmp_path):
    copy = copied(checkpoint_in(runs("deepspeed") / "stage-1"), tmp_path)
    (copy / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    report = inspect(str(copy))
    assert str(report.state) == "incomplete"
    assert "optim_states of 1 ranks are missing" in " ".join(report.reasons)
