"""A trainer that passes what is no step: nothing raises, a pause is carried out all the same, and the status stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.control.group import Word, vote
from trainvitals.control.rules import MAX_STEP, whole_step


class Hostile:
    def __int__(self):
        raise RuntimeError("no number")


NO_STEPS = [float("nan"), float("inf"), None, "forty", 2**63, 2**70, -1, Hostile(), b"\xff", [3]]


@given(st.one_of(st.integers(), st.floats(), st.none(), st.text(), st.binary(), st.sampled_from(NO_STEPS)))
def test_a_step_fits_the_words_between_ranks_or_is_none(step):
    try:
        number = whole_step(step)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return
    assert type(number) is int and 0 <= number <= MAX_STEP
    for value in (*vote(0, number, ""), *Word(1, number + 1).to_numbers()):
        assert -(2**63) <= value < 2**63


@pytest.mark.parametrize("step", NO_STEPS)
def test_a_pause_is_carried_out_and_told_whatever_the_trainer_calls_its_step(rig, step):
    rig.start()
    assert rig.client.at_step(40) == "continue"
    rig.asked("pause")
    rig.hold(step)
    status = rig.until(lambda s: s.state == "paused")
    assert (status.applied_seq, status.refused_seq, status.checkpoint_step, rig.saves) == (1, 0, 41, [41])
    assert rig.client.errors == 1
    rig.ask("resume")
    assert rig.released() == "continue"


def test_two_checkpoints_at_steps_that_are_none_are_two_saves(rig):
    client = rig.start()
    for _ in range(2):
        seq = rig.asked("checkpoint").seq
        assert client.at_step(None) == "continue"
        rig.until(lambda s, seq=seq: s.applied_seq == seq)
    assert len(set(rig.saves)) == 2
