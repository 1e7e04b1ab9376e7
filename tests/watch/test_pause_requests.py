"""What the control file asks of the trainer reaches the detectors once."""

from __future__ import annotations

from trainvitals.control.request import init, submit
from trainvitals.watch.pause_requests import PauseRequests


def ask(run_dir, action, **more):
    submit(run_dir, "r", action=action, by="ana", source="cli", reason="loss looks wrong", **more)


def test_each_request_is_told_once_with_who_asked(tmp_path):
    init(tmp_path, "r")
    requests = PauseRequests(str(tmp_path))
    assert requests.poll(0.0) == []
    ask(tmp_path, "pause")
    assert requests.poll(0.5) == []  # looks once a second
    (event,) = requests.poll(1.0)
    assert event.kind == "control" and event.time_ns is not None
    assert event.data == {"state": "requested", "seq": 1, "desired": "paused", "by": "ana", "source": "cli"}
    assert requests.poll(2.0) == []
    again = PauseRequests(str(tmp_path))
    again.restore(requests.to_state())
    assert again.poll(0.0) == []
    ask(tmp_path, "resume")
    assert [event.data["desired"] for event in again.poll(1.0)] == ["running"]


def test_a_request_that_was_carried_out_before_is_not_told(tmp_path):
    class Done:
        applied_seq, refused_seq = 1, 0

    ask(tmp_path, "pause")
    assert PauseRequests(str(tmp_path), status=lambda _dir: Done()).poll(0.0) == []


def test_no_control_file_is_no_trouble_and_a_broken_one_is_said(tmp_path):
    requests = PauseRequests(str(tmp_path))
    assert requests.poll(0.0) == [] and requests.trouble == ""
    init(tmp_path, "r")
    (tmp_path / "control" / "control.json").write_text("{")
    assert requests.poll(1.0) == [] and "control.json" in requests.trouble
    assert PauseRequests("").poll(0.0) == []
