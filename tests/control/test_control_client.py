import contextlib
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control import ControlClient, conversation, files, init, look, read_request, read_status, submit
from trainvitals.control.records import ControlRequest

TIMEOUT_S = 20.0
POLL_S = 0.01


def eventually(is_true):
    """Wait for a thread's work; fails instead of hanging."""
    nothing = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.005)):
        if is_true():
            return
        nothing.wait(0.005)
    pytest.fail("it never became true")


class Sink:
    """Keeps what the client tells the recorder."""

    def __init__(self):
        self.events = []
        self.phases = []

    def event(self, kind, /, step=None, text="", **data):
        self.events.append({"kind": kind, "step": step, "text": text} | data)

    def phase(self, name, state="begin"):
        self.phases.append((name, state))

    @property
    def states(self):
        return [event["state"] for event in self.events]


class Rig:
    """A run directory, a client, and a training loop that a test steps."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.saves = []
        self.sink = Sink()
        self.clients = []
        self.client = None
        self.loop = None
        self.answer = None

    def start(self, **options):
        if self.client is not None:
            self.client.close()
        given = {"on_checkpoint": self.saves.append, "poll_s": POLL_S, "recorder": self.sink, "run": "r1"} | options
        self.client = ControlClient(self.run_dir, **given)
        self.clients.append(self.client)
        return self.client

    def ask(self, action, **options):
        given = {"by": "alice", "source": "cli", "reason": "loss spike"} | options
        request = submit(self.run_dir, "r1", action=action, **given)
        return request

    def asked(self, action, **options):
        """Ask, and wait until the client's thread has seen it."""
        request = self.ask(action, **options)
        self.until(lambda status: status.ack_seq == request.seq)
        return request

    def until(self, is_true):
        def looks():
            status = read_status(self.run_dir)
            return status is not None and is_true(status)

        eventually(looks)
        return read_status(self.run_dir)

    def hold(self, step):
        """Call at_step in a thread, because it is expected to hold."""

        def body():
            self.answer = self.client.at_step(step)

        self.answer = None
        self.loop = threading.Thread(target=body, daemon=True)
        self.loop.start()

    def released(self):
        self.loop.join(TIMEOUT_S)
        assert not self.loop.is_alive()
        return self.answer


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    if made.loop is not None and made.loop.is_alive():
        with contextlib.suppress(Exception):
            submit(made.run_dir, "", action="stop", by="test", source="cli", reason="end of the test")
        made.loop.join(5)
    for client in made.clients:
        client.close()


def test_without_a_request_training_goes_on_and_the_status_says_running(rig):
    client = rig.start()
    assert client.at_start() is None
    assert client.at_step(7) == "continue"
    status = rig.until(lambda s: s.step == 7)
    assert (status.state, status.attempt, status.run, status.pid, status.error) == ("running", 1, "r1", os.getpid(), None)


def test_the_heartbeat_goes_on_while_a_step_is_long_and_shows_its_age(rig):
    clock = ManualClock()
    rig.start(clock=clock).at_step(3)
    first = rig.until(lambda s: s.step == 3)
    clock.advance(120)
    later = rig.until(lambda s: s.heartbeat_seq > first.heartbeat_seq and s.step_age_s == 120.0)
    assert later.step == 3
    assert look(rig.run_dir, clock.time_ns()).sentence == "Running, last step 3, 2 min ago."


def test_pause_saves_holds_and_resume_goes_on(rig):
    rig.start().at_step(1)
    rig.asked("pause")
    rig.hold(12)
    paused = rig.until(lambda s: s.state == "paused")
    assert (paused.applied_seq, paused.applied_at_step, paused.checkpoint_step) == (1, 12, 12)
    assert (paused.by, paused.reason) == ("alice", "loss spike")
    assert paused.pause_started_ns is not None
    assert look(rig.run_dir, paused.heartbeat_ns).sentence == "Paused at step 12, checkpoint 12 (alice: loss spike)."
    beat = paused.heartbeat_seq
    rig.until(lambda s: s.heartbeat_seq > beat + 2 and s.state == "paused")
    assert rig.loop.is_alive()
    rig.ask("resume", reason="data was fine")
    assert rig.released() == "continue"
    running = rig.until(lambda s: s.state == "running" and s.applied_seq == 2)
    assert running.pause_started_ns is None
    assert rig.client.at_step(13) == "continue"
    assert rig.saves == [12]
    assert rig.sink.states == ["paused", "running"]
    assert rig.sink.phases == [("paused", "begin"), ("paused", "end")]
    event = rig.sink.events[0]
    assert (event["kind"], event["step"], event["seq"], event["by"], event["reason"]) == ("control", 12, 1, "alice", "loss spike")
    assert event["latency_s"] >= 0


def test_the_pause_is_seen_while_its_checkpoint_is_written(rig):
    saving, go_on = threading.Event(), threading.Event()

    def save(step):
        saving.set()
        go_on.wait(TIMEOUT_S)

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    rig.hold(5)
    assert saving.wait(TIMEOUT_S)
    rig.until(lambda s: s.state == "pausing")
    assert look(rig.run_dir, 0).sentence.startswith("Pausing: checkpoint at step 5")
    go_on.set()
    rig.until(lambda s: s.state == "paused")


def test_a_resume_while_pausing_ends_the_pause_at_once(rig):
    saving, go_on = threading.Event(), threading.Event()

    def save(step):
        saving.set()
        go_on.wait(TIMEOUT_S)

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    rig.hold(5)
    assert saving.wait(TIMEOUT_S)
    rig.asked("resume")
    go_on.set()
    assert rig.released() == "continue"
    assert rig.until(lambda s: s.applied_seq == 2).state == "running"


@pytest.mark.parametrize(
    ("save", "told"),
    [(None, "gave no on_checkpoint"), (lambda step: False, "returned False"), (lambda step: 1 / 0, "ZeroDivision")],
)
def test_a_pause_without_a_checkpoint_is_refused_and_training_goes_on(rig, save, told):
    rig.start(on_checkpoint=save)
    rig.asked("pause")
    assert rig.client.at_step(5) == "continue"
    status = rig.until(lambda s: s.refused_seq == 1)
    assert status.state == "running" and told in status.error and told in status.refusal
    assert rig.client.at_step(6) == "continue"
    assert rig.sink.states == ["failed"]
    assert "was refused" in look(rig.run_dir, status.heartbeat_ns).sentence


def test_a_full_disk_while_pausing_is_reported_and_tried_again_only_when_asked_again(rig):
    tried = []

    def save(step):
        tried.append(step)
        raise OSError(28, "No space left on device")

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    for step in range(5, 9):
        assert rig.client.at_step(step) == "continue"
    assert tried == [5]
    assert "No space left" in rig.until(lambda s: s.refused_seq == 1).error
    assert rig.asked("pause").seq == 2
    rig.client.at_step(9)
    assert tried == [5, 9]


def test_pause_without_checkpoint_holds_and_says_so(rig):
    rig.start(on_checkpoint=None, pause_without_checkpoint=True)
    rig.asked("pause")
    rig.hold(5)
    status = rig.until(lambda s: s.state == "paused")
    assert "no on_checkpoint" in status.error
    assert "without a checkpoint of this step" in look(rig.run_dir, status.heartbeat_ns).sentence
    rig.ask("resume")
    assert rig.released() == "continue"


def test_a_checkpoint_request_raised_by_three_at_once_is_one_save(rig):
    init(rig.run_dir, "r1")
    rig.ask("checkpoint")
    rig.ask("checkpoint")
    rig.ask("checkpoint")
    client = rig.start()
    assert [client.at_step(step) for step in (20, 21, 22)] == ["continue"] * 3
    status = rig.until(lambda s: s.applied_seq == 3)
    assert (rig.saves, status.checkpoint_done, status.checkpoint_step) == ([20], 3, 20)
    rig.asked("checkpoint")
    client.at_step(23)
    assert rig.saves == [20, 23]


def test_a_failed_checkpoint_request_is_refused_and_not_repeated(rig):
    rig.start(on_checkpoint=lambda step: 1 / 0)
    rig.asked("checkpoint")
    rig.client.at_step(1)
    rig.client.at_step(2)
    status = rig.until(lambda s: s.refused_seq == 1)
    assert "ZeroDivisionError" in status.error and status.state == "running"
    assert rig.client.errors == 1


def test_a_checkpoint_asked_for_while_paused_at_a_saved_step_is_not_saved_twice(rig):
    rig.start()
    rig.asked("pause")
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    rig.ask("checkpoint")
    status = rig.until(lambda s: s.applied_seq == 2)
    assert (status.state, status.checkpoint_done, rig.saves) == ("paused", 1, [5])


def test_stop_saves_says_stopped_and_is_sticky(rig):
    rig.start()
    rig.asked("stop", reason="wrong data mix")
    assert rig.client.at_step(30) == "stop"
    assert rig.client.at_step(31) == "stop"
    status = read_status(rig.run_dir)
    assert (status.state, status.applied_seq, rig.saves) == ("stopped", 1, [30])
    client = rig.start()
    sentence = client.at_start()
    assert "alice" in sentence and "wrong data mix" in sentence and "control resume" in sentence
    assert client.refuses_start == sentence
    assert client.at_step(31) == "stop"
    assert rig.saves == [30]
    rig.asked("resume")
    assert client.at_start() is None
    assert client.at_step(32) == "continue"


def test_stop_ends_the_run_although_its_checkpoint_fails(rig):
    rig.start(on_checkpoint=lambda step: 1 / 0)
    rig.asked("stop")
    assert rig.client.at_step(30) == "stop"
    assert "without a new checkpoint" in read_status(rig.run_dir).error


def test_stop_while_paused_does_not_save_again(rig):
    rig.start()
    rig.asked("pause")
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    rig.ask("stop")
    assert rig.released() == "stop"
    assert rig.saves == [5]
    assert rig.sink.phases == [("paused", "begin"), ("paused", "end")]


PAUSING_TRAINER = """
import sys
from trainvitals.control import ControlClient
client = ControlClient(sys.argv[1], run="r1", on_checkpoint=lambda step: print("saved", step, flush=True), poll_s=0.01)
print("up", flush=True)
for step in range(5, 1000):
    client.at_step(step)
"""


def test_a_restart_while_paused_holds_at_its_first_step_and_saves_nothing(rig):
    rig.ask("pause")
    first = subprocess.Popen([sys.executable, "-c", PAUSING_TRAINER, str(rig.run_dir)], stdout=subprocess.PIPE, text=True)
    rig.until(lambda s: s.state == "paused")
    first.kill()
    assert first.communicate(timeout=TIMEOUT_S)[0].splitlines() == ["up", "saved 5"]
    rig.start()
    rig.hold(6)
    status = rig.until(lambda s: s.attempt == 2 and s.state == "paused")
    assert (rig.saves, status.applied_at_step, status.applied_seq) == ([], 6, 1)
    assert "held again after a restart" in rig.sink.events[0]["text"]
    rig.ask("resume")
    assert rig.released() == "continue"


def test_requests_that_were_carried_out_are_not_replayed_by_a_restart(rig):
    rig.start()
    rig.asked("checkpoint")
    rig.client.at_step(5)
    rig.start().at_step(6)
    assert rig.saves == [5]


def test_a_lower_number_after_a_restart_is_ignored_and_reported(rig):
    rig.start()
    for _ in range(3):
        rig.asked("checkpoint")
    rig.client.at_step(5)
    rig.until(lambda s: s.applied_seq == 3)
    old = ControlRequest(run="r1", seq=2, desired="stopped", by="eve", request_id="x")
    (rig.run_dir / "control" / "control.json").write_text(old.to_json())
    client = rig.start()
    assert client.at_start() is None
    assert client.at_step(6) == "continue"
    rig.until(lambda s: s.error is not None and "seq 2, but 3 was received" in s.error)


def test_a_change_by_hand_without_a_higher_number_is_ignored_and_reported(rig):
    rig.start()
    request = rig.asked("checkpoint")
    rig.client.at_step(5)
    changed = ControlRequest(run="r1", seq=request.seq, desired="stopped", request_id="by hand")
    (rig.run_dir / "control" / "control.json").write_text(changed.to_json())
    rig.until(lambda s: s.error is not None and "without a higher seq" in s.error)
    assert rig.client.at_step(6) == "continue"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b'{"schema":1,"run_id":"r1","seq":9,"desir', "half written"),
        (ControlRequest(run="other", seq=9, desired="stopped").to_json().encode(), "for the run 'other'"),
        (ControlRequest(run="r1", seq=9, desired="stopped").to_json().replace('"schema": 1', '"schema": 7').encode(), "schema 7"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_an_unusable_control_file_keeps_the_last_good_state(rig, content, told):
    rig.start()
    rig.asked("pause")
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    (rig.run_dir / "control" / "control.json").write_bytes(content)
    status = rig.until(lambda s: s.error is not None and told in s.error)
    assert status.state == "paused" and status.bad_reads >= 1 and rig.loop.is_alive()
    assert rig.ask("resume").seq >= 2
    assert rig.released() == "continue"


def test_a_directory_in_place_of_the_control_file_leaves_training_as_it_is(rig):
    (rig.run_dir / "control").mkdir()
    (rig.run_dir / "control" / "control.json").mkdir()
    client = rig.start()
    assert client.at_start() is None
    assert client.at_step(1) == "continue"
    assert "not a regular file" in rig.until(lambda s: s.error is not None).error


@pytest.mark.parametrize("number", [5, 13, 116])  # EIO, EACCES, ESTALE
def test_an_error_of_the_file_system_leaves_training_as_it_is(rig, monkeypatch, number):
    def fails(run_dir):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(conversation, "read_request", fails)
    client = rig.start()
    assert client.at_step(1) == "continue"
    assert os.strerror(number) in rig.until(lambda s: s.error is not None).error


def test_a_read_that_blocks_does_not_block_a_step(rig, monkeypatch):
    blocked, release = threading.Event(), threading.Event()
    client = rig.start()
    client.at_step(1)

    def blocks(run_dir):
        blocked.set()
        release.wait(TIMEOUT_S)
        return ControlRequest()

    monkeypatch.setattr(conversation, "read_request", blocks)
    assert blocked.wait(TIMEOUT_S)
    for step in range(2, 1000):
        assert client.at_step(step) == "continue"
    assert not release.is_set()
    release.set()


def test_the_control_directory_may_vanish_and_is_made_again(rig):
    import shutil

    rig.start().at_step(1)
    rig.asked("checkpoint")
    rig.client.at_step(2)
    shutil.rmtree(rig.run_dir / "control", ignore_errors=True)
    rig.until(lambda s: s.applied_seq == 1)
    assert rig.client.at_step(3) == "continue"
    assert rig.asked("pause").seq == 2
    rig.hold(4)
    rig.until(lambda s: s.state == "paused")


def test_a_status_that_cannot_be_written_is_warned_of_once_and_training_goes_on(rig, capfd):
    (rig.run_dir / "control").mkdir(mode=0o770)
    (rig.run_dir / "control" / "control_status.json").mkdir()
    client = rig.start()
    for step in range(20):
        assert client.at_step(step) == "continue"
    eventually(lambda: client._conversation._heartbeat_seq > 3)
    client.close()
    assert capfd.readouterr().err.count("trainvitals control:") == 1


def test_a_run_directory_that_does_not_exist_leaves_training_as_it_is(rig, capfd):
    client = ControlClient(rig.run_dir / "missing", poll_s=POLL_S)
    rig.clients.append(client)
    assert client.at_start() is None
    assert client.at_step(1) == "continue"
    eventually(lambda: client._conversation._has_warned)
    assert "no run directory" in capfd.readouterr().err


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_dashboard_clock_that_is_an_hour_off_neither_kills_nor_revives_a_request(rig, hours):
    trainer, dashboard = ManualClock(), ManualClock()
    dashboard.advance(hours * 3600, wall_only=True)
    rig.start(clock=trainer).at_step(1)
    rig.until(lambda s: s.heartbeat_seq > 0)
    rig.asked("pause", clock=dashboard, expires_s=60)
    rig.hold(2)
    rig.until(lambda s: s.state == "paused")
    rig.ask("resume", clock=dashboard)
    assert rig.released() == "continue"
    rig.asked("pause", clock=dashboard, expires_s=60)
    trainer.advance(61)  # the step now running is longer than the request lives
    assert rig.client.at_step(3) == "continue"
    assert "expired" in rig.until(lambda s: s.refused_seq == 3).refusal
    assert rig.sink.states[-1] == "expired"


def test_a_request_that_expired_before_the_trainer_started_is_not_carried_out(rig):
    clock = ManualClock()
    rig.ask("stop", clock=clock, expires_s=60)
    clock.advance(60 + 299)
    client = rig.start(clock=clock)
    assert client.at_start() is not None  # within five minutes the clocks may just differ
    clock.advance(2)
    other = Rig(rig.run_dir)
    rig.client.close()
    (rig.run_dir / "control" / "control_status.json").unlink()
    other.start(clock=clock)
    assert other.client.at_start() is None
    assert other.client.at_step(1) == "continue"
    assert "expired" in other.until(lambda s: s.refused_seq == 1).refusal
    other.client.close()


def test_an_applied_pause_does_not_end_by_expiring(rig):
    clock = ManualClock()
    rig.start(clock=clock)
    rig.asked("pause", clock=clock, expires_s=60)
    rig.hold(2)
    paused = rig.until(lambda s: s.state == "paused")
    clock.advance(3600)
    rig.until(lambda s: s.heartbeat_seq > paused.heartbeat_seq + 3)
    assert rig.loop.is_alive()


def test_the_longest_allowed_hold_ends_by_itself_and_stays_ended(rig):
    clock = ManualClock()
    rig.start(clock=clock, max_hold_s=1800)
    rig.asked("pause", clock=clock)
    rig.hold(2)
    rig.until(lambda s: s.state == "paused")
    clock.advance(1801)
    assert rig.released() == "continue"
    assert rig.client.at_step(3) == "continue"
    status = rig.until(lambda s: s.state == "running")
    assert "longest allowed hold" in status.error
    assert rig.sink.states == ["paused", "hold_ended"]
    assert rig.start(clock=clock).at_step(4) == "continue"


def test_a_request_for_a_later_step_waits_for_that_step(rig):
    init(rig.run_dir, "r1")
    later = ControlRequest(run="r1", seq=1, desired="stopped", request_id="x", valid_from_step=10, issued_at_ns=1)
    client = rig.start()
    (rig.run_dir / "control" / "control.json").write_text(later.to_json())
    rig.until(lambda s: s.ack_seq == 1)
    assert client.at_step(9) == "continue"
    assert client.at_step(10) == "stop"


def test_a_recorder_that_raises_does_not_disturb_the_pause(rig):
    class Broken:
        def event(self, *args, **data):
            raise RuntimeError("broken")

        phase = event

    rig.start(recorder=Broken())
    rig.asked("checkpoint")
    assert rig.client.at_step(1) == "continue"
    assert rig.client.errors == 1 and rig.saves == [1]


def test_a_step_that_is_no_number_does_not_raise(rig):
    client = rig.start()
    rig.asked("checkpoint")
    assert client.at_step("many") == "continue"
    assert client.errors == 1


def test_close_says_good_bye(rig):
    rig.start().at_step(9)
    rig.client.close()
    status = read_status(rig.run_dir)
    assert status.ended and status.state == "stopped"
    assert look(rig.run_dir, status.heartbeat_ns).sentence == "The trainer has ended at step 9."


def test_ctrl_c_gets_through_a_hold(rig):
    code = (
        "import sys, signal\nfrom trainvitals.control import ControlClient, submit\n"
        "d = sys.argv[1]\n"
        "submit(d, '', action='pause', by='a', source='cli', reason='b')\n"
        "c = ControlClient(d, on_checkpoint=lambda s: None, poll_s=0.01)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nprint('up', flush=True)\nc.at_step(1)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(rig.run_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "up\n"
    rig.until(lambda s: s.state == "paused")
    child.send_signal(2)
    _, errors = child.communicate(timeout=TIMEOUT_S)
    assert "KeyboardInterrupt" in errors
    assert read_status(rig.run_dir).ended


def test_a_forked_child_neither_obeys_nor_writes(rig):
    client = rig.start()
    client.at_step(1)
    child = os.fork()
    if child == 0:
        answer = client.at_step(2)
        client.close()
        os._exit(0 if answer == "continue" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert rig.until(lambda s: s.heartbeat_seq > 2).pid == os.getpid()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_in_the_control_file_never_stop_training(tmp_path_factory, content):
    run_dir = tmp_path_factory.mktemp("run")
    files.make_directories(run_dir)
    (run_dir / "control" / "control.json").write_bytes(content)
    client = ControlClient(run_dir, run="r1", poll_s=POLL_S)
    try:
        assert client.at_start() is None
        assert client.at_step(1) == "continue"
        assert client.errors == 0
    finally:
        client.close()
    assert read_status(run_dir).bad_reads >= 1


def test_a_human_resume_has_the_last_word_over_the_breaker(rig):
    rig.start()
    rig.asked("pause", by="breaker", source="breaker", reason="3 non-finite points in a row")
    rig.hold(5)
    paused = rig.until(lambda s: s.state == "paused")
    assert (paused.source, paused.by) == ("breaker", "breaker")
    human = rig.ask("resume", by="alice", reason="known spike")
    assert rig.released() == "continue"
    assert read_request(rig.run_dir) == human
