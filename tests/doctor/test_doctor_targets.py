"""What the doctor tells of alert targets and of a run that never began, without asking anybody."""

import os

import pytest
from looking import look, says, settings_of

from trainvitals.__main__ import main
from trainvitals.doctor import places
from trainvitals.doctor.check import FAULT, OK, WARNING


def target(place, **table):
    return look(settings_of(place, alerts={"targets": {"a": table}}), "alerts")


@pytest.mark.parametrize(
    ("address", "allowed", "why"),
    [
        ("http://127.0.0.1:9000/x", False, "set allow_private"),
        ("http://localhost:9000/x", False, "set allow_private"),
        ("https://10.1.2.3/x", False, "set allow_private"),
        ("https://[fd00::1]/x", False, "set allow_private"),
        ("http://10.1.2.3/x", True, "is reached by http"),
        ("http://169.254.169.254/x", True, "link-local"),
        ("http://127.0.0.1:9000/x", True, ""),
        ("http://localhost:9000/x", True, ""),
        ("https://10.1.2.3/x", True, ""),
        ("https://hooks.example.com/x", False, ""),
    ],
)
def test_an_address_that_no_message_would_go_to_is_a_fault_before_one_is_needed(place, address, allowed, why):
    found = target(place, kind="webhook", url=address, allow_private=allowed)
    assert says(found, FAULT if why else OK, why or "alert test a")[0]


def test_a_target_that_needs_a_secret_and_has_none_is_a_fault(place):
    assert says(target(place, kind="pagerduty"), FAULT, "it has no secret, and needs one")[0]
    key = place / "key"
    key.write_text("k" * 32)
    assert says(target(place, kind="pagerduty", secret_files=[str(key)]), OK, "a (pagerduty)")[0]


def test_what_is_missing_before_the_first_start_is_no_fault_and_is_one_afterwards(place):
    nothing = {"checkpoints": [str(place / "later")], "logs": [str(place / "*.out")]}
    for check, sentence in (("checkpoints", "there is no checkpoint directory"), ("logs", "nothing matches")):
        assert says(look(settings_of(place, nothing), check), WARNING, sentence)[0]
    (place / "run" / "metrics.rank00000.jsonl").write_text("{}\n")
    assert says(look(settings_of(place, nothing), "checkpoints"), FAULT, "there is no checkpoint directory")[0]


def test_settings_that_cannot_be_read_in_time_are_told(place, capsys):
    pipe = place / "pipe.toml"
    os.mkfifo(pipe)
    assert main(["doctor", "--config", str(pipe), "--deadline", "0.3"]) == 2
    assert "was not read within 0.3 s" in capsys.readouterr().out


@pytest.mark.parametrize(("content", "state"), [("4242\n", WARNING), ("4242 gpu-7\n", OK)])
def test_a_process_id_on_a_file_system_of_several_hosts_ought_to_name_its_host(place, monkeypatch, content, state):
    (place / "pid").write_text(content)
    monkeypatch.setattr(places, "file_system", lambda path: "network (nfs4)")
    found = look(settings_of(place, {"control": "signal", "signal_pid_file": str(place / "pid")}), "control")
    assert says(found, state, "names none" if state == WARNING else "SIGTERM to the process in")[0]
