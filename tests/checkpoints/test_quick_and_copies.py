import json
import os
import random
import shutil

import checkpoint_makers as make
import content_makers as made
import pytest
from test_content_level import looked

from trainvitals.__main__ import main
from trainvitals.checkpoints.copy_check import compare
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.quick_check import quick_check
from trainvitals.clock import ManualClock


def quick(directory, record, **options):
    return quick_check(str(directory), record, ManualClock(), **options)


def test_what_was_verified_and_is_as_it_was_passes_within_a_minute(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path, 500)
    _, record = looked(directory)
    report = quick(directory, record)
    assert (report.state, report.level, report.proof) == ("verified", "content", "manifest")
    assert "quick: sizes and times of 7 files, 7 parts hashed again" in report.reasons


def test_hashes_of_one_look_only_pass_as_structure(tmp_path):
    directory = make.huggingface(tmp_path, 500)
    _, record = looked(directory)
    assert quick(directory, record).level == "structure"
    _, record = looked(directory, record)
    report = quick(directory, record)
    assert (report.level, report.proof) == ("content", "first_seen")


@pytest.mark.parametrize("change", ["sampled byte", "size", "gone", "time"])
def test_what_changed_since_then_is_told(tmp_path, change):
    directory = made.huggingface_with_manifest(tmp_path, 500, shards=2)
    _, record = looked(directory)
    file = directory / "model-00002-of-00002.safetensors"
    before = file.stat()
    if change == "sampled byte":
        file.write_bytes(made.flipped(file.read_bytes(), before.st_size - 2))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "size":
        (directory / "trainer_state.json").write_bytes((directory / "trainer_state.json").read_bytes() + b" ")
    elif change == "gone":
        (directory / "config.json").unlink()
    else:
        os.utime(file, (1, 1))
    report = quick(directory, record)
    if change == "time":
        # The manifest still proves the file that has a new time.
        assert (report.state, report.level) == ("verified", "content")
        assert "new modification time" in " ".join(report.reasons)
    else:
        assert report.state == ("incomplete" if change == "gone" else "corrupt")


def test_time_that_runs_out_is_told_and_nothing_is_claimed_that_was_not_read(tmp_path):
    directory = made.huggingface_with_manifest(tmp_path, 500)
    report = quick(directory, HashRecord(str(directory)), limit_s=0.0)
    assert report.level == "structure"
    assert "left for lack of time" in report.reasons[1] + report.reasons[0]
    report = quick(directory, HashRecord(str(directory)), generator=random.Random(1))
    assert (report.level, report.proof) == ("content", "manifest")


def test_a_copy_is_compared_with_the_manifest_of_its_original_or_byte_by_byte(tmp_path):
    for has_manifest in (True, False):
        local = (made.huggingface_with_manifest if has_manifest else make.huggingface)(tmp_path / f"local{has_manifest}", 500)
        shared = tmp_path / f"shared{has_manifest}" / "checkpoint-500"
        shutil.copytree(local, shared)
        result = compare(str(local), str(shared), Pace(ManualClock()))
        assert (result.is_equal, result.by) == (True, "manifest" if has_manifest else "both copies read")
        file = shared / "optimizer.pt"
        file.write_bytes(made.flipped(file.read_bytes(), 700))
        result = compare(str(local), str(shared), Pace(ManualClock()))
        assert not result.is_equal
        assert "optimizer.pt" in result.reasons[0]
        file.unlink()
        assert compare(str(local), str(shared), Pace(ManualClock())).reasons == ("optimizer.pt is not in the copy",)


def test_the_command_compares_copies(tmp_path, capsys):
    local = made.huggingface_with_manifest(tmp_path / "local", 500)
    shared = tmp_path / "shared"
    shutil.copytree(local, shared)
    assert main(["checkpoint", "compare", str(local), str(shared), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True
    (shared / "optimizer.pt").write_bytes(b"x")
    assert main(["checkpoint", "compare", str(local), str(shared)]) == 1
    assert "NOT equal" in capsys.readouterr().out
    assert main(["checkpoint", "compare", str(local)]) == 2
    assert main(["checkpoint", "verify", str(local), str(shared)]) == 2


def test_the_command_keeps_hashes_and_looks_quickly_before_a_resume(tmp_path, capsys):
    made.huggingface_with_manifest(tmp_path / "c", 500)
    record = str(tmp_path / "kept")
    assert main(["checkpoint", "verify", str(tmp_path / "c"), "--level", "content", "--record", record, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["level"], first["proof"]) == ("content", "manifest")
    assert main(["checkpoint", "verify", str(tmp_path / "c"), "--quick", "--record", record]) == 0
    assert "parts hashed again" in capsys.readouterr().out
    make.huggingface(tmp_path / "other", 700)
    assert main(["checkpoint", "verify", str(tmp_path / "other"), "--quick", "--record", record]) == 2
    assert "not verified before: " in capsys.readouterr().out
    deep = ["checkpoint", "verify", str(tmp_path / "other"), "--level", "content", "--record", record]
    assert main(deep) == 0
    assert "1 of 1 did not reach level content" in capsys.readouterr().err
    assert main(["checkpoint", "verify", str(tmp_path / "other"), "--quick", "--record", record]) == 2
    assert "once more" in capsys.readouterr().out
    assert main(deep) == 0
    assert "did not reach" not in capsys.readouterr().err
    assert main(["checkpoint", "verify", str(tmp_path / "other"), "--quick", "--record", record]) == 0
    (tmp_path / "c" / "checkpoint-500" / "optimizer.pt").write_bytes(b"")
    assert main(["checkpoint", "verify", str(tmp_path / "c"), "--quick", "--record", record]) == 1


def test_nodes_share_the_work_and_one_merges_it(tmp_path, capsys):
    make.huggingface(tmp_path / "c", 500, shards=4)
    made.write_manifest(tmp_path / "c" / "checkpoint-500", 500)
    shares, arguments = str(tmp_path / "shares"), ["checkpoint", "verify", str(tmp_path / "c"), "--level", "content"]
    for number in (1, 2, 3):
        assert main([*arguments, "--share", f"{number}/3", "--record", shares]) == 0
    assert "the rest is another share" in capsys.readouterr().out
    assert len(os.listdir(shares)) == 3
    assert main([*arguments, "--merge", shares, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["level"] == "content"


@pytest.mark.parametrize(
    "arguments",
    [["--share", "4/3"], ["--share", "x"], ["--share", "1/2"], ["--share", "1/2", "--record", "r", "--level", "load"],
     ["--quick", "--level", "content"], ["--merge", "/nothing/there"], ["--mb-per-s", "-1"]],
)  # fmt: skip
def test_arguments_that_do_not_fit_together_are_exit_code_2(tmp_path, capsys, arguments):
    make.huggingface(tmp_path, 500)
    arguments = [*arguments, "--level", "content"] if arguments[-1] in ("1/2", "4/3") else arguments
    assert main(["checkpoint", "verify", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err
