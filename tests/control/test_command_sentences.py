"""What `control` says is what happened: a resume that the supervisor holds again, the checkpoint that was written."""

import json
import threading

import pytest

from trainvitals.__main__ import main
from trainvitals.cli import control as command_module
from trainvitals.control import ControlClient, init, read_request, submit, supervised
from trainvitals.control.records import ControlStatus

WHO = ["--by", "ana", "--reason", "go on"]


@pytest.fixture
def command(capsys):
    def run(*words):
        code = main(["control", *map(str, words)])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return run


def hold(run_dir, why):
    submit(run_dir, "r", action="stop", by="supervisor", source="supervisor", reason=why)


def test_a_resume_that_the_supervisor_answers_with_another_hold_is_not_told_as_a_start(command, tmp_path, monkeypatch):
    init(tmp_path, "r")
    ended = ControlStatus(run="r", state="stopped", ended=True)
    (tmp_path / "control" / "control_status.json").write_text(ended.to_json())
    hold(tmp_path, "no checkpoint can be used: step-100 is corrupt")
    real = command_module.ask

    def asked(*arguments, **options):
        request = real(*arguments, **options)
        hold(tmp_path, "no checkpoint can be used: step-100 is corrupt")  # at its next look
        return request

    monkeypatch.setattr(command_module, "ask", asked)
    monkeypatch.setattr(command_module, "look", lambda run_dir, now_ns: state_under_a_supervisor(run_dir, now_ns))
    code, said, sentence = command("resume", tmp_path, *WHO, "--wait", "0.1")
    assert (code, said["outcome"]) == (1, "held_again")
    assert (
        "holds the run again: no checkpoint can be used: step-100 is corrupt" in sentence and "starts the trainer" not in sentence
    )
    assert read_request(tmp_path).desired == "stopped"


def state_under_a_supervisor(run_dir, now_ns):
    from trainvitals.control.view import describe

    return describe(read_request(run_dir), ControlStatus(run="r", state="stopped", ended=True), now_ns, supervisor="run-host")


def test_a_checkpoint_that_was_written_is_named(command, tmp_path):
    over, saves = threading.Event(), []
    client = ControlClient(tmp_path, run="r", on_checkpoint=saves.append, poll_s=0.01)

    def train():
        step = 1_000
        while not over.wait(0.002):
            client.at_step(step)
            step += 1

    loop = threading.Thread(target=train, daemon=True)
    loop.start()
    try:
        code, said, sentence = command("checkpoint", tmp_path, *WHO, "--wait", "60")
    finally:
        over.set()
        loop.join(60)
        client.close()
    assert (code, said["outcome"]) == (0, "applied") and f"Done: checkpoint {saves[0]:,}." in sentence


@pytest.mark.parametrize("action", ["resume", "checkpoint"])
def test_nobody_is_told_how_to_stop_a_trainer_who_did_not_want_to(command, tmp_path, action):
    init(tmp_path, "r")
    submit(tmp_path, "r", action="pause", by="ana", source="cli", reason="look")
    code, said, sentence = command(action, tmp_path, *WHO, "--wait", "0")
    assert (code, said["outcome"]) == (1, "not_wired") and "scancel" not in sentence
    assert supervised.supervisor_of(tmp_path) is None
