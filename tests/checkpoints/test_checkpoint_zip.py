"""Zip files that torch never writes and an attacker or a bad disk does."""

import os
import struct

import checkpoint_makers as make
import pytest

from trainvitals.checkpoints import files, inspect

TORCH = make.torch_zip_bytes()


def reasons_of(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    report = inspect(str(path))
    assert report.state == "corrupt"
    return report.reasons[0]


def patched(signature, number, offset, value):
    """TORCH with bytes replaced at ``offset`` in the ``number``-th record that starts with ``signature``."""
    raw = bytearray(TORCH)
    at = -1
    for _ in range(number + 1):
        at = raw.find(signature, at + 1)
    raw[at + offset : at + offset + len(value)] = value
    return bytes(raw)


def test_a_member_whose_own_header_has_another_name(tmp_path):
    assert "another name" in reasons_of(tmp_path, patched(b"PK\x03\x04", 1, 30, b"A"))


def test_a_member_whose_header_is_gone(tmp_path):
    assert "no header" in reasons_of(tmp_path, patched(b"PK\x03\x04", 1, 0, b"XX"))


def test_a_member_that_runs_into_the_directory(tmp_path):
    long = struct.pack("<II", 1 << 20, 1 << 20)
    assert "runs into" in reasons_of(tmp_path, patched(b"PK\x01\x02", 2, 20, long))


def test_a_member_with_two_sizes(tmp_path):
    assert "two different sizes" in reasons_of(tmp_path, patched(b"PK\x01\x02", 2, 24, struct.pack("<I", 1)))


def test_members_on_top_of_each_other(tmp_path):
    # One more byte than it has: it reaches into the header of the next member.
    longer = struct.pack("<II", 65, 65)
    assert "on top of another" in reasons_of(tmp_path, patched(b"PK\x01\x02", 2, 20, longer))


def test_an_encrypted_member(tmp_path):
    assert "encrypted" in reasons_of(tmp_path, patched(b"PK\x01\x02", 0, 8, b"\x01"))


def test_a_split_archive_and_a_wrong_count(tmp_path):
    assert "split" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 4, b"\x01"))
    assert "too many" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 10, b"\x01"))
    assert "cut short" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 10, b"\xf0"))


def test_a_flipped_bit_in_the_pickle_is_seen_by_its_checksum(tmp_path):
    at = TORCH.find(b"FloatStorage")
    assert "checksum" in reasons_of(tmp_path, TORCH[:at] + b"g" + TORCH[at + 1 :])


def test_a_fifo_that_takes_the_place_of_a_file_after_the_look_does_not_block(tmp_path, monkeypatch):
    regular = tmp_path / "file"
    regular.write_bytes(b"x")
    looked = os.stat(regular)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setattr(files.os, "stat", lambda path: looked)
    with pytest.raises(files.NotRegular), files.opened(str(fifo)):
        pass
