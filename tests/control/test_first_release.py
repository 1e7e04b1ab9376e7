"""The first released client, frozen in ``first_release/``, in a process of its own against today's writer, page and watchdog."""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainvitals.control import files, look, read_request, read_status
from trainvitals.control.audited import ask
from trainvitals.settings import RunSettings
from trainvitals.watch.pause_requests import PauseRequests
from trainvitals.web.process import read_control

FROZEN = Path(__file__).parent / "first_release"
SHA256 = "1a04c1fcfdcc3e61f0825b1018065a4b3589c06155c0506047b9b919232edd64"
WAIT_S = 60.0


class OldTrainer:
    """A process whose steps the test takes one by one."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(FROZEN)!r}); exec(open({str(FROZEN / 'train.py')!r}).read())",
             str(run_dir), "r1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.start = json.loads(self.process.stdout.readline())["start"]

    def begin(self, step):
        """Let it end a step; it may hold in it."""
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def step(self, number):
        self.begin(number)
        return self.answer()

    def ask(self, action, **options):
        request = ask(self.run_dir, "r1", action=action, by="ana", source="ui", reason="why not", **options).request
        self.until(lambda status: status.ack_seq == request.seq)
        return request

    def until(self, is_true):
        """Today's reader on the status of then."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            status = read_status(self.run_dir)
            if status is not None and is_true(status):
                return status
            time.sleep(0.01)
        raise AssertionError(f"it never became true: {read_status(self.run_dir)}")


@pytest.fixture
def trainer(tmp_path):
    made = OldTrainer(tmp_path)
    yield made
    made.process.kill()
    made.process.wait(WAIT_S)
    made.process.stdin.close()
    made.process.stdout.close()


def test_the_frozen_client_is_as_it_was_released():
    """A formatter or a helping hand would make it a client that never ran anywhere."""
    content = b"".join(path.read_bytes() for path in sorted((FROZEN / "trainvitals").rglob("*.py")))
    assert hashlib.sha256(content).hexdigest() == SHA256


def test_it_is_the_first_release_that_runs_and_not_todays(trainer):
    assert trainer.start is None
    status = trainer.until(lambda s: s.heartbeat_seq > 0)
    assert (status.run, status.state, status.understands) == ("r1", "running", ()), "it said nothing of keys that came later"


@pytest.mark.parametrize("keys", [{}, {"save": True}, {"save": False}, {"how": "hold"}, {"how": "park"}], ids=str)
def test_it_pauses_saves_and_goes_on_whatever_later_keys_a_request_has(trainer, keys):
    trainer.step(1)
    trainer.ask("pause", **keys)
    trainer.begin(2)
    trainer.until(lambda s: s.state == "paused")
    assert look(trainer.run_dir, time.time_ns()).sentence.startswith("Paused at step 2, checkpoint 2 (ana: why not)")
    trainer.ask("resume")
    assert trainer.answer() == {"step": 2, "answer": "continue", "saves": [2]}, (
        "it knows neither `save` nor `how`, saves and holds"
    )


def test_keys_that_no_release_knows_yet_do_not_disturb_it(trainer):
    """Of a writer that is newer than today's."""
    trainer.step(1)
    request = trainer.ask("pause")
    document = json.loads(request.to_json()) | {"seq": request.seq + 1, "request_id": "next", "later": {"a": [1]}}
    files.replace(files.control_dir(trainer.run_dir) / files.CONTROL_FILE, json.dumps(document).encode(), files.REQUEST_MODE)
    trainer.until(lambda s: s.ack_seq == request.seq + 1)
    trainer.begin(2)
    assert trainer.until(lambda s: s.state == "paused").checkpoint_step == 2
    trainer.ask("resume")
    assert trainer.answer()["answer"] == "continue"


def test_it_saves_once_when_asked_and_stops_for_good(trainer, tmp_path):
    trainer.step(1)
    trainer.ask("checkpoint")
    assert trainer.step(2)["saves"] == [2]
    trainer.until(lambda s: s.checkpoint_done == 1 and s.state == "running")
    trainer.ask("stop")
    assert trainer.step(3) == {"step": 3, "answer": "stop", "saves": [2, 3]}
    trainer.until(lambda s: s.ended)
    again = OldTrainer(tmp_path)
    assert "stopped by ana (why not; seq 2)" in again.start
    again.process.communicate("", WAIT_S)


def test_the_page_and_the_watchdog_of_today_understand_its_status(trainer):
    trainer.step(1)
    trainer.until(lambda s: s.step == 1)
    run = RunSettings(name="r1", dir=str(trainer.run_dir))
    view = read_control(run, time.time_ns())
    assert (view.state, view.can_act) == ("running", True)
    pauses = PauseRequests(run.dir)
    trainer.ask("pause")
    assert [event.data["desired"] for event in pauses.poll(0.0)] == ["paused"], "asked for, and not there yet"
    trainer.begin(2)
    trainer.until(lambda s: s.state == "paused")
    assert read_control(run, time.time_ns()).state == "paused"
    assert read_request(trainer.run_dir).desired == "paused"
    assert PauseRequests(run.dir).poll(0.0) == [], "carried out"
    trainer.ask("resume")
    trainer.answer()
