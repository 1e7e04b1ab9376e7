import dataclasses
import os
import subprocess
import sys

import pytest

from trainvitals.control.records import DESIRED, STATES, ControlRequest, ControlStatus
from trainvitals.control.view import ControlState, describe

NOW = 1_767_323_045_000_000_000
S = 1_000_000_000


def status(**fields):
    return ControlStatus(**{"run": "r1", "heartbeat_ns": NOW - 3 * S, "step": 12033, "pid": 71, "host": "n17"} | fields)


def request(**fields):
    given = {"run": "r1", "seq": 42, "desired": "paused", "action": "pause", "by": "alice", "reason": "spike"} | fields
    return ControlRequest(**{"issued_at_ns": NOW - 2 * S} | given)


def test_without_a_status_nothing_is_wired_and_no_button_is_offered():
    state = describe(ControlRequest(), None, NOW)
    assert (state.state, state.can_act, state.is_pending) == ("not_wired", False, False)
    assert describe(request(), None, NOW).is_pending


def test_a_request_is_never_taken_for_the_state():
    state = describe(request(), status(ack_seq=41, applied_seq=41), NOW)
    assert state.state == "running" and state.is_pending and state.desired == "paused"
    assert state.sentence == "Requested (pause, seq 42), waiting for the trainer: last heartbeat 3 s ago."


def test_an_acknowledged_request_waits_for_the_step():
    state = describe(request(), status(ack_seq=42, applied_seq=41), NOW + 3600 * 0)
    assert state.is_pending and "when the step now running ends" in state.sentence


def test_without_acknowledgement_the_commands_by_hand_are_shown():
    late = request(issued_at_ns=NOW - 9 * S)
    assert "Not acknowledged by the trainer" in describe(late, status(), NOW, poll_s=1.0).sentence
    assert "ssh n17 kill -TERM 71" in describe(late, status(), NOW, poll_s=1.0).sentence
    assert "waiting for the trainer" in describe(late, status(), NOW, poll_s=5.0).sentence


def test_pausing_paused_and_stopped_read_as_sentences():
    told = {"ack_seq": 42, "applied_at_step": 12034, "by": "alice", "reason": "spike"}
    assert (
        describe(request(), status(state="pausing", **told), NOW).sentence == "Pausing: checkpoint at step 12,034 (alice: spike)."
    )
    paused = describe(request(), status(state="paused", applied_seq=42, checkpoint_step=12034, **told), NOW)
    assert paused.sentence == "Paused at step 12,034, checkpoint 12,034 (alice: spike)."
    assert (paused.at_step, paused.is_pending, paused.ack_seq) == (12034, False, 42)
    stopped = describe(request(desired="stopped"), status(state="stopped", applied_seq=42, **told), NOW)
    assert "will not start again before somebody resumes" in stopped.sentence


def test_an_old_heartbeat_is_silence_and_says_what_was_last():
    state = describe(ControlRequest(), status(heartbeat_ns=NOW - 600 * S), NOW)
    assert state.state == "silent"
    assert state.sentence == "No heartbeat from the trainer for 10 min; it last said: running, last step 12,033."


def test_a_reader_that_measured_the_heartbeat_itself_is_believed_over_two_wall_clocks():
    skewed = status(heartbeat_ns=NOW - 3600 * S)
    assert describe(ControlRequest(), skewed, NOW, heartbeat_age_s=1.0).state == "running"
    ahead = status(heartbeat_ns=NOW + 3600 * S)
    assert describe(ControlRequest(), ahead, NOW).heartbeat_age_s == 0.0


def test_a_refusal_names_its_reason():
    state = describe(request(), status(ack_seq=42, refused_seq=42, refusal="no pause, because the disk is full"), NOW)
    assert not state.is_pending and "was refused: no pause, because the disk is full" in state.sentence


def test_an_ended_trainer_is_not_silent():
    state = describe(ControlRequest(), status(state="stopped", ended=True, heartbeat_ns=NOW - 86400 * S), NOW)
    assert (state.state, state.sentence) == ("stopped", "The trainer has ended at step 12,033.")
    assert "when it starts again" in describe(request(), status(state="stopped", ended=True), NOW).sentence


def test_a_resume_after_the_end_says_that_the_run_may_start_and_not_that_it_stays_stopped():
    told = {"state": "stopped", "desired": "stopped", "ended": True, "applied_seq": 41, "applied_at_step": 1930, "by": "nina"}
    stays = describe(request(seq=41, desired="stopped", action="stop"), status(**told, reason="going back"), NOW)
    assert stays.sentence.endswith("will not start again before somebody resumes the run.")
    made = describe(request(desired="running", action="resume", by="bob"), status(**told, reason="going back"), NOW)
    assert made.sentence.startswith("Stopped at step 1,930 (nina: going back). It may start again (resume, seq 42")
    assert "before somebody resumes" not in made.sentence
    assert (made.by, made.reason, made.is_pending) == ("nina", "going back", True)


def test_while_a_resume_is_pending_the_pause_keeps_its_own_name_and_reason():
    paused = status(state="paused", applied_seq=41, ack_seq=41, by="nina", source="cli", reason="loss spike")
    made = describe(request(desired="running", action="resume", by="bob", reason="going on"), paused, NOW)
    assert (made.by, made.source, made.reason, made.is_pending) == ("nina", "cli", "loss spike", True)


@pytest.mark.parametrize("gone", [{"state": "stopped", "ended": True}, {"state": "running", "heartbeat_ns": NOW - 60 * S}])
def test_a_run_that_its_supervisor_holds_says_so_and_a_resume_is_the_supervisors(gone):
    hold = request(desired="stopped", action="stop", by="supervisor", source="supervisor", reason="3 starts in a row died.")
    held = describe(hold, status(by="breaker", reason="old", **gone), NOW, supervisor="n7")
    assert held.sentence.endswith("The supervisor starts it no more until somebody resumes the run: 3 starts in a row died.")
    assert (held.by, held.reason, held.by_hand, held.supervisor) == ("supervisor", "3 starts in a row died.", "", "n7")
    resumed = describe(request(desired="running", action="resume"), status(**gone), NOW, supervisor="n7")
    assert resumed.sentence.endswith("Resume (seq 42) asked for; the supervisor on n7 starts the trainer again.")


def test_what_stops_a_trainer_by_hand_is_one_command_a_line():
    late = request(issued_at_ns=NOW - 9 * S)
    assert describe(late, status(), NOW).by_hand.splitlines() == [
        "ssh n17 kill -TERM 71", "scancel --signal=TERM JOBID", "kubectl delete pod POD",
    ]  # fmt: skip
    assert describe(request(), status(), NOW).by_hand == ""


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("desired", DESIRED)
@pytest.mark.parametrize("ended", [True, False])
def test_every_combination_has_a_sentence(state, desired, ended):
    for ack, applied in ((0, 0), (42, 0), (42, 42)):
        made = describe(request(desired=desired), status(state=state, ack_seq=ack, applied_seq=applied, ended=ended), NOW)
        assert made.sentence and made.sentence[0].isupper() and "None" not in made.sentence
        assert made.can_act


def test_the_pages_use_the_same_record():
    from trainvitals.web.view import ControlView

    assert ControlView is ControlState
    assert dataclasses.is_dataclass(ControlView)


def test_control_and_hook_need_only_the_standard_library():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import trainvitals.hook, trainvitals.control\n"
        "ours = [m for m in sys.modules if m.split('.')[0] == 'trainvitals']\n"
        "other = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'trainvitals', '__main__'}\n"
        "allowed = ('trainvitals.hook', 'trainvitals.control', 'trainvitals.errors', 'trainvitals.clock', 'trainvitals.masking',\n"
        "           'trainvitals.manifest')\n"
        "strange = [m for m in ours if m != 'trainvitals' and not m.startswith(allowed)]\n"
        "print(sorted(other), sorted(strange), 'socket' in sys.modules, 'asyncio' in sys.modules)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code, root], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[] [] False False\n", "")
