"""Of a run each thing broken once, and what the doctor says of it."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.control.two_users import DASHBOARD, GROUP, STRANGER, TRAINER, as_user, needs_root
from tests.doctor.looking import CLOCK, ROOT, free_port, look, says, settings_of
from trainvitals.__main__ import main
from trainvitals.cli import doctor
from trainvitals.clock import ManualClock
from trainvitals.control import ControlClient, files, inbox, init, supervised
from trainvitals.control.requests import Watcher
from trainvitals.doctor import of_run, places
from trainvitals.doctor.check import FAULT, OK, WARNING
from trainvitals.doctor.runner import examine


def test_every_check_is_documented_and_nothing_else_is(place):
    page = (ROOT / "docs" / "doctor.md").read_text()
    documented = set(re.findall(r"^\| `([a-z ]+)` \|", page.partition("## What is looked at")[2], re.MULTILINE))
    checks = {checkup.check for checkup in doctor.checkups(settings_of(place), "", 1.0)} | {"settings"}
    assert documented == checks
    for state in (OK, WARNING, FAULT):
        assert f"| `{state}` |" in page


def test_a_healthy_run_has_no_fault_and_its_probe_files_are_gone(place):
    settings = settings_of(place, gpu={"enabled": False}, dashboard={"port": free_port()})
    for checkup in doctor.checkups(settings, "", 10.0):
        for finding in checkup.look():
            assert finding.state != FAULT, (checkup, finding)
            assert finding.state == OK or finding.advice, "a warning without what to do"
    left = [path for path in place.rglob("*") if "doctor" in path.name or path.name.startswith(".now.")]
    assert left == []


# -- the run's directory ------------------------------------------------------------------------------------------------


def test_a_run_directory_that_is_missing_or_a_file_or_open_to_everyone(place):
    assert says(look(settings_of(place, {"dir": str(place / "no")}), "run directory"), FAULT, "there is no run directory")[0]
    assert says(look(settings_of(place, {"dir": str(place / "train.log")}), "run directory"), FAULT, "is no directory")[0]
    (place / "run").chmod(0o777)
    ok, found = says(look(settings_of(place), "run directory"), FAULT, "anyone could stop the run")
    assert ok and "chmod o-w" in found[0][1]


def test_files_that_a_umask_of_077_keeps_from_the_group(place):
    hidden = place / "run" / "metrics.rank00000.jsonl"
    hidden.write_text("{}\n")
    hidden.chmod(0o600)
    ok, found = says(look(settings_of(place), "run directory"), WARNING, "1 of 1 files")
    assert ok, found


def test_root_squash_is_known_by_a_file_that_became_somebody_elses(place, monkeypatch):
    squashed = places.Probe(uid=65_534, gid=65_534, mode=0o640, mtime_s=time.time(), has_link=True)
    monkeypatch.setattr(places, "probe", lambda _path: squashed)
    ok, found = says(look(settings_of(place), "run directory"), FAULT, "root_squash")
    assert ok, found


@needs_root
def test_root_squash_is_known_by_a_directory_of_nobody(place):
    os.chown(place / "run", 65_534, 65_534)
    ok, found = says(look(settings_of(place), "run directory"), WARNING, "the file server changes users")
    assert ok, found


@pytest.mark.parametrize(("off_s", "state"), [(0.5, None), (10, WARNING), (-10, WARNING), (3_600, FAULT)])
def test_a_clock_of_the_file_system_that_differs_is_told(place, off_s, state):
    clock = ManualClock()
    clock.advance(time.time() - clock.time_ns() / 1e9 + off_s, wall_only=True)
    found = [
        (was, text) for was, text in look(settings_of(place), "run directory", clock) if "the clock of the file system" in text
    ]
    assert [was for was, _ in found] == ([state] if state else [])
    if state:
        assert ("behind" if off_s > 0 else "ahead of") in found[0][1] and "chronyc" in found[0][1]


def test_a_run_that_is_asked_through_the_store_needs_no_directory_here(place):
    settings = settings_of(place, {"dir": str(place / "elsewhere"), "control_road": "store"})
    for check in ("run directory", "control", "hook", "watch", "supervisor", "logs", "checkpoints"):
        (found,) = look(settings, check)
        assert found[0] == OK and "not on this host" in found[1]


# -- what the trainer and the watchdog write ----------------------------------------------------------------------------


def test_a_hooks_file_that_is_missing_old_or_growing(place):
    assert says(look(settings_of(place, {"steps_from": "hook"}), "hook"), FAULT, "steps_from = hook")[0]
    assert says(look(settings_of(place, {"logs": []}), "hook"), WARNING, "no logs are named")[0]
    assert says(look(settings_of(place), "hook"), OK, "the steps come from the log")[0]
    path = place / "run" / "metrics.rank00000.jsonl"
    path.write_text("{}\n")
    assert says(look(settings_of(place), "hook"), OK, "written 0 s ago")[0]
    os.utime(path, (time.time() - 3_600,) * 2)
    assert says(look(settings_of(place), "hook"), WARNING, "not written for 60 min")[0]
    path.unlink()
    os.mkfifo(path)
    assert says(look(settings_of(place), "hook"), FAULT, "is no regular file")[0]


def test_control_that_nobody_made_that_is_narrow_or_not_wired(place):
    assert says(look(settings_of(place), "control"), WARNING, "not wired")[0]
    files.control_dir(place / "run").chmod(0o750)
    ok, found = says(look(settings_of(place), "control"), WARNING, "another user of the group cannot act")
    assert ok and "control init" in found[0][1]
    ok, _ = says(look(settings_of(place, {"dir": str(place)}), "control"), WARNING, "nobody can pause this run")
    assert ok


def test_a_trainers_status_that_is_alive_silent_or_another_runs(place):
    client = ControlClient(place / "run", run="r", poll_s=0.02)
    client.at_step(7)
    status = files.control_dir(place / "run") / files.STATUS_FILE
    try:
        until_s = time.monotonic() + 60
        while not says(look(settings_of(place), "control"), OK, "Running, last step 7")[0]:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        assert says(look(settings_of(place, {"name": "other"}), "control"), FAULT, "belongs to the run 'r'")[0]
    finally:
        client.close()
    status.write_text(status.read_text().replace('"ended": true', '"ended": false'))
    os.utime(status, (time.time() - 120,) * 2)
    assert says(look(settings_of(place), "control"), WARNING, "No heartbeat from the trainer for")[0]


@pytest.mark.parametrize("content", ["", "{", '{"schema": 99}'])
def test_unusable_control_files_are_told_by_the_errors_own_words(place, content):
    (files.control_dir(place / "run") / files.CONTROL_FILE).write_text(content)
    settings = settings_of(place)
    (checkup,) = [one for one in of_run.checkups(settings, settings.runs[0], CLOCK) if one.check == "control"]
    (result,) = examine([checkup], 10.0, CLOCK)
    assert result.finding.state == FAULT and "control.json" in result.finding.text


def test_the_trainers_own_way_is_looked_at(place):
    kill = {"control": "kill_switch", "kill_switch_path": str(place / "KILL")}
    assert says(look(settings_of(place, kill), "control"), OK, "the kill switch would be")[0]
    (place / "KILL").touch()
    assert says(look(settings_of(place, kill), "control"), WARNING, "the trainer does not start")[0]
    nowhere = {"control": "kill_switch", "kill_switch_path": str(place / "no" / "KILL")}
    assert says(look(settings_of(place, nowhere), "control"), FAULT, "takes no kill switch")[0]
    pid = {"control": "signal", "signal_pid_file": str(place / "pid")}
    assert says(look(settings_of(place, pid), "control"), WARNING, "nobody would be signalled")[0]
    assert says(look(settings_of(place, {"control": "signal"}), "control"), OK, "SIGTERM")[0]


def test_a_watchdog_that_is_there_silent_another_runs_or_not_there(place):
    assert says(look(settings_of(place), "watch"), WARNING, "no watchdog has ever")[0]
    inbox.announce(place / "run", Watcher("r", ("annotation",), "host9", 77, "armed"))
    assert says(look(settings_of(place), "watch"), OK, "process 77 on host9, breaker armed")[0]
    assert says(look(settings_of(place, {"name": "other"}), "watch"), FAULT, "watches 'r'")[0]
    path = inbox.requests_dir(place / "run") / inbox.WATCHER_FILE
    os.utime(path, (time.time() - 100,) * 2)
    assert says(look(settings_of(place), "watch"), FAULT, "was heard of 100 s ago")[0]
    inbox.withdraw(place / "run")
    assert says(look(settings_of(place), "watch"), WARNING, "nobody watches this run now")[0]


def test_a_supervisor_is_named_and_another_runs_is_a_fault(place):
    assert says(look(settings_of(place), "supervisor"), OK, "a person starts the trainer again")[0]
    supervised.make_directories(place / "run")
    supervised.announce(place / "run", Watcher("r", (), "host9", 77))
    assert says(look(settings_of(place), "supervisor"), OK, "process 77 on host9")[0]
    assert says(look(settings_of(place, {"name": "other"}), "supervisor"), FAULT, "runs 'r'")[0]


def test_logs_that_are_missing_or_old(place):
    assert says(look(settings_of(place), "logs"), OK, "1 files, written 0 s ago")[0]
    os.utime(place / "train.log", (time.time() - 7_200,) * 2)
    assert says(look(settings_of(place), "logs"), WARNING, "not written for 120 min")[0]
    assert says(look(settings_of(place, {"logs": ["/no/such/*.log"]}), "logs"), WARNING, "nothing matches")[0]
    os.mkfifo(place / "pipe.log")
    assert says(look(settings_of(place), "logs"), FAULT, "1 of 2 files")[0]


def test_checkpoints_without_a_directory_without_room_or_without_links(place, monkeypatch):
    assert says(look(settings_of(place, {"checkpoints": []}), "checkpoints"), WARNING, "no checkpoint is verified")[0]
    assert says(look(settings_of(place, {"checkpoints": ["/no/such"]}), "checkpoints"), FAULT, "there is no checkpoint")[0]
    real = os.statvfs(place)
    full = os.statvfs_result((real.f_bsize, 4096, 1_000_000, 10, 10, 5_000_000, 10, 10, 0, 255))
    monkeypatch.setattr(of_run.os, "statvfs", lambda _path: full)
    found = look(settings_of(place), "checkpoints")
    assert says(found, WARNING, "40,960 of 4,096,000,000 bytes are free")[0] and says(found, WARNING, "10 inodes")[0]
    monkeypatch.undo()

    def no_links(*_, **__):
        raise OSError(1, "no")

    monkeypatch.setattr(places.os, "link", no_links)
    assert says(look(settings_of(place), "checkpoints"), WARNING, "makes no hard links")[0]
    assert list((place / "checkpoints").iterdir()) == []


@needs_root
def test_another_user_is_told_what_it_may_not_do_and_how_it_may():
    """The dashboard's user in front of a run that the trainer's user made with umask 077."""
    base = Path(tempfile.mkdtemp(prefix="trainvitals-doctor-"))
    base.chmod(0o755)
    try:
        run = base / "run"
        run.mkdir(mode=0o700)
        init(run, "r")
        os.chown(run, TRAINER, TRAINER)
        settings = settings_of(base, {"dir": str(run), "logs": [], "checkpoints": [str(base)]})
        told = as_user(DASHBOARD, lambda: look(settings, "run directory"), GROUP)()["is"]
        assert told[0][0] == FAULT and f"{DASHBOARD} may not read" in told[0][1] and "chmod g+rxs" in told[0][1]
        assert main(["control", "init", str(run), "--group", str(GROUP)]) == 0
        told = as_user(DASHBOARD, lambda: [*look(settings, "run directory"), *look(settings, "control")], GROUP)()["is"]
        assert FAULT not in {state for state, _ in told} and "another user of the group" not in str(told)
        inbox.announce(run, Watcher("r", (), "host9", 77, "off"))
        supervised.make_directories(run)
        supervised.announce(run, Watcher("r", (), "host9", 77))
        for path in (run, *run.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        told = as_user(STRANGER, lambda: [*look(settings, "watch"), *look(settings, "supervisor"), *look(settings, "control")])()[
            "is"
        ]
        assert told[0][0] == OK and "process 77" in told[0][1], "who may only look is told what can be seen"
        assert told[1][0] == WARNING and "be a member of the group" in told[1][1] and FAULT not in {state for state, _ in told}
        told = as_user(DASHBOARD, lambda: look(settings, "checkpoints"), GROUP)()["is"]
        assert "the safe checkpoint cannot be kept" in str(told)
    finally:
        shutil.rmtree(base)
