"""A long ``.metadata`` is parsed once; a file that could be another one is parsed again."""

import os
import time

import dcp_makers as make
import pytest

from trainvitals.checkpoints import dcp_cache, dcp_metadata, inspect
from trainvitals.checkpoints.files import opened

LATER_NS = 10_000_000_000


@pytest.fixture
def parses(monkeypatch):
    count = []
    read = dcp_metadata.read

    def counted(source, size):
        count.append(size)
        return read(source, size)

    monkeypatch.setattr(dcp_metadata, "read", counted)
    monkeypatch.setattr(dcp_cache, "REMEMBERED_FROM_BYTES", 1)
    monkeypatch.setattr(dcp_cache, "REMEMBERED", dcp_cache.Remembered(lambda: time.time_ns() + LATER_NS))
    return count


def test_a_look_at_the_same_file_parses_nothing_and_says_the_same(tmp_path, parses):
    directory = make.torchtitan(tmp_path)
    first = inspect(str(directory))
    (directory / "__1_0.distcp").unlink()
    assert str(inspect(str(directory)).state) == "incomplete"
    assert (len(parses), str(first.state)) == (1, "verified")


@pytest.mark.parametrize("way", ["rewritten in place", "renamed into place", "given its old time back"])
def test_a_file_that_was_written_again_with_the_same_length_is_parsed_again(tmp_path, parses, way):
    directory = make.torchtitan(tmp_path)
    path = directory / ".metadata"
    assert str(inspect(str(directory)).state) == "verified"
    before, content = path.stat(), path.read_bytes()
    broken = content[:200] + bytes(len(content) - 200)
    if way == "renamed into place":
        (directory / "new").write_bytes(broken)
        (directory / "new").rename(path)
    else:
        path.write_bytes(broken)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if way == "given its old time back" else 10**9)))
    assert str(inspect(str(directory)).state) == "corrupt"
    assert len(parses) == 2


def test_what_was_just_written_is_not_remembered(tmp_path, parses):
    remembered = dcp_cache.Remembered(lambda: (tmp_path / "step-500" / ".metadata").stat().st_ctime_ns + 1)
    path = make.torchtitan(tmp_path) / ".metadata"
    for _ in range(2):
        with opened(str(path)) as reader:
            remembered.read(reader)
    assert len(parses) == 2


def test_no_more_are_remembered_than_two(tmp_path, parses):
    directories = [make.torchtitan(tmp_path, step) for step in (1, 2, 3)]
    for directory in (*directories, directories[2], directories[1], directories[0]):
        inspect(str(directory))
    assert len(parses) == 4


def test_what_is_too_large_is_remembered_and_what_is_damaged_is_not(tmp_path, parses, monkeypatch):
    directory = make.torchtitan(tmp_path)
    monkeypatch.setattr("trainvitals.checkpoints.pickle_values.MAX_BYTES", 10)
    reasons = {inspect(str(directory)).reasons for _ in range(2)}
    assert (len(parses), len(reasons)) == (1, 1)
    (directory / ".metadata").write_bytes(b"\x80\x04}.")
    for _ in range(2):
        assert str(inspect(str(directory)).state) == "corrupt"
    assert len(parses) == 3
