"""Trainers that are controlled in their own way: real processes, parked by a real watchdog turn by turn."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainvitals.cli.watch import build
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.control import ControlClient, files, init, look, read_status
from trainvitals.control.audited import ask
from trainvitals.errors import SettingsError
from trainvitals.records import Event, Step
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch import control_adapter
from trainvitals.watch.control_adapter import UNSURE, ControlAdapter
from trainvitals.watch.own_way import KillSwitch, Trainer, TrainerSignal
from trainvitals.watch.proc import read_process

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("own_way_trainer.py")
WAIT_S = 60.0
HOST = os.uname().nodename
FOR_EVER = (0, 2**62)


class Bench:
    """A run directory, a trainer as a child process, and its watchdog."""

    def __init__(self, tmp_path, kind, **settings):
        self.dir = tmp_path / "run"
        self.dir.mkdir()
        self.log, self.place, self.kind = tmp_path / "train.log", tmp_path / "place", kind
        table = {"name": "r", "dir": str(self.dir), "logs": [str(self.log)], "log_format": "megatron"} | settings
        self.settings = parse({"store": f"sqlite://{tmp_path}/store.db", "runs": [table], "watch": {"poll_s": 0.05}})
        self.store = SqliteStore(tmp_path / "store.db")
        self.processes = []
        self.watch()

    def watch(self):
        self.watchdog = build(self.settings, self.settings.runs[0], self.store, SystemClock(), scan_in_thread=False)
        self.watchdog.restore()

    def train(self):
        argv = [sys.executable, str(SCRIPT), self.kind, str(self.dir), str(self.log), str(self.place), str(ROOT)]
        self.processes.append(subprocess.Popen(argv))
        return self.processes[-1]

    def ask(self, action, **more):
        return ask(self.dir, "r", action=action, by="ana", source="ui", reason="a look", **more).request

    def until(self, is_true):
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            self.watchdog.turn()
            status = read_status(self.dir)
            if status is not None and is_true(status):
                return status
            time.sleep(0.05)
        raise AssertionError(f"it never became true: {read_status(self.dir)}")

    @property
    def saved(self):
        return [path.name for path in self.dir.glob("saved.*")]

    @property
    def sentence(self):
        return look(self.dir, time.time_ns()).sentence

    def findings(self):
        self.watchdog.turn()
        return {event.data["rule"] for event in self.store.events("r", ["finding"], *FOR_EVER)}

    def control_states(self):
        return [event.data["state"] for event in self.store.events("r", ["control"], *FOR_EVER)]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(control_adapter, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(control_adapter, "HEARTBEAT_S", 0.1)
    made = []

    def make(kind, **settings):
        made.append(Bench(tmp_path, kind, **settings))
        return made[-1]

    yield make
    for one in made:
        one.watchdog.close()
        one.store.close()
        for process in one.processes:
            process.kill()
            process.wait(WAIT_S)


def test_a_kill_switch_parks_the_trainer_holds_it_back_and_is_taken_away_by_a_resume(bench, tmp_path):
    run = bench("kill_switch", control="kill_switch", kill_switch_path=str(tmp_path / "place"))
    trainer = run.train()
    assert run.until(lambda s: (s.step or 0) > 3).state == "running"
    run.ask("pause")
    parked = run.until(lambda s: s.applied_seq == 1)
    assert trainer.wait(WAIT_S) == 0 and len(run.saved) == 1
    assert (parked.state, parked.how, parked.ended, parked.desired) == ("stopped", "park", True, "paused")
    assert (parked.by, parked.reason) == ("ana", "a look")
    assert run.saved == [f"saved.{parked.checkpoint_step}"], "as its log says"
    assert f"Parked at step {parked.step}, checkpoint {parked.step} (ana: a look)" in run.sentence
    assert run.place.read_text().startswith("trainvitals run r seq 1, asked for by ana: a look")
    assert run.train().wait(WAIT_S) == 0, "it refuses to start while the file is there"
    run.ask("resume")
    run.until(lambda s: s.applied_seq == 2)
    assert not run.place.exists()
    run.train()
    again = run.until(lambda s: s.state == "running" and not s.ended)
    assert (again.how, again.error) == ("", None)
    assert run.control_states() == ["pausing", "parked", "running"]
    assert not run.findings() & {"run_dead", "pause_not_honoured", "stall"}, "a park that was asked for wakes nobody"


@pytest.mark.parametrize("kind", ["signal", "signal_hook"])
def test_a_signal_parks_the_process_that_is_proven_to_be_the_trainer(bench, tmp_path, kind):
    """Found by its pid file, or by the header that its hook wrote."""
    pid_file = {"signal_pid_file": str(tmp_path / "place")} if kind == "signal" else {}
    run = bench(kind, control="signal", **pid_file)
    trainer = run.train()
    run.until(lambda s: (s.step or 0) > 3)
    run.ask("pause")
    parked = run.until(lambda s: s.applied_seq == 1)
    assert trainer.wait(WAIT_S) == 0 and len(run.saved) == 1
    assert (parked.state, parked.how, parked.error) == ("stopped", "park", None)
    until_s = time.monotonic() + WAIT_S
    while kind == "signal_hook" and not (ends := run.store.events("r", ["attempt_end"], *FOR_EVER)):
        assert time.monotonic() < until_s, "the watchdog itself finds the process gone"
        run.watchdog.turn()
        time.sleep(0.1)
    assert kind == "signal" or ends[0].data["reason"] == "requested: parked by ana: a look"
    assert not run.findings() & {"run_dead", "pause_not_honoured", "stall"}
    run.ask("resume")
    run.until(lambda s: s.applied_seq == 2)
    run.train()
    assert run.until(lambda s: s.state == "running" and not s.ended).how == ""


def test_a_stop_is_a_park_that_stays(bench, tmp_path):
    run = bench("kill_switch", control="kill_switch", kill_switch_path=str(tmp_path / "place"))
    run.train()
    run.until(lambda s: (s.step or 0) > 3)
    run.ask("stop")
    status = run.until(lambda s: s.applied_seq == 1)
    assert (status.state, status.how) == ("stopped", "")
    assert "Stopped at step" in run.sentence and run.place.exists()


def test_what_it_cannot_do_is_refused_in_words(bench, tmp_path):
    run = bench("kill_switch", control="kill_switch", kill_switch_path=str(tmp_path / "no" / "such" / "place"))
    run.until(lambda s: s.heartbeat_seq > 0)
    run.ask("checkpoint")
    assert "can only park it" in run.until(lambda s: s.refused_seq == 1).refusal
    run.ask("pause", how="hold")
    assert "it saves and ends" in run.until(lambda s: s.refused_seq == 2).refusal
    run.ask("pause", how="park")
    status = run.until(lambda s: s.refused_seq == 3)
    assert "No such file or directory" in status.refusal and status.state == "running"


def test_as_long_as_a_control_client_writes_the_status_it_does_nothing_and_says_so(bench, tmp_path):
    run = bench("kill_switch", control="kill_switch", kill_switch_path=str(tmp_path / "place"))
    client = ControlClient(run.dir, run="r", poll_s=0.02, pause_without_checkpoint=True)
    try:
        run.until(lambda s: s.pid == os.getpid())
        run.ask("pause")
        for _ in range(20):
            run.watchdog.turn()
            time.sleep(0.06)
        assert not run.place.exists()
        assert read_status(run.dir).pid == os.getpid(), "one writer"
        texts = " ".join(event.text for event in run.store.events("r", ["watch"], *FOR_EVER))
        assert "it is obeyed" in texts and "Remove that setting or the client" in texts
    finally:
        client.close()
    run.until(lambda s: s.hook_version.startswith("watch ") and s.state in ("pausing", "stopped"))
    assert run.place.exists(), "the client is gone; what is asked for still stands"


def test_a_kill_switch_of_somebody_else_is_never_removed(tmp_path):
    place = tmp_path / "place"
    way = KillSwitch(str(place), "r")
    request = init(tmp_path, "r")
    place.write_text("stop for the maintenance, ben\n")
    assert way.park(request, None) == ""
    assert "was not made from here" in way.release(request) and place.exists()
    place.unlink()
    assert way.park(request, None) == "" and way.release(request) == "" and not place.exists()
    assert way.release(request) == ""
    secret = tmp_path / "secret"
    secret.write_text("x")
    place.symlink_to(secret)
    assert "was not made from here" in way.release(request)
    assert way.park(request, None) == "" and secret.read_text() == "x"


@pytest.fixture
def sleeper():
    """A process that catches SIGTERM and tells of it."""
    code = "import os,signal,time\nsignal.signal(signal.SIGTERM, lambda *a: os.write(1, b'told\\n'))\nprint('up', flush=True)\nwhile 1: time.sleep(.01)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait(WAIT_S)
    process.stdout.close()


def way_of(**more):
    return TrainerSignal("TERM", "", HOST, read_process, **more)


def test_only_a_process_that_is_certainly_the_trainer_is_signalled(sleeper, tmp_path):
    request, now_ns = init(tmp_path, "r"), time.time_ns()
    right = Trainer(sleeper.pid, HOST, now_ns)
    for trainer, why in [
        (None, "no process of this attempt is known"),
        (Trainer(sleeper.pid, "elsewhere", now_ns), "a signal reaches only this host"),
        (Trainer(sleeper.pid, HOST, now_ns - 3_600 * 10**9), "is younger than the trainer"),
        (Trainer(os.getpid(), HOST, now_ns), "is no trainer"),
        (Trainer(os.getppid(), HOST, now_ns), "is no trainer"),
        (Trainer(1, HOST, now_ns), "is no trainer"),
        (Trainer(2**22 + 1, HOST, now_ns), "is gone"),
    ]:
        assert why in way_of().park(request, trainer)
    assert "in another container" in way_of(pid_namespace="a").park(request, Trainer(sleeper.pid, HOST, now_ns, "b"))
    assert way_of().park(request, right) == "" and sleeper.stdout.readline() == "told\n", "once"
    assert not way_of().is_gone(right)


def test_a_process_that_would_only_die_of_the_signal_is_left_alone(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    try:
        why = way_of().park(init(tmp_path, "r"), Trainer(process.pid, HOST, time.time_ns()))
        assert "does not catch SIGTERM: it would be killed without a checkpoint" in why and process.poll() is None
    finally:
        process.kill()
        process.wait(WAIT_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_process_of_another_user_is_left_alone(tmp_path):
    process = subprocess.Popen(["sleep", "60"], user=54_001, group=54_001, extra_groups=[])
    try:
        assert "belongs to 54001" in way_of().park(init(tmp_path, "r"), Trainer(process.pid, HOST, time.time_ns()))
    finally:
        process.kill()
        process.wait(WAIT_S)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [("", 0o600, "holds no process id"), ("-1\n", 0o600, "holds no process id"), ("12 34", 0o600, "no process id"),
     ("9" * 40, 0o600, "no process id"), ("4242\n", 0o666, "not everyone may write to"), (None, 0, "cannot be read")],
)  # fmt: skip
def test_a_pid_file_that_others_could_have_written_or_that_holds_no_number_signals_nobody(tmp_path, content, mode, why):
    path = tmp_path / "pid"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    assert why in TrainerSignal("TERM", str(path), HOST, read_process).park(init(tmp_path, "r"), None)


def test_a_pid_file_that_is_older_than_the_process_names_somebody_else(sleeper, tmp_path):
    path = tmp_path / "pid"
    path.write_text(f"{sleeper.pid}\n")
    os.utime(path, (time.time() - 3_600,) * 2)
    way = TrainerSignal("TERM", str(path), HOST, read_process)
    assert "is younger than the trainer" in way.park(init(tmp_path, "r"), None) and way.is_gone(None)


class Counting:
    """A way that only counts."""

    name, can_take_back = "signal", False

    def __init__(self):
        self.parked = 0
        self.dies = False

    def park(self, request, trainer):
        self.parked += 1
        if self.dies:
            raise SystemExit("killed after the signal was sent")
        return ""

    def release(self, request):
        return ""

    def is_gone(self, trainer):
        return False


def test_killed_at_the_moment_of_the_signal_it_is_not_sent_again_and_the_doubt_is_told(tmp_path):
    way, clock = Counting(), SystemClock()
    adapter = ControlAdapter(str(tmp_path), "r", way, clock, HOST)
    adapter.poll(0.0, clock.time_ns())
    ask(tmp_path, "r", action="pause", by="ana", source="ui", reason="a look")
    way.dies = True
    with pytest.raises(SystemExit):
        adapter.poll(2.0, clock.time_ns())
    way.dies = False
    again = ControlAdapter(str(tmp_path), "r", way, clock, HOST)
    for second in range(3):
        again.poll(float(second), clock.time_ns())
    status = read_status(tmp_path)
    assert way.parked == 1 and status.state == "pausing" and UNSURE in status.error
    ask(tmp_path, "r", action="resume", by="ana", source="ui", reason="again")
    again.poll(10.0, clock.time_ns())
    ask(tmp_path, "r", action="pause", by="ana", source="ui", reason="again")
    again.poll(12.0, clock.time_ns())
    assert way.parked == 2 and read_status(tmp_path).error is None


def test_a_watchdog_that_starts_anew_parks_nobody_again_and_remembers_who_did(tmp_path):
    way, clock = Counting(), SystemClock()
    adapter = ControlAdapter(str(tmp_path), "r", way, clock, HOST)
    adapter.take(Step(7, 1, 1, {}))
    ask(tmp_path, "r", action="pause", by="ana", source="ui", reason="a look")
    adapter.poll(0.0, clock.time_ns())
    again = ControlAdapter(str(tmp_path), "r", way, clock, HOST)
    again.restore(json.loads(json.dumps(adapter.to_state())))
    again.poll(0.0, clock.time_ns())
    end = again.take(Event("attempt_end", 1, attempt=1, data={"reason": "process gone"}))
    assert end.data["reason"] == "requested: parked by ana: a look" and end.data["said"] == "process gone"
    again.poll(2.0, clock.time_ns())
    status = read_status(tmp_path)
    assert (way.parked, status.state, status.applied_seq, status.applied_at_step) == (1, "stopped", 1, 7)


def test_a_death_that_nobody_asked_for_stays_one(tmp_path):
    adapter = ControlAdapter(str(tmp_path), "r", Counting(), SystemClock(), HOST)
    adapter.poll(0.0, 1)
    end = Event("attempt_end", 1, attempt=1, data={"reason": "process gone"})
    assert adapter.take(end) == end
    adapter.poll(2.0, 1)
    assert read_status(tmp_path).state == "stopped"


def test_a_trainer_that_is_started_against_the_wish_is_told_and_not_parked_again(tmp_path):
    way = Counting()
    adapter = ControlAdapter(str(tmp_path), "r", way, SystemClock(), HOST)
    adapter.take(Step(7, 1, 1, {}))
    ask(tmp_path, "r", action="pause", by="ana", source="ui", reason="a look")
    adapter.poll(0.0, time.time_ns())
    adapter.take(Event("attempt_end", 1, attempt=1, data={"reason": "process gone"}))
    adapter.poll(2.0, time.time_ns())
    adapter.take(Event("attempt_start", 2, attempt=2, data={"pid": 77, "host": HOST, "started_ns": 5}))
    adapter.take(Step(8, 2, 2, {}))
    adapter.poll(4.0, time.time_ns())
    status = read_status(tmp_path)
    assert way.parked == 1 and status.state == "running" and "although it is asked to be paused" in status.error
    end = adapter.take(Event("attempt_end", 1, attempt=2, data={"reason": "process gone"}))
    assert end.data["reason"] == "process gone", "that one dies by itself"


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 99}', b"\xff\x00"])
def test_unusable_control_files_do_nothing_and_are_told(tmp_path, content):
    way = Counting()
    adapter = ControlAdapter(str(tmp_path), "r", way, SystemClock(), HOST)
    init(tmp_path, "r")
    for name in (files.CONTROL_FILE, files.STATUS_FILE):
        path = files.control_dir(tmp_path) / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        adapter.poll(time.monotonic() + 1e6, time.time_ns())
        adapter._due_s = 0.0
        assert "cannot be used" in adapter.trouble and way.parked == 0
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


def test_an_hour_off_a_dashboards_clock_neither_kills_nor_revives_a_park(tmp_path):
    way, watch, dashboard = Counting(), ManualClock(), ManualClock()
    dashboard.advance(-3_600, wall_only=True)
    adapter = ControlAdapter(str(tmp_path), "r", way, watch, HOST)
    adapter.poll(watch.monotonic_s(), watch.time_ns())
    ask(tmp_path, "r", action="pause", by="ana", source="ui", reason="x", expires_s=60, clock=dashboard)
    watch.advance(2)
    adapter.poll(watch.monotonic_s(), watch.time_ns())
    assert way.parked == 1


def test_the_settings_say_what_is_missing():
    with pytest.raises(SettingsError, match="needs kill_switch_path"):
        parse({"runs": [{"name": "r", "dir": "/x", "control": "kill_switch"}]})
    with pytest.raises(SettingsError, match="TERM, USR1"):
        parse({"runs": [{"name": "r", "dir": "/x", "control": "signal", "signal": "KILL"}]})
