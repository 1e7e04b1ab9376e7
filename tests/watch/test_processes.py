"""Child processes: real ones, a clock that the test moves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from trainvitals.clock import ManualClock
from trainvitals.watch.processes import FIRST_BACK_OFF_S, Child, Supervisor

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def supervised():
    started = []

    def start(*children):
        clock, said = ManualClock(), []
        supervisor = Supervisor(children, clock, said.append)
        started.append(supervisor)
        return supervisor, clock, said

    yield start
    for supervisor in started:
        supervisor.end_children()


def wait_for_end(pid: int) -> None:
    """Until the process is a zombie or gone; its parent (the supervisor under test) reaps it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def child(name="c", argv=SLEEPER, **more):
    return Child(name, argv, dict(os.environ), **more)


def test_a_child_that_is_killed_is_started_again_after_the_back_off(supervised):
    supervisor, clock, said = supervised(child())
    supervisor.turn()
    first = supervisor.pids()["c"]
    os.kill(first, signal.SIGKILL)
    wait_for_end(first)
    supervisor.turn()
    assert supervisor.pids() == {} and "killed by SIGKILL" in said[0]
    clock.advance(FIRST_BACK_OFF_S)
    supervisor.turn()
    assert supervisor.pids()["c"] != first


def test_a_child_that_keeps_dying_is_started_more_and_more_slowly(supervised):
    supervisor, clock, said = supervised(child(argv=[sys.executable, "-c", "raise SystemExit(3)"]))
    for wait_s in (0.5, 1.0, 2.0):
        supervisor.turn()
        wait_for_end(supervisor._running[0].process.pid)
        supervisor.turn()
        assert f"in {wait_s:g} s" in said[-1]
        clock.advance(wait_s)


def test_a_child_without_restart_stays_ended_and_the_run_is_over(supervised):
    supervisor, _clock, said = supervised(child(argv=[sys.executable, "-c", "raise SystemExit(0)"], restart=False))
    supervisor.turn()
    wait_for_end(supervisor._running[0].process.pid)
    supervisor.turn()
    assert supervisor.is_over and said == []


def test_a_program_that_is_not_there_is_said_and_tried_again(supervised):
    supervisor, clock, said = supervised(child(argv=["/nonexistent/program"]))
    supervisor.turn()
    assert "cannot be started" in said[0] and not supervisor.is_over
    clock.advance(1)
    supervisor.turn()
    assert len(said) == 2


def test_children_are_ended_with_the_supervisor(supervised):
    supervisor, _clock, _said = supervised(child("a"), child("b"))
    supervisor.turn()
    pids = supervisor.pids()
    supervisor.end_children()
    assert len(pids) == 2
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


ENDS_LAST = """
import os, select, signal, sys
def end(*_):
    select.select([], [], [], float(sys.argv[3]))
    open(sys.argv[1] + ".seen", "w").write(str(os.path.exists(sys.argv[2] + ".seen")))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "w").close()
while True:
    signal.pause()
"""


def test_who_watches_is_gone_before_the_others_are_told_to_end(supervised, tmp_path):
    first, last = tmp_path / "first", tmp_path / "last"
    watcher = child("watch", [sys.executable, "-c", ENDS_LAST, str(first), str(last), "0.5"], ends_first=True)
    trainer = child("trainer", [sys.executable, "-c", ENDS_LAST, str(last), str(first), "0"])
    supervisor, _clock, _said = supervised(trainer, watcher)
    supervisor.turn()
    for _ in range(1_200):
        if first.exists() and last.exists():
            break
        select.select([], [], [], 0.05)
    supervisor.end_children()
    assert (tmp_path / "first.seen").read_text() == "False", "the trainer still ran when the watchdog ended"
    assert (tmp_path / "last.seen").read_text() == "True"


def test_output_goes_to_the_log_file(supervised, tmp_path):
    log = tmp_path / "logs" / "child.log"
    supervisor, _clock, _said = supervised(child(argv=[sys.executable, "-c", "print('hello')"], restart=False, log_path=str(log)))
    supervisor.turn()
    wait_for_end(supervisor._running[0].process.pid)
    supervisor.end_children()
    assert log.read_text() == "hello\n"


def test_a_kill_of_the_supervisor_leaves_the_children_running(tmp_path):
    program = f"""
import sys
from trainvitals.watch.processes import Child, run_children
import os
def ready():
    print("ready", flush=True)
run_children([Child("c", [sys.executable, "-c", "import os,signal; open({str(tmp_path / "pid")!r},'w').write(str(os.getpid())); signal.pause()"], dict(os.environ), log_path={str(tmp_path / "log")!r})], on_ready=ready)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"ready\n"
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()

    pid = None
    for _ in range(200):
        text = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
        if text:
            pid = int(text)
            break
        select.select([], [], [], 0.05)
    assert pid is not None
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
