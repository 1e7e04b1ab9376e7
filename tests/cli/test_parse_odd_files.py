"""``parse`` of files that are text, though not as Linux writes it."""

from __future__ import annotations

import gzip
import json

import pytest

from trainvitals.__main__ import main

LINES = "".join(f'{{"step":{step},"loss":{3 - step / 100:.2f}}}\r\n' for step in range(1, 6))


def steps(capsys, path):
    assert main(["parse", str(path)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(record["step"], record["values"]["loss"]) for record in records if record["type"] == "step"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_of_another_system_is_read_as_it_stands(capsys, tmp_path, encoding, is_packed):
    data = LINES.encode(encoding)
    if encoding == "utf-16-be":
        data = b"\xfe\xff" + data
    path = tmp_path / ("log.jsonl.gz" if is_packed else "log.jsonl")
    path.write_bytes(gzip.compress(data) if is_packed else data)
    assert steps(capsys, path) == [(step, round(3 - step / 100, 2)) for step in range(1, 6)]


def test_a_hole_behind_the_first_lines_makes_no_binary_file_of_a_log(capsys, tmp_path):
    first, *rest = LINES.encode().splitlines(keepends=True)
    path = tmp_path / "log.jsonl"
    path.write_bytes(first + b"\0" * 4096 + b"".join(rest))
    assert [step for step, _ in steps(capsys, path)] == [1, 2, 3, 4, 5]


def test_a_binary_file_is_still_said_to_be_one(capsys, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"step 1\0loss 2.0\n" * 100)
    assert main(["parse", str(path)]) == 2
    assert "binary file" in capsys.readouterr().err
