"""Every way in which control is known to go wrong, and the test that shows what happens then.

What has a test of its own elsewhere is named in ``CASES``; the tests below are the rest.
"""

import ast
import os
import shutil
import threading
from pathlib import Path

import pytest

from trainvitals.control import files, look, read_request, read_status
from trainvitals.control.records import ControlRequest
from trainvitals.errors import ControlConflict, ControlError

TESTS = Path(__file__).resolve().parent.parent
HERE = "control/test_failure_cases.py"
CLIENT = "control/test_control_client.py"
FAILURES = "control/test_control_client_failures.py"
REQUEST = "control/test_control_request.py"
GROUP = "integrations/test_group_control.py"

#: what goes wrong -> the tests that show what happens
CASES = {
    "control.json is torn, empty, for another run, of an unknown future schema": [
        f"{FAILURES}::test_an_unusable_control_file_keeps_the_last_good_state",
        f"{FAILURES}::test_arbitrary_bytes_in_the_control_file_never_stop_training",
        f"{HERE}::test_a_schema_of_the_future_is_ignored_and_told_until_one_that_is_understood_comes",
    ],
    "a lower number after a restart": [f"{FAILURES}::test_a_lower_number_after_a_restart_is_ignored_and_reported"],
    "a request has expired": [
        f"{FAILURES}::test_a_request_that_expired_before_the_trainer_started_is_not_carried_out",
        f"{FAILURES}::test_an_applied_pause_does_not_end_by_expiring",
    ],
    "a directory, link or pipe in place of a file": [
        f"{FAILURES}::test_a_directory_in_place_of_the_control_file_leaves_training_as_it_is",
        f"{REQUEST}::test_links_and_directories_in_place_of_files_are_refused",
    ],
    "EACCES, ESTALE, EIO": [
        f"{FAILURES}::test_an_error_of_the_file_system_leaves_training_as_it_is",
        f"{HERE}::test_an_error_of_the_file_system_while_paused_keeps_the_pause_and_its_heartbeat",
        "control/test_two_users.py::test_a_trainer_that_may_not_read_the_request_trains_on_and_says_so",
    ],
    "a read blocks for a minute": [
        f"{FAILURES}::test_a_read_that_blocks_does_not_block_a_step",
        f"{FAILURES}::test_a_file_system_that_hangs_from_the_start_delays_training_once",
        f"{HERE}::test_an_open_that_hangs_costs_no_step_and_what_was_asked_meanwhile_is_done_afterwards",
    ],
    "two writers of one number": [
        f"{REQUEST}::test_of_two_operators_at_the_same_moment_exactly_one_wins_each_number",
        f"{REQUEST}::test_a_number_that_is_not_the_expected_one_is_a_conflict",
        f"{REQUEST}::test_a_writer_killed_between_its_two_files_blocks_nobody_for_long",
    ],
    "resume while pausing": [f"{CLIENT}::test_a_resume_while_pausing_ends_the_pause_at_once"],
    "pause during an asynchronous save": [
        f"{HERE}::test_a_pause_during_an_asynchronous_save_is_told_only_when_both_saves_are_on_disk",
        "control/test_group_park.py::test_earlier_saves_are_drained_before_a_save_and_before_a_pause_without_one",
    ],
    "pause within the last step": [
        f"{HERE}::test_a_pause_within_the_last_step_holds_before_the_loop_ends",
        f"{HERE}::test_a_pause_after_the_last_step_is_left_for_the_next_start_and_told_so",
    ],
    "the save fails with ENOSPC while pausing": [
        f"{CLIENT}::test_a_full_disk_while_pausing_is_reported_and_tried_again_only_when_asked_again",
        f"{GROUP}::test_a_save_that_fails_on_one_rank_refuses_the_pause_on_all_and_training_goes_on",
    ],
    "rank 0 dies while paused": [
        f"{GROUP}::test_when_rank_0_is_gone_or_frozen_while_paused_the_others_end_within_the_groups_time_limit",
        f"{GROUP}::test_when_another_rank_dies_while_paused_rank_0_ends_too",
        f"{CLIENT}::test_a_restart_while_paused_holds_at_its_first_step_and_saves_nothing",
    ],
    "the dashboard's clock is an hour ahead or behind": [
        f"{FAILURES}::test_a_dashboard_clock_that_is_an_hour_off_neither_kills_nor_revives_a_request"
    ],
    "the control directory is deleted": [
        f"{FAILURES}::test_the_control_directory_may_vanish_and_is_made_again",
        f"{HERE}::test_a_control_directory_deleted_during_a_pause_keeps_the_pause_and_a_resume_still_comes_through",
    ],
    "the status cannot be written": [
        f"{FAILURES}::test_a_status_that_cannot_be_written_is_warned_of_once_and_training_goes_on",
        f"{HERE}::test_a_full_disk_under_the_status_still_lets_the_pause_and_its_end_happen",
    ],
    "the breaker and a person": [
        f"{FAILURES}::test_a_human_resume_has_the_last_word_over_the_breaker",
        "detect/test_breaker_decision.py::test_after_a_person_paused_or_resumed_it_stays_away_for_500_points",
        f"{HERE}::test_the_breaker_neither_resumes_nor_stops_nor_overwrites_a_newer_request_of_a_person",
    ],
    "checkpoint_request raised by three at once": [
        f"{CLIENT}::test_a_checkpoint_request_raised_by_three_at_once_is_one_save",
        f"{GROUP}::test_a_checkpoint_raised_by_three_is_one_save_on_all_ranks",
    ],
    "the first released client": ["control/test_first_release.py::test_keys_that_no_release_knows_yet_do_not_disturb_it"],
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_tests_that_exist(case):
    assert CASES[case]
    for named in CASES[case]:
        file, name = named.split("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{named} is gone: name another"


def test_a_schema_of_the_future_is_ignored_and_told_until_one_that_is_understood_comes(rig):
    rig.start().at_step(1)
    path = files.control_dir(rig.run_dir) / files.CONTROL_FILE
    future = ControlRequest(run="r1", seq=7, desired="stopped", request_id="f").to_json().replace('"schema": 1', '"schema": 99')
    path.write_text(future)
    status = rig.until(lambda s: s.error is not None and "schema 99" in s.error)
    assert status.schemas == (1,), "a writer can choose by this"
    assert rig.client.at_step(2) == "continue"
    path.write_text(ControlRequest(run="r1", seq=8, desired="paused", request_id="g", by="ana", reason="look").to_json())
    rig.until(lambda s: s.ack_seq == 8)
    rig.hold(3)
    assert rig.until(lambda s: s.state == "paused").error is None
    rig.ask("resume")
    assert rig.released() == "continue"


@pytest.mark.parametrize("number", [5, 13, 116])  # EIO, EACCES, ESTALE
def test_an_error_of_the_file_system_while_paused_keeps_the_pause_and_its_heartbeat(rig, monkeypatch, number):
    rig.start()
    rig.asked("pause")
    rig.hold(4)
    before = rig.until(lambda s: s.state == "paused")
    real, is_broken = os.open, threading.Event()

    def fails(path, *arguments, **more):
        if is_broken.is_set() and str(path).endswith(files.CONTROL_FILE):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(files.os, "open", fails)
    is_broken.set()
    during = rig.until(lambda s: s.bad_reads > before.bad_reads + 2)
    assert during.state == "paused" and os.strerror(number) in (during.error or "")
    is_broken.clear()
    rig.ask("resume")
    assert rig.released() == "continue"


def test_an_open_that_hangs_costs_no_step_and_what_was_asked_meanwhile_is_done_afterwards(rig, monkeypatch):
    """A dead NFS server: the call sits in the kernel and comes back after a minute. The test decides how long that minute is."""
    real, hangs, release = os.open, threading.Event(), threading.Event()
    rig.start().at_step(1)
    here = threading.current_thread()

    def sits(path, *arguments, **more):
        if threading.current_thread() is not here and str(path).endswith(files.CONTROL_FILE) and not release.is_set():
            hangs.set()
            release.wait(rig.timeout_s)
        return real(path, *arguments, **more)

    monkeypatch.setattr(files.os, "open", sits)
    assert hangs.wait(rig.timeout_s)
    heartbeat = read_status(rig.run_dir).heartbeat_seq
    request = rig.ask("pause")
    for step in range(2, 500):
        assert rig.client.at_step(step) == "continue"
    assert not release.is_set() and read_status(rig.run_dir).heartbeat_seq == heartbeat, "silent, which the page tells"
    release.set()
    rig.until(lambda s: s.ack_seq == request.seq)
    rig.hold(500)
    rig.until(lambda s: s.state == "paused")
    rig.ask("resume")
    assert rig.released() == "continue"


def test_a_pause_during_an_asynchronous_save_is_told_only_when_both_saves_are_on_disk(rig):
    """As docs/control.md asks of ``on_checkpoint``: it waits for the save that is under way, then for its own."""
    on_disk, go_on = [], threading.Event()

    def written(step):
        go_on.wait(rig.timeout_s)
        on_disk.append(step)

    earlier = threading.Thread(target=written, args=(4,))
    earlier.start()

    def save(step):
        earlier.join(rig.timeout_s)
        on_disk.append(step)

    rig.start(on_checkpoint=save)
    rig.asked("pause")
    rig.hold(5)
    first = rig.until(lambda s: s.state == "pausing")
    later = rig.until(lambda s: s.heartbeat_seq > first.heartbeat_seq + 2)
    assert later.state == "pausing" and on_disk == [], "heartbeats go on; nobody is told that it is paused"
    go_on.set()
    status = rig.until(lambda s: s.state == "paused")
    assert on_disk == [4, 5] and status.checkpoint_step == 5
    rig.ask("resume")
    assert rig.released() == "continue"


def test_a_pause_within_the_last_step_holds_before_the_loop_ends(rig):
    """The loop of docs/control.md: ``at_step`` is called after the last step, too."""
    rig.start().at_step(99)
    rig.asked("pause")
    rig.hold(100)
    assert rig.until(lambda s: s.state == "paused").applied_at_step == 100
    assert rig.saves == [100]
    rig.ask("resume")
    assert rig.released() == "continue"
    rig.client.close()
    assert read_status(rig.run_dir).ended


def test_a_pause_after_the_last_step_is_left_for_the_next_start_and_told_so(rig):
    rig.start().at_step(100)
    rig.until(lambda s: s.step == 100)
    request = rig.asked("pause")
    rig.client.close()
    status = read_status(rig.run_dir)
    assert status.ended and status.applied_seq < request.seq and rig.saves == []
    assert look(rig.run_dir, status.heartbeat_ns).is_pending, "asked, and never called paused"
    rig.start()
    rig.until(lambda s: s.ack_seq == request.seq and not s.ended)
    rig.hold(101)
    rig.until(lambda s: s.state == "paused")
    rig.ask("resume")
    assert rig.released() == "continue"


def test_a_control_directory_deleted_during_a_pause_keeps_the_pause_and_a_resume_still_comes_through(rig):
    rig.start()
    rig.asked("pause")
    rig.hold(5)
    paused = rig.until(lambda s: s.state == "paused")
    shutil.rmtree(files.control_dir(rig.run_dir), ignore_errors=True)
    again = rig.until(lambda s: s.error is not None and "missing" in s.error)
    assert (again.state, again.applied_seq) == ("paused", paused.applied_seq) and rig.loop.is_alive()
    assert rig.ask("resume").seq > paused.applied_seq
    assert rig.released() == "continue"


def test_a_full_disk_under_the_status_still_lets_the_pause_and_its_end_happen(rig, monkeypatch, capfd):
    rig.start().at_step(1)
    rig.until(lambda s: s.step == 1)
    real, is_full = files.replace, threading.Event()

    def full(path, *arguments, **more):
        if is_full.is_set() and path.name == files.STATUS_FILE:
            raise OSError(28, os.strerror(28), str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(files, "replace", full)
    is_full.set()
    rig.ask("pause")
    rig.eventually(lambda: rig.client._conversation.received is not None)
    rig.hold(2)
    rig.eventually(lambda: rig.client._conversation.state == "paused")
    assert read_status(rig.run_dir).state == "running", "what people see is old, and its heartbeat tells so"
    rig.ask("resume")
    assert rig.released() == "continue"
    is_full.clear()
    assert rig.until(lambda s: s.applied_seq == 2).state == "running"
    assert capfd.readouterr().err.count(os.strerror(28)) == 1, "one warning in the trainer's log, not one a second"


def test_the_breaker_neither_resumes_nor_stops_nor_overwrites_a_newer_request_of_a_person(rig):
    rig.start()
    seen = rig.asked("pause")
    human = rig.ask("resume", by="ana", reason="known")
    with pytest.raises(ControlConflict, match="by ana"):
        rig.ask("pause", by="breaker", source="breaker", expected_seq=seen.seq)
    for action in ("resume", "stop"):
        with pytest.raises(ControlError, match="for a person"):
            rig.ask(action, by="breaker", source="breaker")
    assert read_request(rig.run_dir) == human
