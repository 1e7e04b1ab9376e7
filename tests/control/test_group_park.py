"""Hold and park: what a single client does with the request's ``how``, and what is drained first."""

import dataclasses
import json
import threading

import pytest

from trainvitals.__main__ import main
from trainvitals.clock import ManualClock
from trainvitals.control import look, read_request, read_status
from trainvitals.control.group import Alone, PeersLost
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.errors import ControlError, InputError
from trainvitals.hook.group_flow import FlagFlow, SavedSteps


def test_a_park_saves_ends_the_loop_and_says_so(rig):
    client = rig.start(can_park=True)
    rig.asked("pause", how="park")
    assert client.at_step(7) == "park" and client.at_step(8) == "park" and client.exit_code == 75
    status = read_status(rig.run_dir)
    assert (status.state, status.how, status.desired, status.checkpoint_step) == ("stopped", "park", "paused", 7)
    assert (rig.saves, rig.sink.states, rig.sink.ends) == ([7], ["stopped"], ["stopped: parked"])
    assert rig.sink.events[0]["text"] == "parked" and rig.sink.phases == []
    client.close()
    told = look(rig.run_dir, status.heartbeat_ns).sentence
    assert told == (
        "Parked at step 7, checkpoint 7 (alice: loss spike); its nodes are free once its launcher ends. After a resume it has to be started again."
    )


def test_a_parked_run_that_is_started_again_refuses_to_start_until_it_is_resumed(rig):
    rig.start(can_park=True)
    rig.asked("pause", how="park")
    rig.client.at_step(7)
    client = rig.start(can_park=True)
    sentence = client.at_start()
    assert sentence.startswith("The run was parked by alice (loss spike; seq 1) and stays parked until somebody resumes it")
    assert client.exit_code == 75 and client.at_step(8) == "park" and rig.saves == [7]
    rig.asked("resume")
    assert client.at_start() is None and client.at_step(9) == "continue" and client.exit_code == 0


def test_a_held_run_that_was_killed_holds_again_and_is_not_taken_for_a_parked_one(rig):
    rig.start(can_park=True)
    rig.asked("pause")
    rig.hold(5)
    assert rig.until(lambda s: s.state == "paused").how == "hold"
    other = rig.beside().start(can_park=True)
    assert other.at_start() is None
    other.close()
    rig.ask("resume")
    rig.released()


def test_a_save_that_fails_refuses_the_park(rig):
    client = rig.start(can_park=True, on_checkpoint=lambda step: 1 / 0)
    rig.asked("pause", how="park")
    assert client.at_step(7) == "continue"
    assert rig.until(lambda s: s.refused_seq == 1).state == "running"


def test_a_held_run_can_be_parked_without_another_save(rig):
    rig.start(can_park=True)
    rig.asked("pause", how="hold")
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    assert rig.ask("pause").seq == 1  # it stands already
    assert rig.ask("pause", how="park").seq == 2
    assert rig.released() == "park"
    assert rig.saves == [5] and rig.sink.phases == [("paused", "begin"), ("paused", "end")]


def test_a_checkpoint_asked_for_while_a_park_waits_keeps_what_was_asked(rig):
    rig.ask("pause", how="park")
    assert (rig.ask("checkpoint").how, read_request(rig.run_dir).desired) == ("park", "paused")


def test_a_loop_that_cannot_be_parked_holds_and_says_so(rig):
    rig.start()
    rig.asked("pause", how="park")
    rig.hold(5)
    status = rig.until(lambda s: s.state == "paused")
    assert status.how == "hold" and "how" not in status.understands
    assert rig.sink.events[0]["text"] == "held, because this loop cannot be parked"
    rig.ask("resume")
    assert rig.released() == "continue"


def test_a_hold_that_lasts_too_long_parks_and_one_asked_for_by_name_stays(rig):
    clock = ManualClock()
    client = rig.start(can_park=True, max_hold_s=60.0, clock=clock)
    assert client.at_step(1) == "continue"
    rig.asked("pause", how="hold")
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    clock.advance(61)
    beat = read_status(rig.run_dir).heartbeat_seq
    rig.until(lambda s: s.heartbeat_seq > beat + 5)
    assert rig.loop.is_alive()
    rig.ask("resume")
    assert rig.released() == "continue"
    rig.asked("pause")
    rig.hold(6)
    rig.until(lambda s: s.state == "paused")
    clock.advance(61)
    assert rig.released() == "park"
    assert rig.sink.events[-1]["text"] == "parked; the longest allowed hold of 60 s is over" and rig.saves == [5, 6]


def test_earlier_saves_are_drained_before_a_save_and_before_a_pause_without_one(rig):
    done = []
    rig.start(on_checkpoint=lambda step: done.append("save"), drain=lambda: done.append("drain"))
    rig.asked("checkpoint")
    rig.client.at_step(1)
    rig.asked("pause", save=False)
    rig.hold(2)
    rig.until(lambda s: s.state == "paused")
    assert done == ["drain", "save", "drain"]
    rig.ask("resume")
    rig.released()


def test_a_drain_that_fails_refuses_a_pause_that_saves_and_is_told_by_one_that_does_not(rig):
    rig.start(drain=lambda: False)
    rig.asked("pause")
    assert rig.client.at_step(1) == "continue"
    assert "an earlier asynchronous save failed: drain returned False" in rig.until(lambda s: s.refused_seq == 1).refusal
    assert rig.saves == []
    rig.asked("pause", save=False)
    rig.hold(2)
    assert "drain returned False" in rig.until(lambda s: s.state == "paused").error
    rig.ask("resume")
    rig.released()


def test_a_heartbeat_of_the_trainers_own_that_raises_is_counted_and_the_hold_goes_on(rig):
    rig.start(while_held=lambda: 1 / 0)
    rig.asked("pause")
    rig.hold(1)
    rig.until(lambda s: s.state == "paused")
    rig.eventually(lambda: rig.client.errors >= 3)
    assert rig.loop.is_alive()
    rig.ask("resume")
    assert rig.released() == "continue"


def test_ranks_that_lost_each_other_pass_through_and_leave_a_refused_request(rig):
    class Torn(Alone):
        def save(self, step):
            raise PeersLost("gone")

    client = rig.start(crew=Torn(on_checkpoint=print))
    rig.asked("pause")
    with pytest.raises(PeersLost):
        client.at_step(1)
    client.give_up("control is off")
    status = rig.until(lambda s: s.refused_seq == 1)
    assert (status.state, status.refusal) == ("running", "control is off") and "control is off" in status.error


def test_how_is_only_a_pauses_and_nonsense_in_it_is_refused(rig):
    for action, how in (("resume", "park"), ("pause", "now")):
        with pytest.raises(ControlError, match="how must be one of hold, park"):
            rig.ask(action, how=how)
    written = json.loads(ControlRequest(run="r", seq=1, desired="paused").to_json())
    assert ControlRequest.from_json(json.dumps(written)).how is None
    with pytest.raises(InputError, match="how must be one of hold, park"):
        ControlRequest.from_json(json.dumps(written | {"how": "softly"}))
    del written["how"]
    assert ControlRequest.from_json(json.dumps(written)).how is None  # an older writer
    old = json.loads(ControlStatus(run="r").to_json())
    del old["how"]
    assert ControlStatus.from_json(json.dumps(old)).how == ""
    request = ControlRequest(run="r", seq=1, desired="paused", how="park")
    assert ControlRequest.from_json(request.to_json()) == request != dataclasses.replace(request, how="hold")


def test_the_command_line_asks_for_a_park_and_says_that_it_was_carried_out(rig, capsys):
    client, over = rig.start(can_park=True), threading.Event()

    def body():
        step = 0
        while not over.wait(0.002) and client.at_step(step) == "continue":
            step += 1

    loop = threading.Thread(target=body, daemon=True)
    loop.start()
    code = main(["control", "pause", str(rig.run_dir), "--how", "park", "--by", "alice", "--reason", "spike", "--wait", "60"])
    over.set()
    loop.join(rig.timeout_s)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["outcome"], told["state"]) == (0, "applied", "stopped")
    assert told["sentence"].startswith("Done. Parked at step") and client.exit_code == 75
    assert main(["control", "stop", str(rig.run_dir), "--how", "park", "--by", "alice", "--reason", "spike"]) == 1


class Flags:
    should_save = False
    should_training_stop = False


def test_a_trainer_that_saves_by_itself_is_asked_to_and_held_after_it_has(rig):
    saved, flags = SavedSteps(), Flags()
    rig.start(crew=Alone(saved.has, is_ready=saved.has))
    flow = FlagFlow(rig.client, saved)
    flow.step_ended(1, flags)
    assert not flags.should_save
    rig.asked("checkpoint")
    flow.step_ended(2, flags)
    assert flags.should_save and rig.client.at_step(2) == "continue"
    assert read_status(rig.run_dir).applied_seq == 0  # nothing is done, and nothing refused, before the save
    flags.should_save = False
    flow.step_begins(2, flags)  # a save of the best only took the flag away
    flow.step_ended(3, flags)
    assert flags.should_save
    flow.saved(3, flags)
    status = rig.until(lambda s: s.applied_seq == 1)
    assert (status.checkpoint_step, status.refused_seq) == (3, 0)
    rig.asked("stop")
    flow.step_ended(4, flags)
    assert not flags.should_training_stop
    flow.saved(4, flags)
    assert flags.should_training_stop and read_status(rig.run_dir).checkpoint_step == 4
