import json
import threading

import pytest

from trainvitals.__main__ import main
from trainvitals.control import ControlClient, files, read_request
from trainvitals.control.records import ControlStatus

WHO = ["--by", "alice", "--reason", "loss spike"]


@pytest.fixture
def command(capsys):
    def run(*words):
        code = main(["control", *map(str, words)])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out.strip() else None, captured.err

    return run


@pytest.fixture
def trainer(tmp_path):
    """A training loop of its own thread that obeys; yields the steps it saved."""
    saves, over = [], threading.Event()
    client = ControlClient(tmp_path, run="r1", on_checkpoint=saves.append, poll_s=0.01)

    def body():
        step = 0
        while not over.is_set() and client.at_step(step) == "continue":
            step += 1
            over.wait(0.002)

    loop = threading.Thread(target=body, daemon=True)
    loop.start()
    yield saves
    over.set()
    if loop.is_alive():
        main(["control", "stop", str(tmp_path), *WHO])
    loop.join(20)
    client.close()
    assert not loop.is_alive()


def test_pause_show_resume_checkpoint_and_stop_against_a_real_loop(command, tmp_path, trainer):
    code, said, sentence = command("pause", tmp_path, *WHO)
    assert (code, said["outcome"], said["state"], said["seq"]) == (0, "applied", "paused", 1)
    assert "Paused at step" in sentence and said["step"] == trainer[0]
    code, said, _ = command("show", tmp_path)
    assert (code, said["state"], said["by"], said["reason"]) == (0, "paused", "alice", "loss spike")
    assert command("resume", tmp_path, *WHO)[1]["outcome"] == "applied"
    code, said, _ = command("checkpoint", tmp_path, *WHO)
    assert (code, said["outcome"], len(trainer)) == (0, "applied", 2)
    code, said, _ = command("stop", tmp_path, *WHO)
    assert (code, said["state"]) == (0, "stopped")


def test_without_a_trainer_it_says_not_wired_and_how_to_stop_by_hand(command, tmp_path):
    code, said, sentence = command("pause", tmp_path, *WHO, "--wait", "0")
    assert (code, said["outcome"]) == (1, "not_wired")
    assert "not wired" in sentence and "scancel" in sentence
    assert read_request(tmp_path).desired == "paused"


def test_a_dead_trainer_does_not_acknowledge(command, tmp_path):
    files.make_directories(tmp_path)
    (tmp_path / "control" / "control_status.json").write_text(ControlStatus(run="r1", pid=5, host="n1").to_json())
    code, said, sentence = command("pause", tmp_path, *WHO, "--wait", "0.2")
    assert (code, said["outcome"]) == (1, "not_acknowledged")
    assert "kill -TERM 5" in sentence


def test_a_refused_pause_is_exit_code_1_and_names_the_reason(command, tmp_path):
    client = ControlClient(tmp_path, poll_s=0.01)
    over = threading.Event()

    def body():
        while not over.wait(0.002):
            client.at_step(1)

    loop = threading.Thread(target=body, daemon=True)
    loop.start()
    try:
        code, said, sentence = command("pause", tmp_path, *WHO)
        assert (code, said["outcome"]) == (1, "refused")
        assert "no on_checkpoint function" in sentence
    finally:
        over.set()
        loop.join(20)
        client.close()


def test_a_conflict_is_exit_code_1_and_changes_nothing(command, tmp_path):
    command("pause", tmp_path, *WHO, "--wait", "0")
    code, said, _ = command("stop", tmp_path, "--by", "bob", "--reason", "x", "--expected-seq", "0")
    assert (code, said["outcome"], said["desired"], said["by"]) == (1, "conflict", "paused", "alice")


@pytest.mark.parametrize("missing", [["--by", "alice"], ["--reason", "why"], ["--by", " ", "--reason", "why"]])
def test_who_and_why_are_required(command, tmp_path, missing):
    code, said, sentence = command("pause", tmp_path, *missing)
    assert (code, said) == (2, None)
    assert "is missing" in sentence
    assert not (tmp_path / "control").exists()


def test_wrong_usage_is_exit_code_2(command, tmp_path, capsys):
    assert command("pause", tmp_path / "missing", *WHO)[0] == 2
    with pytest.raises(SystemExit) as refused:
        main(["control", "explode", str(tmp_path)])
    assert refused.value.code == 2
    with pytest.raises(SystemExit):
        main(["control", "pause", str(tmp_path), "--wait", "-1"])


def test_init_and_show_need_no_name(command, tmp_path):
    code, said, _ = command("init", tmp_path, "--run", "r1")
    assert (code, said["outcome"], said["seq"]) == (0, "ready", 0)
    code, said, sentence = command("show", tmp_path)
    assert (code, said["state"], said["can_act"]) == (0, "not_wired", False)
    assert "not wired" in sentence


def test_rollback_prints_the_commands_and_changes_nothing(command, tmp_path):
    command("init", tmp_path, "--run", "r1")
    before = (tmp_path / "control" / "control.json").read_bytes()
    checkpoint = tmp_path / "iter 48000; rm -rf"
    checkpoint.mkdir()
    code, said, sentence = command("rollback", tmp_path, "--to", checkpoint, *WHO)
    assert (code, said["outcome"]) == (1, "by_hand")
    assert f"'{checkpoint}'" in said["commands"][0]
    assert "control stop" in sentence and "control resume" in sentence
    assert (tmp_path / "control" / "control.json").read_bytes() == before
    assert command("rollback", tmp_path, *WHO)[0] == 2
    assert command("rollback", tmp_path, "--to", tmp_path / "gone", *WHO)[0] == 2


def test_rollback_says_what_is_wrong_with_the_checkpoint_and_what_it_cannot_know(command, tmp_path, monkeypatch):
    checkpoint = tmp_path / "checkpoint-30"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text('{"global_step": 30}')
    code, said, sentence = command("rollback", tmp_path, "--to", checkpoint, *WHO)
    assert code == 1 and said["problem"].startswith("Do not go back to it: it is incomplete: ")
    assert said["problem"] in sentence and "whether the loss was healthy when it was saved" in sentence

    def broken(_path):
        raise RecursionError("too deep")

    monkeypatch.setattr("trainvitals.cli.control.inspect", broken)
    code, said, sentence = command("rollback", tmp_path, "--to", checkpoint, *WHO)
    assert code == 1 and "could not be looked at" in said["problem"] and "--level load" in sentence


def test_terminal_commands_in_a_reason_are_not_sent_to_the_terminal(command, tmp_path):
    files.make_directories(tmp_path)
    status = ControlStatus(run="r1", state="paused", by="eve", reason="\x1b[2Jgone", heartbeat_ns=10**18)
    (tmp_path / "control" / "control_status.json").write_text(status.to_json())
    assert "\x1b" not in command("show", tmp_path)[2]
