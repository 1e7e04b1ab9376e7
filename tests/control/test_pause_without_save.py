"""A pause that must not save: the trainer's retention would delete an older, perhaps the last sound checkpoint for the new one."""

import dataclasses
import json

import pytest

from trainvitals.control import look, read_request, read_status
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.errors import InputError


def test_a_pause_that_must_not_save_holds_without_saving_and_says_so(rig):
    rig.start().at_step(1)
    rig.asked("pause", save=False)
    rig.hold(12)
    paused = rig.until(lambda s: s.state == "paused")
    assert rig.saves == [] and paused.applied_seq == 1 and paused.checkpoint_step is None and paused.error is None
    assert look(rig.run_dir, paused.heartbeat_ns).sentence.startswith("Paused at step 12, without a checkpoint of this step")
    assert rig.sink.events[0]["text"] == "no checkpoint was saved, as asked"
    rig.ask("resume")
    assert rig.released() == "continue"


def test_it_holds_even_where_the_trainer_cannot_save_at_all(rig):
    rig.start(on_checkpoint=None)
    rig.asked("pause", save=False)
    rig.hold(3)
    assert rig.until(lambda s: s.state == "paused").refused_seq == 0


def test_a_checkpoint_that_somebody_asked_for_is_saved_all_the_same(rig):
    client = rig.start()
    rig.ask("checkpoint")
    rig.asked("pause", save=False)
    assert client is rig.client
    rig.hold(9)
    rig.until(lambda s: s.state == "paused")
    assert rig.saves == [9]


@pytest.mark.parametrize("save", [None, True])
def test_without_the_key_and_with_true_it_saves_as_before(rig, save):
    rig.start()
    rig.asked("pause", save=save)
    rig.hold(5)
    rig.until(lambda s: s.state == "paused")
    assert rig.saves == [5]


def test_only_a_pause_carries_the_key(rig):
    rig.start()
    assert rig.ask("checkpoint", save=False).save is None
    assert rig.ask("pause", save=False).save is False
    assert rig.ask("resume", save=False).save is None


def test_the_status_says_that_this_client_obeys_the_key_and_an_older_ones_does_not(rig):
    rig.start().at_step(1)
    rig.until(lambda s: s.step == 1)
    assert read_status(rig.run_dir).understands == ("save",)
    old = json.loads(ControlStatus(run="r").to_json())
    del old["understands"]
    assert ControlStatus.from_json(json.dumps(old)).understands == ()


def test_a_request_without_the_key_reads_as_before_and_one_with_nonsense_is_refused():
    written = json.loads(ControlRequest(run="r", seq=1, desired="paused", by="a", reason="b").to_json())
    del written["save"]
    assert ControlRequest.from_json(json.dumps(written)).save is None
    for nonsense in (0, "no", []):
        with pytest.raises(InputError, match="save must be true, false or null"):
            ControlRequest.from_json(json.dumps(written | {"save": nonsense}))
    request = ControlRequest(run="r", seq=1, desired="paused", save=False)
    assert ControlRequest.from_json(request.to_json()) == request
    assert dataclasses.replace(request, save=None) != request


def test_the_request_that_stands_keeps_what_it_said(rig):
    rig.start()
    rig.ask("pause", save=False)
    assert rig.ask("pause").save is False
    assert read_request(rig.run_dir).save is False
