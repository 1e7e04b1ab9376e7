"""How a start of the trainer ends in the file: as planned, or not."""

from __future__ import annotations

import json
import sys

import pytest

from trainvitals.control import ControlClient, submit
from trainvitals.hook import Recorder


def the_end(run_dir):
    records = [json.loads(line) for line in (run_dir / "metrics.rank00000.jsonl").read_text().splitlines()]
    return [record["data"]["reason"] for record in records if record.get("kind") == "attempt_end"]


@pytest.mark.parametrize("code", [None, 0])
def test_leaving_the_program_without_an_error_code_is_a_planned_end(tmp_path, code):
    with pytest.raises(SystemExit), Recorder(tmp_path, run="r") as recorder:
        recorder.log(1, loss=2.0)
        sys.exit(code)
    assert the_end(tmp_path) == ["finished"]


def test_leaving_the_program_with_an_error_code_is_not(tmp_path):
    with pytest.raises(SystemExit), Recorder(tmp_path, run="r"):
        sys.exit(3)
    assert the_end(tmp_path) == ["exception: SystemExit"]


def test_a_stop_that_was_asked_for_is_recorded_as_one_however_the_program_leaves_its_loop(tmp_path):
    recorder = Recorder(tmp_path, run="r")
    submit(tmp_path, "r", action="stop", by="nina", source="cli", reason="power cut at noon")
    client = ControlClient(tmp_path, run="r", recorder=recorder, poll_s=0.01)
    try:
        assert client.refuses_start is not None
        assert client.at_step(1) == "stop"
    finally:
        client.close()
        recorder.close()
    assert the_end(tmp_path) == ["stopped"]
