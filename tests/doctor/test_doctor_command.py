"""The command itself: deadlines, order, exit codes, and names that would like to reach the terminal."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from trainvitals.__main__ import main
from trainvitals.clock import SystemClock
from trainvitals.doctor.check import FAULT, OK, Checkup, ok
from trainvitals.doctor.runner import examine


@pytest.fixture
def place(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "trainvitals.toml").write_text(
        f'store = "sqlite://{tmp_path}/store.db"\n[gpu]\nenabled = false\n[dashboard]\nport = 0\n'
        f'[[runs]]\nname = "a\\\\b"\ndir = "{tmp_path}/run"\nlogs = ["{tmp_path}/*.log"]\n'
    )
    return tmp_path


def doctor(place, *words):
    return main(["doctor", "--config", str(place / "trainvitals.toml"), *words])


def test_warnings_alone_are_exit_code_0_and_a_fault_is_1(place, capsys):
    assert doctor(place) == 0
    captured = capsys.readouterr()
    assert "WARNING control a\\b" in captured.out and "→ python -m trainvitals control init" in captured.out
    assert captured.err.startswith("0 faults, ")
    (place / "run").chmod(0o777)
    assert doctor(place) == 1
    assert "FAULT   run directory a\\b: everyone may write" in capsys.readouterr().out


def test_unusable_settings_are_exit_code_2_and_one_finding(place, capsys):
    (place / "trainvitals.toml").write_text("stoer = 1")
    assert doctor(place, "--json") == 2
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["check"], told["state"]) == ("settings", FAULT) and "Did you mean 'store'?" in told["text"]
    assert main(["doctor", "--config", str(place / "no.toml")]) == 2


def test_json_is_one_object_a_finding(place, capsys):
    doctor(place, "--json")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(one) == {"check", "subject", "state", "text", "advice"} for one in found)
    assert {one["subject"] for one in found} == {"", "a\\b"}


def test_one_run_can_be_asked_for(place, capsys):
    doctor(place, "--json", "--run", "a\\b")
    checks = {json.loads(line)["check"] for line in capsys.readouterr().out.splitlines()}
    assert "store" not in checks and "control" in checks
    assert doctor(place, "--run", "nobody") == 2


def test_a_file_system_that_hangs_is_a_fault_and_hides_nothing_else(place):
    release = threading.Event()

    def hangs():
        yield ok("before")
        release.wait(60)
        yield ok("never told")

    def breaks():
        yield ok("first")
        raise ZeroDivisionError("oops")

    checkups = [Checkup("a", "", hangs), Checkup("b", "", breaks), Checkup("c", "", lambda: iter([ok("fine")]))]
    try:
        results = [(r.check, r.finding.state, r.finding.text) for r in examine(checkups, 0.5, SystemClock())]
    finally:
        release.set()
    assert [(check, state) for check, state, _ in results] == [("a", OK), ("a", FAULT), ("b", OK), ("b", FAULT), ("c", OK)]
    assert "no answer within 0.5 s" in results[1][2] and "ZeroDivisionError: oops" in results[3][2]


def test_more_that_hang_than_are_looked_at_at_once_do_not_hang_the_doctor(place):
    release = threading.Event()

    def hangs():
        release.wait(60)
        yield ok("never told")

    checkups = [Checkup(f"h{n}", "", hangs) for n in range(20)] + [Checkup("last", "", lambda: iter([ok("fine")]))]
    try:
        results = list(examine(checkups, 0.2, SystemClock()))
    finally:
        release.set()
    assert len(results) == 21 and results[-1].finding == ok("fine")


def test_the_program_ends_although_a_check_still_hangs(place, tmp_path):
    """A pipe in place of the token file: whoever opened it would wait for its writer."""
    os.mkfifo(tmp_path / "pipe")
    text = (tmp_path / "trainvitals.toml").read_text()
    (tmp_path / "trainvitals.toml").write_text(
        text.replace(f"sqlite://{tmp_path}/store.db", "influxdb+http://127.0.0.1:1")
        + f'[influxdb]\ntoken_file = "{tmp_path}/pipe"\n[spool]\ndir = "{tmp_path}"\n'
    )
    command = [
        sys.executable,
        "-m",
        "trainvitals",
        "doctor",
        "--config",
        str(tmp_path / "trainvitals.toml"),
        "--deadline",
        "2",
        "--json",
    ]
    begun_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and time.monotonic() - begun_s < 55
    assert any(one["check"] == "store" and one["state"] == FAULT for one in found)
    assert any(one["check"] == "secrets" and one["state"] == FAULT for one in found), "a pipe is no file"


def test_names_that_hold_terminal_commands_do_not_reach_the_terminal(place, capsys):
    (place / "x\x1b[31m.log").write_text("x")
    text = (place / "trainvitals.toml").read_text()
    (place / "trainvitals.toml").write_text(text.replace("/*.log", "/*\\u001b*.log"))
    doctor(place)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--deadline", "0"], ["--deadline", "soon"], ["--nothing"]])
def test_wrong_usage_is_exit_code_2(place, words, capsys):
    with pytest.raises(SystemExit) as told:
        doctor(place, *words)
    assert told.value.code == 2
    capsys.readouterr()
