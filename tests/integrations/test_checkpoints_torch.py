"""Real checkpoints of torch.distributed.checkpoint and Accelerate, saved by two processes (gloo, CPU): read right, then damaged."""

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integrations.roads import TIMEOUT_S, environment

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="needs torch (make test-integrations)")
pytest.importorskip("accelerate", reason="needs accelerate (make test-integrations)")

from trainvitals.checkpoints import dcp_directory, find, inspect  # noqa: E402
from trainvitals.checkpoints.files import listing  # noqa: E402

WORKER = Path(__file__).with_name("save_with_two_ranks.py")
KINDS = {
    "sync": "dcp", "async": "dcp", "per-rank": "dcp", "threads": "dcp", "file-per-tensor": "dcp", "model-only": "dcp",
    "plain": "accelerate", "shards": "accelerate-fsdp", "files": "accelerate-fsdp",
}  # fmt: skip


def save(kind, mode, directory, code=0):
    directory.mkdir(parents=True, exist_ok=True)
    meeting = directory / "meeting"
    meeting.unlink(missing_ok=True)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), kind, mode, str(directory), str(meeting), str(rank)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(),
        )
        for rank in (0, 1)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=TIMEOUT_S)[0].decode(errors="replace") for rank in ranks]
    assert code is None or [rank.returncode for rank in ranks] == [code, code], [text[-2000:] for text in outputs]
    meeting.unlink(missing_ok=True)
    return directory


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Mode -> its checkpoint; each is saved once."""
    made = {}

    def checkpoint(mode):
        if mode not in made:
            (made[mode],) = find(str(save(KINDS[mode], mode, tmp_path_factory.mktemp(mode))))
        return Path(made[mode])

    return checkpoint


@pytest.mark.parametrize("mode", KINDS)
def test_a_real_checkpoint_of_two_ranks_is_verified_with_all_that_is_in_it(saved, mode):
    report = inspect(str(saved(mode)))
    assert (str(report.state), str(report.level), report.reasons) == ("verified", "structure", ())
    assert report.format == ("accelerate" if KINDS[mode].startswith("accelerate") else "dcp")
    assert report.step == (None if mode == "plain" else 500)
    assert report.has_optimizer is (mode != "model-only")
    assert report.has_scheduler is (mode != "model-only")
    assert report.world_size == 2
    assert str(inspect(str(saved(mode)), "presence").state) == "complete"


@pytest.mark.parametrize("mode", KINDS)
def test_each_file_of_it_cut_short_emptied_or_longer_is_noticed(saved, mode, tmp_path):
    source = saved(mode)
    copy = Path(shutil.copytree(source, tmp_path / source.name))
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = file.read_bytes()
        times = file.stat()
        for damaged in (b"", content[: len(content) // 2], content[:-1], content + b"x"):
            if damaged == content + b"x" and file.name.endswith(".metadata"):
                continue  # a pickle ends where it ends; what follows is not read by anybody
            file.write_bytes(damaged)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            report = inspect(str(copy))
            assert report.state in ("corrupt", "incomplete"), (file.name, len(content), len(damaged))
            assert file.name in " ".join(report.reasons)
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert str(inspect(str(copy)).state) == "verified"


@pytest.mark.parametrize("mode", KINDS)
def test_each_missing_file_that_a_load_needs_makes_it_incomplete(saved, mode, tmp_path):
    source = saved(mode)
    for number, file in enumerate(sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())):
        if file.name == "scheduler.bin" or (mode == "plain" and file.name in ("optimizer.bin", "random_states_1.pkl")):
            continue  # not every run has one, and nothing else tells the number of ranks
        copy = Path(shutil.copytree(source, tmp_path / str(number) / source.name))
        (copy / file).unlink()
        assert str(inspect(str(copy)).state) == "incomplete", file


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_save_over_an_older_checkpoint_that_dies_before_its_end_is_never_verified(saved, tmp_path):
    source = saved("sync")
    shutil.copytree(source, tmp_path / "step-500")
    before = (tmp_path / "step-500" / ".metadata").read_bytes()
    assert str(inspect(str(tmp_path / "step-500")).state) == "verified"
    save("dcp", "dies", tmp_path, code=None)
    assert (tmp_path / "step-500" / ".metadata").read_bytes() == before
    report = inspect(str(tmp_path / "step-500"))
    assert str(report.state) != "verified"
    assert "newer than .metadata" in " ".join(report.reasons)
    # This is what torch does with it.
    from torch.distributed import checkpoint as dcp

    state = {"train_state": {"step": torch.tensor(0)}}
    dcp.load(state, checkpoint_id=str(tmp_path / "step-500"), no_dist=True)
    assert state["train_state"]["step"] == 501


def test_every_entry_of_a_real_shard_is_a_zip_of_its_own_and_together_they_are_the_file(saved):
    for mode in ("sync", "threads", "file-per-tensor", "per-rank"):
        found = dcp_directory.ranges(listing(str(saved(mode))))
        assert set(found) == {file.name for file in saved(mode).glob("*.distcp")}
        for name, entries in found.items():
            content = (saved(mode) / name).read_bytes()
            assert sum(length for _, length in entries) == len(content)
            for offset, length in entries:
                assert zipfile.ZipFile(io.BytesIO(content[offset : offset + length])).testzip() is None


def test_what_is_read_of_real_metadata_is_what_torch_reads(saved):
    from torch.distributed.checkpoint import FileSystemReader

    for mode in ("sync", "threads", "model-only"):
        theirs = FileSystemReader(str(saved(mode))).read_metadata()
        (ours,) = dcp_directory.check(listing(str(saved(mode))), dcp_directory.Findings(), into_files=True)
        assert ours.keys == set(theirs.state_dict_metadata)
        for name, tensor in ours.tensors.items():
            described = theirs.state_dict_metadata[name]
            assert (tensor.shape, f"torch.{tensor.dtype}") == (tuple(described.size), str(described.properties.dtype))
        places = {(info.relative_path, info.offset, info.length) for info in theirs.storage_data.values()}
        assert places == {(file, *entry) for file in ours.files for entry in ours.entries(file)}


def test_safetensors_that_dcp_writes_are_read_as_such(tmp_path):
    (path,) = find(str(save("huggingface-storage", "shards", tmp_path)))
    report = inspect(path)
    assert (str(report.state), report.format, report.step, report.has_optimizer) == ("complete", "safetensors", 500, False)
    assert "nothing tells how many ranks there were" in report.reasons[0]


def test_a_directory_under_the_name_of_another_step_is_never_verified(saved, tmp_path):
    for mode in ("sync", "per-rank"):
        copy = shutil.copytree(saved(mode), tmp_path / mode / "step-400")
        report = inspect(str(copy))
        assert str(report.state) == "complete", mode
        assert "train_state.step in it is 500, its name says 400" in " ".join(report.reasons)
