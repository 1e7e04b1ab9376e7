"""A resume that comes while the trainer parks: what was told as the end is the end, and the next start goes on."""

import pytest

from trainvitals.control import look, read_status


@pytest.mark.parametrize("second", ["resume", "checkpoint"])
def test_a_request_that_comes_while_it_parks_is_left_for_the_next_start(rig, second):
    saves = []

    def save(step):
        saves.append(step)
        if len(saves) == 1:
            rig.asked(second)

    client = rig.start(can_park=True, on_checkpoint=save)
    rig.asked("pause", how="park")
    assert client.at_step(7) == "park" and client.exit_code == 75
    assert rig.sink.ends == ["stopped: parked"] and rig.sink.states == ["stopped"]
    status = read_status(rig.run_dir)
    assert (status.state, status.how, status.applied_seq, status.ack_seq) == ("stopped", "park", 1, 2)
    assert "when the step now running ends" not in look(rig.run_dir, status.heartbeat_ns).sentence
    client.close()
    assert f"({second}, seq 2" in look(rig.run_dir, status.heartbeat_ns).sentence
    again = rig.start(can_park=True)
    if second == "resume":
        assert again.at_start() is None and again.at_step(8) == "continue"
        assert rig.until(lambda s: s.applied_seq == 2).state == "running"


def test_a_resume_that_comes_while_a_hold_ends_in_a_park_is_left_for_the_next_start(rig):
    def ends(reason):
        rig.sink.ends.append(reason)
        rig.asked("resume")

    client = rig.start(can_park=True, max_hold_s=0.05)
    client._telling._recorder = type("Asks", (type(rig.sink),), {"finish": staticmethod(ends)})()
    rig.asked("pause")
    rig.hold(7)
    assert rig.released() == "park" and client.exit_code == 75 and rig.sink.ends == ["stopped: parked"]
    assert rig.until(lambda s: s.ack_seq == 2).state == "stopped"
