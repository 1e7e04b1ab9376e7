import json
import os
import stat
import subprocess
import sys

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control import files, history, init, look, read_request, read_status, submit
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.errors import ControlConflict, ControlError, InputError


def ask(run_dir, action="pause", **options):
    given = {"by": "alice", "source": "cli", "reason": "loss spike"} | options
    return submit(run_dir, given.pop("run", "r1"), action=action, **given)


def write_status(run_dir, **fields):
    files.make_directories(run_dir)
    (files.control_dir(run_dir) / "control_status.json").write_text(ControlStatus(**fields).to_json())


def test_no_file_means_running(tmp_path):
    assert read_request(tmp_path) == ControlRequest()
    assert read_status(tmp_path) is None


def test_init_makes_the_file_once_and_keeps_what_is_there(tmp_path):
    first = init(tmp_path, "r1")
    assert (first.run, first.seq, first.desired) == ("r1", 0, "running")
    asked = ask(tmp_path)
    assert init(tmp_path, "r1") == asked
    with pytest.raises(ControlError, match="belongs to the run 'r1'"):
        init(tmp_path, "r2")


def test_modes_let_the_group_in_and_others_out(tmp_path):
    before = os.umask(0o077)
    try:
        init(tmp_path, "r1")
        ask(tmp_path)
    finally:
        os.umask(before)
    control = tmp_path / "control"
    assert stat.S_IMODE(control.stat().st_mode) == 0o2770
    assert stat.S_IMODE((control / "control.json").stat().st_mode) == 0o660
    assert stat.S_IMODE((control / "history" / "1.json").stat().st_mode) == 0o640


def test_each_request_takes_the_next_number_and_stays_in_the_history(tmp_path):
    ask(tmp_path, "pause")
    ask(tmp_path, "resume", reason="data was fine")
    third = ask(tmp_path, "stop", by="bob")
    assert [(r.seq, r.desired, r.by) for r in history(tmp_path)] == [
        (1, "paused", "alice"), (2, "running", "alice"), (3, "stopped", "bob"),
    ]  # fmt: skip
    assert read_request(tmp_path) == third
    assert not [name for name in os.listdir(tmp_path / "control") if "tmp" in name]


def test_asking_for_what_is_desired_already_changes_nothing(tmp_path):
    first = ask(tmp_path)
    assert ask(tmp_path, by="bob") == first


def test_each_checkpoint_request_raises_the_counter(tmp_path):
    ask(tmp_path, "checkpoint")
    second = ask(tmp_path, "checkpoint")
    assert (second.seq, second.checkpoint_request, second.desired) == (2, 2, "running")


def test_a_pause_that_the_trainer_refused_can_be_asked_for_again(tmp_path):
    first = ask(tmp_path)
    write_status(tmp_path, ack_seq=first.seq, refused_seq=first.seq, refusal="disk full")
    assert ask(tmp_path).seq == first.seq + 1


def test_an_expired_request_can_be_asked_for_again(tmp_path):
    clock = ManualClock()
    first = ask(tmp_path, clock=clock, expires_s=60)
    assert ask(tmp_path, clock=clock) == first
    clock.advance(61)
    assert ask(tmp_path, clock=clock).seq == first.seq + 1


def test_a_number_that_is_not_the_expected_one_is_a_conflict(tmp_path):
    ask(tmp_path)
    with pytest.raises(ControlConflict, match=r"sequence number 1 \(paused\) by alice, expected 0"):
        ask(tmp_path, "stop", expected_seq=0)
    assert ask(tmp_path, "stop", expected_seq=1).seq == 2


def test_a_number_just_taken_by_a_writer_that_is_still_writing_is_a_conflict(tmp_path):
    init(tmp_path, "r1")
    (tmp_path / "control" / "history" / "1.json").write_text(ControlRequest(run="r1", seq=1).to_json())
    with pytest.raises(ControlConflict, match="at the same moment"):
        ask(tmp_path)
    assert read_request(tmp_path).seq == 0


def test_a_writer_killed_between_its_two_files_blocks_nobody_for_long(tmp_path):
    init(tmp_path, "r1")
    claim = tmp_path / "control" / "history" / "1.json"
    claim.write_text(ControlRequest(run="r1", seq=1).to_json())
    os.utime(claim, (0, 0))
    assert ask(tmp_path).seq == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"by": " "}, "who asks"),
        ({"reason": ""}, "why"),
        ({"action": "explode"}, "must be one of"),
        ({"by": "a\x1b[2Jb"}, "control characters"),
        ({"reason": "x" * 2001}, "longest allowed"),
        ({"expires_s": -1.0}, "above 0"),
        ({"source": "breaker", "action": "resume"}, "for a person"),
        ({"source": "breaker", "action": "stop"}, "for a person"),
        ({"run": "another"}, "belong to the run 'r1'"),
    ],
)
def test_what_is_missing_or_wrong_is_said(tmp_path, options, sentence):
    init(tmp_path, "r1")
    with pytest.raises(ControlError, match=sentence):
        ask(tmp_path, **options)
    assert read_request(tmp_path).seq == 0


def test_there_must_be_a_run_directory(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        ask(tmp_path / "typo")


def test_people_can_act_although_the_control_file_is_damaged(tmp_path):
    ask(tmp_path, "checkpoint")
    ask(tmp_path, "checkpoint")
    (tmp_path / "control" / "control.json").write_bytes(b'{"schema":1,"se')
    with pytest.raises(InputError, match="half written"):
        read_request(tmp_path)
    assert look(tmp_path, 0).state == "unreadable"
    again = ask(tmp_path, "pause")
    assert (again.seq, again.checkpoint_request) == (3, 2)


def test_numbers_go_on_above_what_the_trainer_has_seen_after_the_files_were_removed(tmp_path):
    write_status(tmp_path, run="r1", ack_seq=42, applied_seq=42, checkpoint_done=7)
    request = ask(tmp_path, "checkpoint", run="")
    assert (request.seq, request.checkpoint_request, request.run) == (43, 8, "r1")


def test_a_directory_open_to_everyone_is_refused(tmp_path):
    init(tmp_path, "r1")
    (tmp_path / "control").chmod(0o777)
    with pytest.raises(ControlError, match="chmod o-w"):
        ask(tmp_path)
    with pytest.raises(ControlError, match="chmod o-w"):
        read_request(tmp_path)
    (tmp_path / "control").chmod(0o1777)
    assert ask(tmp_path).seq == 1


def test_a_run_directory_open_to_everyone_is_refused(tmp_path):
    init(tmp_path, "r1")
    tmp_path.chmod(0o777)
    with pytest.raises(ControlError, match="chmod o-w"):
        ask(tmp_path)
    tmp_path.chmod(0o700)


def test_links_and_directories_in_place_of_files_are_refused(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    init(run, "r1")
    target = tmp_path / "precious"
    target.write_text("precious")
    control_file = run / "control" / "control.json"
    control_file.unlink()
    control_file.symlink_to(target)
    with pytest.raises(InputError, match="symbolic link"):
        read_request(run)
    with pytest.raises(ControlError, match="move it away"):
        ask(run)
    control_file.unlink()
    control_file.mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        read_request(run)
    control_file.rmdir()
    os.mkfifo(control_file)
    with pytest.raises(InputError, match="not a regular file"):
        read_request(run)
    assert target.read_text() == "precious"


def test_a_link_in_place_of_the_control_directory_is_refused(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "control").symlink_to(elsewhere)
    with pytest.raises(ControlError, match="symbolic link"):
        ask(run)
    assert list(elsewhere.iterdir()) == []


def test_a_huge_control_file_is_refused_without_reading_it_all(tmp_path):
    init(tmp_path, "r1")
    (tmp_path / "control" / "control.json").write_bytes(b" " * (files.MAX_BYTES + 1))
    with pytest.raises(InputError, match="larger than"):
        read_request(tmp_path)


RACE = """
import sys
from trainvitals.control import submit
from trainvitals.errors import ControlConflict
run_dir, who, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
for expected in range(rounds):
    sys.stdin.readline()
    try:
        print(submit(run_dir, "r1", action="checkpoint", by=who, source="cli", reason="race", expected_seq=expected).seq)
    except ControlConflict:
        print("conflict")
    sys.stdout.flush()
"""


def test_of_two_operators_at_the_same_moment_exactly_one_wins_each_number(tmp_path):
    init(tmp_path, "r1")
    rounds = 40
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    people = [
        subprocess.Popen([*command, who, str(rounds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for who in ("alice", "bob")
    ]
    for number in range(rounds):
        for person in people:
            person.stdin.write("go\n")
            person.stdin.flush()
        answers = [person.stdout.readline().strip() for person in people]
        assert sorted(answers) == [str(number + 1), "conflict"]
        assert read_request(tmp_path).seq == number + 1
    for person in people:
        person.communicate(timeout=20)
    assert [request.seq for request in history(tmp_path)] == list(range(1, rounds + 1))


def test_the_file_reads_as_the_protocol_says(tmp_path):
    ask(tmp_path, clock=ManualClock(), expires_s=600)
    document = json.loads((tmp_path / "control" / "control.json").read_text())
    assert len(document.pop("request_id")) == 32
    assert document == {
        "schema": 1, "run_id": "r1", "seq": 1, "action": "pause", "desired": "paused", "checkpoint_request": 0,
        "issued_at": "2026-01-02T03:04:05.000000000Z", "expires_at": "2026-01-02T03:14:05.000000000Z",
        "valid_from_step": None, "save": None, "how": None, "by": "alice", "source": "cli", "reason": "loss spike",
    }  # fmt: skip
