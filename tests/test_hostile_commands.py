"""Wrong files, directories and settings end in a sentence and exit code 2, never in a traceback."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.errors import SettingsError
from trainvitals.settings import load, parse

CURVE = "step,loss\n" + "".join(f"{step},2.{step % 10}\n" for step in range(20_000))


def said(capsys, *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5_000 + "]" * 5_000, "[dashboard]\nport = " + "9" * 5_000, "a = " + "[" * 5_000],
    ids=["deep", "digits", "torn"],
)
def test_settings_that_no_parser_can_hold_are_called_invalid(tmp_path, text):
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match="not valid TOML"):
        load(path, {})


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_settings_file_without_an_end_is_refused(device):
    with pytest.raises(SettingsError, match="is no settings file"):
        load(device, {})


@pytest.mark.parametrize(
    "run",
    [
        {"name": "a", "dir": "a\0b"},
        {"name": "a", "dir": "x", "logs": ["a\0b"]},
        {"name": "a", "dir": "~nobody-has-this-name/x"},
        {"name": "a\u202eb", "dir": "x"},
        {"name": "a\x9bb", "dir": "x"},
        {"name": "\udced", "dir": "x"},
    ],
    ids=["nul", "nul in a glob", "home", "bidirectional", "c1", "surrogate"],
)
def test_names_and_paths_that_cannot_be_used_are_refused(run):
    with pytest.raises(SettingsError, match=r"number 1"):
        parse({"runs": [run]})


def test_a_name_may_be_written_in_any_script():
    assert parse({"runs": [{"name": "预训练 70b", "dir": "x"}]}).runs[0].name == "预训练 70b"


@pytest.mark.parametrize(
    ("section", "key", "value"), [("watch", "poll_s", 1e308), ("dashboard", "port", 10**20), ("watch", "poll_s", 1e-320)]
)
def test_numbers_that_no_clock_or_socket_takes_are_refused(section, key, value):
    with pytest.raises(SettingsError, match=key):
        parse({section: {key: value}})


def test_a_run_directory_that_cannot_be_made_is_told_in_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TRAINVITALS_STORE", f"sqlite://{tmp_path}/s.db")
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        code, text = said(capsys, "watch", "--run", "a", "--run-dir", str(place))
        assert code == 2
        assert str(place) in text


def test_a_name_too_long_for_the_file_system_is_told_in_a_sentence(capsys):
    code, text = said(capsys, "control", "show", "x" * 5_000)
    assert code == 2
    assert "File name too long" in text


def test_a_damaged_gzip_file_is_told_in_a_sentence(tmp_path, capsys):
    raw = bytearray(gzip.compress(CURVE.encode()))
    raw[len(raw) // 2] ^= 0xFF
    raw[len(raw) // 2 + 1] ^= 0xFF
    path = tmp_path / "curve.csv.gz"
    path.write_bytes(bytes(raw))
    for command in ("parse", "detect"):
        code, text = said(capsys, command, str(path))
        assert code == 2
        assert "damaged gzip" in text


@pytest.mark.parametrize("command", ["parse", "detect"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_refused(command, device, capsys):
    code, text = said(capsys, command, device)
    assert code == 2
    assert "device" in text


@pytest.mark.parametrize("content", [os.urandom(4096) + b"\0", b"\x7fELF" + b"x" * 100])
def test_a_binary_file_is_no_curve(tmp_path, content, capsys):
    path = tmp_path / "f"
    path.write_bytes(content)
    code, text = said(capsys, "detect", str(path))
    assert code == 2
    assert "binary" in text


def test_control_characters_of_an_argument_do_not_reach_the_terminal(capsys):
    code, text = said(capsys, "parse", "no\x1b[31mfile")
    assert code == 2
    assert "\x1b" not in text


def test_a_full_disk_behind_stdout_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text(CURVE)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "trainvitals", "parse", str(path)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
