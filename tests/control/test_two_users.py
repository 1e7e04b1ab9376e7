"""Trainer and dashboard as two real users with umask 077, who share nothing but a group."""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import pytest

from tests.control.two_users import DASHBOARD, GROUP, OTHER_GROUP, STRANGER, TRAINER, as_user, needs_root
from trainvitals.__main__ import main
from trainvitals.control import ControlClient, files, look, read_status, sharing
from trainvitals.control.audited import ask
from trainvitals.errors import ControlError, InputError

WAIT_S = 60.0


@pytest.fixture
def run_dir():
    """Under a directory that everyone may enter; pytest's own is root's alone. The trainer's user made it with umask 077."""
    base = Path(tempfile.mkdtemp(prefix="trainvitals-two-users-"))
    base.chmod(0o755)
    path = base / "run"
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, TRAINER, TRAINER)
    yield path
    shutil.rmtree(base)


def until(run_dir, is_true):
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ControlError, InputError, OSError):
            status = read_status(run_dir)
            if status is not None and is_true(status):
                return
        time.sleep(0.01)
    raise AssertionError(f"it never became true: {look(run_dir, time.time_ns()).sentence}")


def trains(run_dir):
    """A training of the trainer's user that goes on until somebody stops it."""
    saves, step, end_s = [], 0, time.monotonic() + WAIT_S
    client = ControlClient(run_dir, run="r1", on_checkpoint=saves.append, poll_s=0.02)
    while client.at_step(step) == "continue" and time.monotonic() < end_s:
        step += 1
        time.sleep(0.005)
    client.close()
    return {"saves": len(saves), "errors": client.errors}


def controls(run_dir):
    """What a person does on the dashboard of another user."""
    until(run_dir, lambda status: status.step is not None)
    for action, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        asked = ask(run_dir, "r1", action=action, by="ana", source="ui", reason="two users")
        assert asked.warning == "", asked.warning
        until(run_dir, lambda status, state=state, seq=asked.request.seq: status.state == state and status.applied_seq >= seq)
    return look(run_dir, time.time_ns()).state


@needs_root
def test_with_a_shared_group_two_users_pause_resume_and_stop_a_run_under_umask_077(run_dir, capsys):
    assert main(["control", "init", str(run_dir), "--run", "r1", "--group", str(GROUP)]) == 0
    assert f"The group {GROUP} may read and write there" in capsys.readouterr().err
    training = as_user(TRAINER, lambda: trains(run_dir), GROUP)
    assert as_user(DASHBOARD, lambda: controls(run_dir), GROUP)() == {"is": "stopped"}
    assert training() == {"is": {"saves": 2, "errors": 0}}
    for path in (run_dir / "control", *(run_dir / "control").rglob("*")):
        found = path.lstat()
        assert found.st_gid == GROUP, f"{path} belongs to the group {found.st_gid}"
        if path.is_dir():
            assert stat.S_IMODE(found.st_mode) == 0o2770, path


@needs_root
def test_the_trainers_own_user_may_share_with_a_group_of_its_own(run_dir):
    def shares():
        files.make_directories(run_dir)
        return sharing.share(run_dir, str(GROUP))

    assert as_user(TRAINER, shares, GROUP)() == {"is": 0}
    found = run_dir.stat()
    assert found.st_gid == GROUP and stat.S_IMODE(found.st_mode) == 0o2770


@needs_root
def test_who_is_no_member_is_told_and_so_is_who_does_not_own_the_directory(run_dir):
    as_user(TRAINER, lambda: files.make_directories(run_dir), GROUP)()
    said = as_user(TRAINER, lambda: sharing.share(run_dir, str(OTHER_GROUP)), GROUP)()["raised"]
    assert "is no member of the group" in said and f"chgrp {OTHER_GROUP}" in said
    run_dir.chmod(0o755)
    (run_dir / "control").chmod(0o755)
    said = as_user(DASHBOARD, lambda: sharing.share(run_dir, str(GROUP)), GROUP)()["raised"]
    assert f"it belongs to {TRAINER}" in said


@needs_root
def test_a_user_outside_the_group_can_neither_ask_nor_look(run_dir):
    assert main(["control", "init", str(run_dir), "--run", "r1", "--group", str(GROUP)]) == 0

    def asks():
        ask(run_dir, "r1", action="stop", by="eve", source="ui", reason="because")

    said = as_user(STRANGER, asks, OTHER_GROUP)()["raised"]
    assert said.startswith(("ControlError", "PermissionError", "InputError")), said
    assert files.control_dir(run_dir).joinpath("control.json").read_text().count('"seq": 0') == 1


@needs_root
def test_a_trainer_that_may_not_read_the_request_trains_on_and_says_so(run_dir):
    """Real EACCES: the file was written by root with a umask of 077 and without the group."""
    as_user(TRAINER, lambda: files.make_directories(run_dir))()
    path = files.control_dir(run_dir) / files.CONTROL_FILE
    path.write_text("{}")
    path.chmod(0o600)

    def trains_a_little():
        client = ControlClient(run_dir, run="r1", poll_s=0.02)
        until(run_dir, lambda status: status.error is not None)
        answers = {client.at_step(step) for step in range(100)}
        client.close()
        return [sorted(answers), read_status(run_dir).error]

    answers, error = as_user(TRAINER, trains_a_little)()["is"]
    assert answers == ["continue"] and "Permission denied" in error


def test_a_group_that_does_not_exist_changes_nothing(tmp_path, capsys):
    assert main(["control", "init", str(tmp_path), "--group", "no-such-group"]) == 2
    assert "There is no group 'no-such-group'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_only_what_lies_there_itself_is_given_away(tmp_path):
    """A link or a second name planted there must not give another file to the group."""
    files.make_directories(tmp_path)
    secret = tmp_path.parent / f"{tmp_path.name}.secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (tmp_path / "control" / "link.json").symlink_to(secret)
    os.link(secret, tmp_path / "control" / "twin.json")
    os.mkfifo(tmp_path / "control" / "pipe.json")
    sharing.share(tmp_path, str(os.getegid()))
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_file_system_that_does_not_keep_the_group_is_found_out(tmp_path, monkeypatch):
    """root_squash: the server takes the call of root and does it as nobody."""
    files.make_directories(tmp_path)
    monkeypatch.setattr(sharing.os, "fchown", lambda *_: None)
    with pytest.raises(ControlError, match="root_squash"):
        sharing.share(tmp_path, "54100")
