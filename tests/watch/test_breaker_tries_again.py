"""An armed breaker whose pause was refused for a moment asks again until it stands, or says that it gave up."""

import math
import os

import pytest

from tests.watch.test_watchdog import Bench
from trainvitals.control import init, read_request, submit
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.errors import InputError
from trainvitals.watch import breaker_action
from trainvitals.watch.breaker_action import BreakerAction


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, breaker="armed")
    made.status = ControlStatus(run="r")
    init(made.dir, "r")
    made.header()
    made.train(0, 120)
    made.watchdog.turn()
    made.train(120, 4, loss=math.nan)
    yield made
    made.store.close()


def decisions(bench):
    return [event.data["decision"] for event in bench.events("breaker")]


def claim(bench):
    """Somebody's command line between its two files, or killed there."""
    path = bench.dir / "control" / "history" / "1.json"
    path.write_text(ControlRequest(run="r", seq=1, action="checkpoint", by="eve", checkpoint_request=1).to_json())
    return path


def turn(bench, seconds=1):
    bench.clock.advance(seconds)
    bench.watchdog.turn()


def test_a_request_at_the_same_moment_does_not_save_the_training_from_being_paused(bench):
    path = claim(bench)
    bench.watchdog.turn()
    assert read_request(bench.dir).seq == 0 and decisions(bench) == ["count", "refused"]
    turn(bench)
    assert decisions(bench) == ["count", "refused"]  # told once
    os.utime(path, (0, 0))
    turn(bench, 5)
    request = read_request(bench.dir)
    assert (request.desired, request.by, request.seq) == ("paused", "breaker", 2)
    turn(bench)
    assert decisions(bench) == ["count", "refused", "paused"] and read_request(bench.dir).seq == 2


def test_a_watchdog_that_is_started_again_meanwhile_goes_on_asking(bench):
    path = claim(bench)
    bench.watchdog.turn()
    os.utime(path, (0, 0))
    bench.start()
    turn(bench, 5)
    assert read_request(bench.dir).by == "breaker" and decisions(bench)[-1] == "paused"


def test_it_gives_up_when_the_trip_is_history_and_says_so(bench, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(breaker_action, "ask", full)
    bench.watchdog.turn()
    for _ in range(20):
        turn(bench, 5)
    assert decisions(bench) == ["count", "refused", "gave_up"]
    assert "pause it by hand" in bench.events("breaker")[-1].text


def test_a_pause_that_somebody_asked_for_meanwhile_is_enough(bench):
    claim(bench)
    bench.watchdog.turn()
    (bench.dir / "control" / "history" / "1.json").unlink()
    submit(bench.dir, "r", action="pause", by="alice", source="cli", reason="I saw it, too")
    turn(bench, 5)
    assert read_request(bench.dir).by == "alice" and decisions(bench)[-1] == "paused"


def test_a_stop_that_somebody_asked_for_is_not_turned_into_a_pause(bench):
    submit(bench.dir, "r", action="stop", by="alice", source="cli", reason="enough")
    bench.watchdog.turn()
    assert read_request(bench.dir).desired == "stopped" and decisions(bench) == ["count", "stopping"]
    assert "because alice has asked the trainer to stop" in bench.events("breaker")[-1].text


@pytest.mark.parametrize("error", [InputError("half written"), OSError(5, "Input/output error")])
def test_a_status_that_cannot_be_read_neither_ends_the_watchdog_nor_the_pause(bench, error):
    looks = iter([error])

    def read(run_dir):
        for once in looks:
            raise once
        return ControlStatus(run="r")

    bench.watchdog._breaker._read = read
    bench.watchdog.turn()
    turn(bench, 2)
    assert read_request(bench.dir).by == "breaker" and decisions(bench)[-1] == "paused"


def test_a_trip_is_one_request_however_many_trips_wait(bench):
    assert isinstance(bench.watchdog._breaker, BreakerAction)
    claim(bench)
    bench.watchdog.turn()
    (bench.dir / "control" / "history" / "1.json").unlink()
    bench.train(124, 6, loss=math.nan)
    for _ in range(5):
        turn(bench, 5)
    assert read_request(bench.dir).seq == 1 and decisions(bench).count("paused") == 1
