"""Names that somebody of the group plants in the history: none of them makes the run uncontrollable."""

import dataclasses
import os

import pytest

from trainvitals.control import files, init, read_request, submit
from trainvitals.control.document import MAX_COUNTER
from trainvitals.control.once import standing
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.errors import ControlConflict, ControlError


def ask(run_dir, action="pause", **options):
    return submit(run_dir, "r1", action=action, by="alice", source="cli", reason="spike", **options)


def plant(run_dir, name, kind):
    """One name, so old that no writer is still at work on it."""
    path = run_dir / "control" / "history" / name
    if kind == "file":
        path.write_text("")
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    os.utime(path, (0, 0), follow_symlinks=False)


@pytest.mark.parametrize("kind", ["file", "directory", "pipe", "link"])
@pytest.mark.parametrize(
    "number", ["1", "2", "00000000000000000001", str(2**62), str(2**62 + 1), str(MAX_COUNTER), str(10**19), "9" * 40, "9" * 200]
)
def test_a_planted_name_takes_no_pause_away(tmp_path, number, kind):
    init(tmp_path, "r1")
    plant(tmp_path, f"{number}.json", kind)
    for action in ("pause", "resume", "pause"):
        request = ask(tmp_path, action)
        assert read_request(tmp_path) == request  # what was told as done is what everybody reads
        assert standing(tmp_path, request.request_id) == request


def test_a_claim_with_a_time_to_come_blocks_nobody_for_ever(tmp_path, monkeypatch):
    init(tmp_path, "r1")
    plant(tmp_path, "1.json", "file")
    os.utime(tmp_path / "control" / "history" / "1.json", (2**32, 2**32))
    with pytest.raises(ControlConflict):
        ask(tmp_path)
    now_s = files.file_system_time_s(tmp_path)
    monkeypatch.setattr(files, "file_system_time_s", lambda directory: now_s + 11)
    assert ask(tmp_path).seq == 2


def test_a_request_that_nobody_could_read_back_is_never_written(tmp_path):
    init(tmp_path, "r1")
    status = ControlStatus(run="r1", ack_seq=MAX_COUNTER)
    (tmp_path / "control" / "control_status.json").write_text(status.to_json())
    before = read_request(tmp_path)
    with pytest.raises(ControlError, match="no longer usable"):
        ask(tmp_path)
    assert read_request(tmp_path) == before


def test_a_checkpoint_counter_at_its_end_is_told_and_changes_nothing(tmp_path):
    init(tmp_path, "r1")
    full = dataclasses.replace(ControlRequest(run="r1", seq=1), checkpoint_request=MAX_COUNTER)
    (tmp_path / "control" / "control.json").write_text(full.to_json())
    with pytest.raises(ControlError, match="no longer usable"):
        ask(tmp_path, "checkpoint")
    assert read_request(tmp_path) == full and ask(tmp_path, "pause").seq == 2


def test_a_disk_that_was_full_for_a_moment_keeps_nobody_waiting(tmp_path, monkeypatch):
    init(tmp_path, "r1")
    real = files.replace

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(ControlError, match="No space left on device"):
        ask(tmp_path)
    monkeypatch.setattr(files, "replace", real)
    assert ask(tmp_path).seq == 1 and read_request(tmp_path).desired == "paused"


def test_a_request_that_stands_although_its_writer_saw_an_error_keeps_its_place_in_the_history(tmp_path, monkeypatch):
    init(tmp_path, "r1")
    real = files.replace

    def late(*arguments, **options):
        real(*arguments, **options)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "replace", late)
    with pytest.raises(ControlError, match="Input/output error"):
        ask(tmp_path)
    assert read_request(tmp_path).seq == 1 and (tmp_path / "control" / "history" / "1.json").exists()
