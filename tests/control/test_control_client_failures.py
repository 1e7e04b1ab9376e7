import os
import shutil
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.control import ControlClient, conversation, files, init, look, read_request, read_status
from trainvitals.control.records import ControlRequest


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
        release.wait(rig.timeout_s)
        return ControlRequest()

    monkeypatch.setattr(conversation, "read_request", blocks)
    assert blocked.wait(rig.timeout_s)
    for step in range(2, 1000):
        assert client.at_step(step) == "continue"
    assert not release.is_set()
    release.set()


def test_a_file_system_that_hangs_from_the_start_delays_training_once(rig, monkeypatch):
    release, waits = threading.Event(), []

    def blocks(run_dir):
        release.wait(rig.timeout_s)

    monkeypatch.setattr(conversation, "read_status", blocks)
    client = rig.start()
    monkeypatch.setattr(client._conversation.first_look, "wait", waits.append)
    for step in range(100):
        assert client.at_step(step) == "continue"
    assert client.at_start() is None
    assert len(waits) == 1 and waits[0] <= 5
    release.set()


@pytest.mark.parametrize("run_dir", [None, 5, object(), "", "\0"])
def test_a_client_with_wrong_arguments_does_not_raise(run_dir, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client = ControlClient(run_dir, poll_s="often", max_hold_s=1)
    assert client.at_start() is None
    assert client.at_step(1) == "continue"
    client.close()


def test_the_control_directory_may_vanish_and_is_made_again(rig):
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
    rig.eventually(lambda: client._conversation._heartbeat_seq > 3)
    client.close()
    assert capfd.readouterr().err.count("trainvitals control:") == 1


def test_a_run_directory_that_does_not_exist_leaves_training_as_it_is(rig, capfd):
    client = ControlClient(rig.run_dir / "missing", poll_s=rig.poll_s)
    rig.clients.append(client)
    assert client.at_start() is None
    assert client.at_step(1) == "continue"
    rig.eventually(lambda: client._conversation._has_warned)
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
    other = rig.beside()
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
    _, errors = child.communicate(timeout=rig.timeout_s)
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
    client = ControlClient(run_dir, run="r1", poll_s=0.01)
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
