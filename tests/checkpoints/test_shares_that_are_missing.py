"""What is said when the records of some nodes are not there: whoever merges reads in their place, and that takes hours."""

import json
import os

import checkpoint_makers as make
import content_makers as made
import pytest

from trainvitals.__main__ import main


@pytest.fixture
def shared(tmp_path):
    """(arguments of the look, directory of the shares), of three nodes."""
    make.huggingface(tmp_path / "c", 500, shards=4)
    made.write_manifest(tmp_path / "c" / "checkpoint-500", 500)
    arguments, shares = ["checkpoint", "verify", str(tmp_path / "c"), "--level", "content"], tmp_path / "shares"
    for number in (1, 2, 3):
        assert main([*arguments, "--share", f"{number}/3", "--record", str(shares)]) == 0
    return arguments, shares


def merged(arguments, shares, capsys):
    capsys.readouterr()
    assert main([*arguments, "--merge", str(shares), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["level"] == "content"
    return [reason for reason in report["reasons"] if "read here" in reason]


def test_nothing_is_said_when_all_are_there(shared, capsys):
    assert merged(*shared, capsys) == []


def test_the_share_that_is_missing_is_named(shared, capsys):
    arguments, shares = shared
    next(file for file in shares.iterdir() if ".share-2-of-3." in file.name).unlink()
    assert merged(arguments, shares, capsys) == ["--merge has no record of share 2/3: its files were read here"]


def test_so_are_several_and_the_last(shared, capsys):
    arguments, shares = shared
    for file in list(shares.iterdir()):
        if ".share-1-" not in file.name:
            file.unlink()
    assert merged(arguments, shares, capsys) == ["--merge has no record of share 2/3, 3/3: their files were read here"]


def test_a_checkpoint_of_which_there_is_no_record_is_told(shared, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    (reason,) = merged(shared[0], tmp_path / "none", capsys)
    assert reason == "no record of --merge is of this checkpoint: all its files were read here"


def test_a_file_that_changed_after_its_share_is_told(shared, tmp_path, capsys):
    file = tmp_path / "c" / "checkpoint-500" / "optimizer.pt"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    (reason,) = merged(*shared, capsys)
    assert reason == "1 file changed after a share had looked: read here"
