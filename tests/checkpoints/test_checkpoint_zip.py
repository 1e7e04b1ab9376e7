"""Zip files that torch never writes and an attacker or a bad disk does."""

import io
import os
import pickle
import struct
import zipfile

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
    assert "split" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 10, b"\x01"))
    assert "too many" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 8, b"\x01\x00\x01"))
    assert "cut short" in reasons_of(tmp_path, patched(b"PK\x05\x06", 0, 8, b"\xf0\x00\xf0"))


def zip64():
    """TORCH with the zip64 end record and its locator, which torch always writes."""
    at = TORCH.rfind(b"PK\x05\x06")
    *_, count, length, offset, _ = struct.unpack_from("<4s4H2IH", TORCH, at)
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 798, 45, 0, 0, count, count, length, offset)
    return TORCH[:at] + record + struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1) + TORCH[at:]


def test_the_zip64_records_that_torch_writes_are_read(tmp_path):
    (tmp_path / "model.pt").write_bytes(zip64())
    assert inspect(str(tmp_path / "model.pt"), "content").level == "content"


@pytest.mark.parametrize(
    ("signature", "offset"),
    [(b"PK\x06\x06", at) for at in (4, 16, 20, 24, 32, 40, 48)] + [(b"PK\x06\x07", at) for at in (0, 4, 8, 16)]
    + [(b"PK\x05\x06", at) for at in (0, 4, 6, 8, 20)],
)  # fmt: skip
@pytest.mark.parametrize("bit", [0, 1, 7])
def test_a_flipped_bit_in_the_records_at_the_end_is_seen_wherever_torch_minds_it(tmp_path, signature, offset, bit):
    raw = bytearray(zip64())
    raw[raw.rfind(signature) + offset] ^= 1 << bit
    reasons_of(tmp_path, bytes(raw))


@pytest.mark.parametrize("what", [(8, 0x01), (8, 0x20), (8, 0x40), (9, 0x20), (10, 0x01), (10, 0x08), (34, 0x01), (38, 0x10)])
def test_a_flipped_bit_in_the_directory_is_seen_wherever_torch_minds_it(tmp_path, what):
    # 38, 0x10: torch takes the tensor for a directory and gives memory that nobody wrote, without an error.
    raw = bytearray(zip64())
    raw[raw.find(b"PK\x01\x02", raw.find(b"PK\x01\x02") + 1) + what[0]] ^= what[1]
    (tmp_path / "model.pt").write_bytes(raw)
    report = inspect(str(tmp_path / "model.pt"), "content")
    assert (report.state, report.level) == ("corrupt", "presence")


def test_a_zip_that_another_tool_made_with_directories_in_it_is_none_the_worse(tmp_path):
    with zipfile.ZipFile(io.BytesIO(TORCH)) as old, zipfile.ZipFile(tmp_path / "model.pt", "w") as new:
        new.mkdir("archive")
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    assert inspect(str(tmp_path / "model.pt"), "content").level == "content"


@pytest.mark.parametrize("name", ["archive/DATA.PKL", "archive/Data.pkl", "other/data.pkl", "archive/DATA/0"])
def test_a_second_member_that_torch_may_take_for_the_first_is_damage(tmp_path, name):
    # miniz finds names without regard to case and takes the last one: what is scanned must be what is loaded.
    with zipfile.ZipFile(io.BytesIO(TORCH)) as old, zipfile.ZipFile(tmp_path / "model.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
        new.writestr(name, b"\x80\x02cos\nmkdir\nX\x01\0\0\0x\x85R.")
    assert inspect(str(tmp_path / "model.pt")).state == "corrupt"


def test_code_of_a_script_whose_names_differ_in_case_is_fine(tmp_path):
    with zipfile.ZipFile(io.BytesIO(TORCH)) as old, zipfile.ZipFile(tmp_path / "model.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
        new.writestr("archive/code/__torch__/Net.py", "")
        new.writestr("archive/code/__torch__/net.py", "")
    assert inspect(str(tmp_path / "model.pt")).state == "verified"


@pytest.mark.parametrize("count", [pytest.param(1 << 40_000, id="endless"), -1, 1 << 63])
def test_a_storage_of_an_impossible_length_is_damage_and_no_fault_of_ours(tmp_path, count):
    encoded = pickle.encode_long(count)
    pickled = (
        b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu\x8b"
        + struct.pack("<i", len(encoded)) + encoded + b"tQ."
    )  # fmt: skip
    assert "no valid pickle" in reasons_of(tmp_path, make.torch_zip_bytes(storages=(4,), pickled=pickled))


def test_a_number_of_a_million_digits_in_a_pickle_is_nothing_to_be_printed(tmp_path):
    pickled = pickle.dumps({"global_step": 1 << 40_000, "state_dict": {}}, 2)
    (tmp_path / "model.pt").write_bytes(make.torch_zip_bytes(storages=(), pickled=pickled))
    assert inspect(str(tmp_path / "model.pt"), "load").step is None


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
