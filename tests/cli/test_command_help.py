"""What the commands say about themselves and about a usage that cannot work."""

from __future__ import annotations

import socket

import pytest

from trainvitals.__main__ import main
from trainvitals.cli.up import is_taken, where
from trainvitals.control.client import ControlClient
from trainvitals.settings import DashboardSettings, Settings


@pytest.mark.parametrize("command", ["parse", "detect", "checkpoint", "control"])
def test_a_command_whose_exit_code_means_something_says_what(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "Exit code 0" in capsys.readouterr().out


def test_a_wait_that_is_no_number_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["control", "pause", str(tmp_path), "--wait", "soon"])
    assert ended.value.code == 2
    assert "'soon' is no number of seconds" in capsys.readouterr().err


def test_a_taken_port_is_told_instead_of_an_address_where_somebody_else_answers():
    settings = Settings(dashboard=DashboardSettings(port=8501), path="/etc/trainvitals.toml")
    assert where(settings, taken=False) == "http://127.0.0.1:8501"
    told = where(settings, taken=True)
    assert "8501 is taken" in told and "/etc/trainvitals.toml" in told and "http" not in told


def test_a_port_is_taken_while_somebody_listens_on_it():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert is_taken(port)
    assert not is_taken(port)


def test_a_resume_after_the_end_does_not_contradict_itself(tmp_path, capsys):
    client = ControlClient(tmp_path, run="r1", poll_s=0.01)
    client.close()
    assert main(["control", "resume", str(tmp_path), "--by", "alice", "--reason", "safe", "--wait", "0"]) in (0, 1)
    capsys.readouterr()
    assert main(["control", "stop", str(tmp_path), "--by", "alice", "--reason", "going back", "--wait", "0"]) == 1
    told = capsys.readouterr().err
    assert "The trainer has ended; it will see the request (stop, seq" in told
    assert "Requested" not in told
