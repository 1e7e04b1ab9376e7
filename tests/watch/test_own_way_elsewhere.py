"""The trainer's own way, where a file does not mean what it seems to: another host's process id, a kill switch that leads nowhere."""

import os
import subprocess
import sys
import time

import pytest

from trainvitals.control.records import ControlRequest
from trainvitals.watch.own_way import KillSwitch, Trainer, TrainerSignal
from trainvitals.watch.proc import read_process

HOST = os.uname().nodename
REQUEST = ControlRequest(run="r", seq=1, desired="paused", by="ana", reason="a look")


@pytest.fixture
def victim():
    """A process that would take the signal."""
    code = "import os,signal,time\nsignal.signal(signal.SIGTERM, lambda *a: os.write(1, b'told\\n'))\nprint('up', flush=True)\nwhile 1: time.sleep(.01)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait(60)
    process.stdout.close()


def way_of(path, is_shared=False):
    return TrainerSignal("TERM", str(path), HOST, read_process, is_shared=lambda _: is_shared)


@pytest.mark.parametrize(
    ("behind", "of_hook", "is_shared", "why"),
    [
        ("", "gpu-7", False, "the trainer runs on gpu-7"),
        ("", "gpu-7", True, "the trainer runs on gpu-7"),
        ("", None, True, "lies where other hosts write, too"),
        (" gpu-7", None, False, "names a process of gpu-7"),
        (" gpu-7", "gpu-7", True, "names a process of gpu-7"),
        (" gpu-7", HOST, False, "names a process of gpu-7"),
        (" gpu 7", None, False, "holds no process id"),
        (" ../x", None, False, "holds no process id"),
    ],
)
def test_a_number_that_another_host_may_have_written_signals_nobody_here(victim, tmp_path, behind, of_hook, is_shared, why):
    path = tmp_path / "pid"
    path.write_text(f"{victim.pid}{behind}\n")
    trainer = Trainer(victim.pid, of_hook, time.time_ns()) if of_hook else None
    way = way_of(path, is_shared)
    assert why in way.park(REQUEST, trainer) and not way.is_gone(trainer)
    assert way.park(REQUEST, trainer).isprintable()
    path.write_text(f"{victim.pid} {HOST}\n")
    assert way.park(REQUEST, trainer) == "" and victim.stdout.readline() == "told\n", "once, and only when the host is named"


@pytest.mark.parametrize(("of_hook", "is_shared"), [(None, False), (HOST, False), (HOST, True)])
def test_a_bare_number_is_enough_where_it_can_only_be_of_this_host(victim, tmp_path, of_hook, is_shared):
    path = tmp_path / "pid"
    path.write_text(f"{victim.pid}\n")
    trainer = Trainer(1, of_hook, time.time_ns()) if of_hook else None
    assert way_of(path, is_shared).park(REQUEST, trainer) == "" and victim.stdout.readline() == "told\n"


def test_the_end_of_another_hosts_process_is_not_concluded_from_what_runs_here(victim, tmp_path):
    path = tmp_path / "pid"
    path.write_text(f"{2**22 + 1}\n")
    assert not way_of(path).is_gone(Trainer(5, "gpu-7", time.time_ns())) and way_of(path).is_gone(None)


def test_a_kill_switch_that_leads_nowhere_is_refused_and_one_that_is_there_in_any_form_does(tmp_path):
    place = tmp_path / "KILL"
    way = KillSwitch(str(place), "r")
    place.symlink_to(tmp_path / "nowhere")
    assert "is a link to nowhere" in way.park(REQUEST, None) and not (tmp_path / "nowhere").exists()
    place.unlink()
    for make in (place.mkdir, lambda: os.mkfifo(place), place.touch):
        make()
        assert way.park(REQUEST, None) == ""
        place.rmdir() if place.is_dir() else place.unlink()
