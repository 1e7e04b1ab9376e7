"""``python -m trainvitals parse``: what a person and a script meet."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.__main__ import main

DATA = Path(__file__).parent / "data"


def run(capsys, *arguments):
    code = main(["parse", *map(str, arguments)])
    out, err = capsys.readouterr()

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return code, [json.loads(line, parse_constant=refuse) for line in out.splitlines()], err


def test_steps_and_events_have_the_keys_of_the_contract(capsys):
    code, records, _ = run(capsys, DATA / "megatron.log")
    assert code == 0
    steps = [record for record in records if record["type"] == "step"]
    assert {frozenset(step) for step in steps} == {frozenset({"type", "step", "attempt", "time", "values", "nonfinite"})}
    assert {frozenset(record) for record in records if record["type"] == "event"} == {
        frozenset({"type", "kind", "step", "time", "text", "data"})
    }
    assert steps[0]["time"] == "2026-01-02T03:07:21.123456Z"
    assert steps[12]["nonfinite"] == {"loss": "nan", "grad_norm": "nan"}


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_no_output_holds_a_bare_nan(capsys, name):
    assert run(capsys, DATA / name)[0] == 0


def test_an_unknown_time_is_null(capsys):
    _, records, _ = run(capsys, DATA / "nanogpt.log")
    assert {record["time"] for record in records} == {None}


def test_a_compressed_log_and_standard_input_are_read(capsys, tmp_path, monkeypatch):
    raw = (DATA / "megatron.log").read_bytes()
    plain = run(capsys, DATA / "megatron.log")[1]
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(raw))
    assert run(capsys, packed)[1] == plain
    for data in (raw, gzip.compress(raw)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert run(capsys, "-")[1] == plain


def test_standard_input_is_read_as_it_comes():
    command = [sys.executable, "-m", "trainvitals", "parse", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for step in (1, 2):
            process.stdin.write(b"iter %d: loss 3.0, time 1.0ms, mfu 1.0%%\n" % step)
            process.stdin.flush()
            seen = json.loads(process.stdout.readline())
            if seen["type"] == "event":
                seen = json.loads(process.stdout.readline())
            assert seen["step"] == step
        process.stdin.close()
        assert process.stdout.read() == b""


def test_a_log_without_steps_is_no_error_but_is_said(capsys, tmp_path):
    path = tmp_path / "empty.log"
    path.write_text("nothing here\n")
    code, records, err = run(capsys, path)
    assert (code, records) == (0, [])
    assert "no training step" in err


def test_what_was_left_out_is_told_in_one_line_for_people(capsys, tmp_path):
    path = tmp_path / "ranks.log"
    path.write_text("iter 1: loss 3.0, time 1.0ms\n" * 8 + "x" * 70_000 + "\n")
    code, records, err = run(capsys, path)
    assert (code, sum(record["type"] == "step" for record in records)) == (0, 1)
    assert err == f"trainvitals parse: {path}: 1 overlong lines cut, 7 steps seen again (8 ranks print).\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(100), "binary file"),
        (b"abc\0\0def", "binary file"),
        (gzip.compress(bytes(range(256)) * 500), "binary file"),
        (gzip.compress(b"iter 1: loss 3.0, time 1.0ms\n" * 9000)[:-20], "damaged gzip file"),
    ],
)
def test_what_is_no_log_gets_a_sentence_and_exit_code_2(capsys, tmp_path, content, words):
    path = tmp_path / "x"
    path.write_bytes(content)
    code, _, err = run(capsys, path)
    assert code == 2
    assert words in err


def test_what_stands_before_the_damage_of_a_gzip_file_is_read(capsys, tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress("".join(f"iter {n}: loss 3.0, time 1.0ms\n" for n in range(20_000)).encode())[:-2000])
    code, records, _ = run(capsys, path)
    assert code == 2
    assert len(records) > 5_000


def test_a_missing_file_and_a_directory_get_a_sentence(capsys, tmp_path):
    assert run(capsys, tmp_path / "none")[::2] == (
        2,
        f"trainvitals parse: Cannot read {tmp_path / 'none'}: No such file or directory.\n",
    )
    assert "directory" in run(capsys, tmp_path)[2]
    assert "time zone" in run(capsys, DATA / "nanogpt.log", "--timezone", "Nowhere/Land")[2]
