import os
import subprocess
import sys
import threading

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control import init, look, read_status


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
        go_on.wait(rig.timeout_s)

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    rig.hold(5)
    assert saving.wait(rig.timeout_s)
    rig.until(lambda s: s.state == "pausing")
    assert look(rig.run_dir, 0).sentence.startswith("Pausing: checkpoint at step 5")
    go_on.set()
    rig.until(lambda s: s.state == "paused")


def test_a_resume_while_pausing_ends_the_pause_at_once(rig):
    saving, go_on = threading.Event(), threading.Event()

    def save(step):
        saving.set()
        go_on.wait(rig.timeout_s)

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    rig.hold(5)
    assert saving.wait(rig.timeout_s)
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
    assert first.communicate(timeout=rig.timeout_s)[0].splitlines() == ["up", "saved 5"]
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
