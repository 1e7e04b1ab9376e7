"""Three real ranks with gloo: they pause, save, park and stop at one step, and outlive or notice each other."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integrations.roads import environment
from trainvitals.control import read_status, submit

pytestmark = pytest.mark.integration
pytest.importorskip("torch", reason="needs torch (make test-integrations)")

DEADLINE_S = 60.0
TRAINER = Path(__file__).parent / "group_trainer.py"
RANKS = range(3)


class Nursery:
    """The process that forks ranks."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, str(TRAINER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
            start_new_session=True,  # one of them is stopped: whoever loses its terminal then takes all of its group along
        )  # fmt: skip

    def ask(self, **command):
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.communicate(timeout=DEADLINE_S)


class Rank:
    """One forked process."""

    def __init__(self, nursery, *arguments):
        self._nursery = nursery
        self.pid = nursery.ask(start=arguments)
        self.code = None

    def poll(self):
        if self.code is None:
            self.code = self._nursery.ask(end=self.pid)
        return self.code

    def wait(self):
        end_s = time.monotonic() + DEADLINE_S
        while self.poll() is None and time.monotonic() < end_s:
            time.sleep(0.02)
        return self.code

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Job:
    """Three processes and their run directory."""

    def __init__(self, nursery, directory, **wanted):
        self.directory = directory
        directory.mkdir(exist_ok=True)
        meeting = directory / f"meeting{time.monotonic_ns()}"
        self.ranks = [Rank(nursery, str(directory), str(meeting), rank, wanted) for rank in RANKS]

    def ask(self, action, **options):
        return submit(self.directory, "r1", action=action, by="alice", source="cli", reason="spike", **options)

    def until(self, is_true, deadline_s=DEADLINE_S):
        end_s = time.monotonic() + deadline_s
        while time.monotonic() < end_s:
            status = read_status(self.directory)
            if status is not None and is_true(status):
                return status
            time.sleep(0.005)
        pytest.fail(f"it never became true; {status}; {self.errors()}")

    def lines(self, rank):
        path = self.directory / f"rank{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def told(self, key):
        """What each rank told under this key."""
        return [[line[key] for line in self.lines(rank) if key in line] for rank in RANKS]

    def ends(self, *codes):
        found = tuple(process.wait() for process in self.ranks)
        assert found == codes, (found, self.errors())

    def errors(self):
        return [(self.directory / f"rank{rank}.err").read_text()[-800:] for rank in RANKS]


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def start(tmp_path, nursery):
    jobs = []

    def begin(name="run", **wanted):
        jobs.append(Job(nursery, tmp_path / name, **wanted))
        return jobs[-1]

    yield begin
    for job in jobs:
        for process in job.ranks:
            process.kill()
            process.wait()


def test_a_hundred_pauses_at_random_moments_stop_all_ranks_at_one_step_and_change_no_bit(start):
    moments = random.Random(7)
    steps, pauses = 3000, 100
    job = start(steps=steps)
    at = []
    for number in range(pauses):
        time.sleep(moments.random() * 0.03)
        seq = job.ask("pause").seq
        status = job.until(lambda s, seq=seq: s.applied_seq >= seq)
        assert (status.state, status.refused_seq, status.how) == ("paused", 0, "hold"), (number, status)
        at.append(status.applied_at_step)
        seq = job.ask("resume").seq
        job.until(lambda s, seq=seq: s.applied_seq >= seq)
    assert job.ask("stop").seq == 2 * pauses + 1
    job.ends(0, 0, 0)
    last = job.told("ended")[0][0]
    for rank in RANKS:
        lines = job.lines(rank)
        assert [line["saved"] for line in lines if "saved" in line] == sorted({*at, last}), rank
        assert all(line["same"] for line in lines if "saved" in line)
        assert lines[-1]["failures"] == 0
    assert last < steps - 1
    assert len(set(at)) > pauses / 2  # the training went on in between
    plain = start("plain", steps=last + 1, step_s=0)
    plain.ends(0, 0, 0)
    for key in ("weights", "loss"):
        assert plain.told(key) == job.told(key), key


def test_a_pause_three_times_as_long_as_the_time_limit_of_a_collective_is_survived(start):
    job = start(steps=100_000, timeout_s=3)
    job.until(lambda s: s.step is not None)
    job.ask("pause")
    paused = job.until(lambda s: s.state == "paused")
    time.sleep(9.5)
    now = job.until(lambda s: s.heartbeat_seq > paused.heartbeat_seq)
    assert (now.state, now.step) == ("paused", paused.step)
    job.ask("resume")
    job.until(lambda s: s.state == "running" and s.step > paused.step)
    job.ask("stop")
    job.ends(0, 0, 0)
    assert [len(held) > 6 for held in job.told("held")] == [True] * 3
    assert job.told("drained")[1][:1] == [True] and job.lines(1)[0] == {"drained": True}  # before anything was saved


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_when_rank_0_is_gone_or_frozen_while_paused_the_others_end_within_the_groups_time_limit(start, how):
    job = start(steps=100_000, timeout_s=3, patience_s=600)
    job.until(lambda s: s.step is not None)
    job.ask("pause")
    job.until(lambda s: s.state == "paused")
    os.kill(job.ranks[0].pid, how)
    begun_s = time.monotonic()
    assert [job.ranks[rank].wait() for rank in (1, 2)] == [3, 3]
    assert time.monotonic() - begun_s < 120  # far below the 600 s of the patient group, however busy the machine
    for lost in job.told("lost")[1:]:
        assert "cannot reach the other ranks (one of them is gone, or silent for 3 s)" in lost[0]


def test_when_another_rank_dies_while_paused_rank_0_ends_too(start):
    job = start(steps=100_000, timeout_s=3, patience_s=600)
    job.until(lambda s: s.step is not None)
    job.ask("pause")
    job.until(lambda s: s.state == "paused")
    job.ranks[2].kill()
    assert [job.ranks[rank].wait() for rank in (0, 1)] == [3, 3]
    status = read_status(job.directory)
    assert status.ended and "lost each other" in status.error


def test_a_save_that_fails_on_one_rank_refuses_the_pause_on_all_and_training_goes_on(start):
    job = start(steps=100_000, fails_on=2)
    job.until(lambda s: s.step is not None)
    seq = job.ask("pause").seq
    status = job.until(lambda s: s.refused_seq == seq)
    assert "rank 2: the checkpoint failed: OSError: [Errno 28] No space left on device" in status.refusal
    assert status.state == "running"
    job.until(lambda s: s.step > status.step + 20)
    job.ask("stop")
    job.ends(0, 0, 0)
    assert "stopped without a new checkpoint, because rank 2" in read_status(job.directory).error
    assert len({tuple(saved) for saved in job.told("saved")}) == 1


def test_a_checkpoint_raised_by_three_is_one_save_on_all_ranks(start):
    job = start(steps=100_000, meet_every_s=1.0)  # so that the three lie between two meetings
    job.until(lambda s: s.step is not None and s.step > 50)
    for _ in range(3):
        seq = job.ask("checkpoint").seq
    status = job.until(lambda s: s.applied_seq == seq)
    job.ask("stop")
    job.ends(0, 0, 0)
    saved = job.told("saved")
    assert saved[0] == saved[1] == saved[2]
    assert status.checkpoint_done == 3 and len(saved[0]) <= 3  # at most one a meeting, and the stop's own


def test_a_parked_run_ends_with_code_75_on_all_ranks_and_stays_parked_until_somebody_resumes_it(start):
    job = start(steps=100_000)
    job.until(lambda s: s.step is not None)
    job.ask("pause", how="park")
    job.ends(75, 75, 75)
    status = read_status(job.directory)
    assert (status.state, status.how, status.desired, status.ended) == ("stopped", "park", "paused", True)
    assert status.checkpoint_step == status.applied_at_step and "how" in status.understands
    answers = [line for rank in RANKS for line in job.lines(rank) if "answer" in line]
    assert [line["answer"] for line in answers] == ["park"] * 3 and len({line["at"] for line in answers}) == 1
    again = start(steps=100_000)
    again.ends(75, 75, 75)
    assert all("parked by alice (spike; seq 1) and stays parked" in told[0] for told in again.told("refused"))
    job.ask("resume")
    resumed = start(steps=5)
    resumed.ends(0, 0, 0)


def test_a_pause_that_lasts_too_long_is_parked(start):
    job = start(steps=100_000, max_hold_s=1.0)
    job.until(lambda s: s.step is not None)
    job.ask("pause")
    job.ends(75, 75, 75)
    status = read_status(job.directory)
    assert status.how == "park" and len(set(map(tuple, job.told("saved")))) == 1 and len(job.told("saved")[0]) == 1


def test_a_rank_that_dies_while_training_is_left_to_the_trainers_own_collectives(start):
    job = start(steps=100_000, timeout_s=3, dies_at=200)
    codes = [process.wait() for process in job.ranks]
    assert codes[2] == 9 and codes[0] == codes[1] == 1  # torch's own error, not ours
    assert job.told("lost") == [[], [], []]


@pytest.mark.parametrize(("gloo", "why"), [("device", "rank 2: "), ("connection", "rank 2: RuntimeError: connection refused")])
def test_when_one_rank_cannot_meet_the_others_all_train_on_at_once_without_control(start, gloo, why):
    begun_s = time.monotonic()
    job = start(steps=50, gloo=gloo, patience_s=1800, connect_s=3)
    job.ends(0, 0, 0)
    assert time.monotonic() - begun_s < 120  # far below the half hour for which a rank may be late
    for told in job.errors():
        assert f"control of all ranks: RuntimeError: {why}" in told
    assert job.told("failures") == [[1], [1], [1]]


def test_a_rank_that_is_later_than_the_connections_may_take_is_waited_for(start):
    job = start(steps=100_000, sleeps=2, seconds=4, patience_s=60, connect_s=1)
    job.until(lambda s: s.step is not None and s.step > 60)
    job.ask("stop")
    job.ends(0, 0, 0)
    assert job.told("failures") == [[0], [0], [0]]


@pytest.mark.parametrize(("odd", "odd_step"), [([0], "nan"), ([2], "none"), ([0, 1, 2], "huge")])
def test_a_step_that_is_none_ends_no_rank_and_is_counted_where_it_was_called(start, odd, odd_step):
    job = start(steps=100_000, odd=odd, odd_step=odd_step)
    job.until(lambda s: s.step is not None and s.step >= 29)
    if len(odd) == 3:
        job.ask("pause")
        job.until(lambda s: s.state == "paused")
        assert len(set(map(tuple, job.told("saved")))) == 1 and len(job.told("saved")[0]) == 1
    job.ask("stop")
    job.ends(0, 0, 0)
    assert all(told[0] > 0 for rank, told in enumerate(job.told("failures")) if rank in odd or odd == [0])


def test_the_loop_in_the_documentation_works_as_it_stands_there(start):
    page = (Path(__file__).parents[2] / "docs" / "control.md").read_text()
    documented = page[page.index("## On many ranks") :].split("```python\n")[1].split("```")[0]
    assert "GroupControl" in documented
    job = start(steps=100_000, documented=documented.replace("llama-70b", "r1"))
    job.until(lambda s: s.step is not None)
    seq = job.ask("checkpoint").seq
    status = job.until(lambda s: s.applied_seq == seq)
    assert (status.refused_seq, status.checkpoint_done) == (0, 1)
    job.ask("pause", how="park")
    job.ends(75, 75, 75)
    assert [len(saved) for saved in job.told("saved")] == [2, 2, 2]
    again = start(steps=100_000, documented=documented.replace("llama-70b", "r1"))
    again.ends(75, 75, 75)
    assert all("stays parked" in told for told in again.errors())


def test_several_ranks_without_a_process_group_train_without_control_and_say_so(tmp_path, monkeypatch, capsys):
    from trainvitals.hook.group_control import GroupControl

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    control = GroupControl(tmp_path, run="r1", on_checkpoint=print)
    assert control.at_start() is None and not control.wants_save(1)
    assert [control.at_step(step) for step in (1, 2)] == ["continue"] * 2
    assert control.failures.count == 1 and control.exit_code == 0
    assert "torch.distributed has not begun, but there are 2 ranks" in capsys.readouterr().err
    assert read_status(tmp_path) is None  # the page says "not wired", nobody acknowledges what nobody can carry out


def test_arguments_that_make_no_sense_are_told_and_replaced(tmp_path, capsys):
    from trainvitals.hook.group_control import GroupControl

    control = GroupControl(tmp_path, run="r1", timeout_s="long", hold_timeout_s=-1, max_hold_s="never", meet_every_s=float("nan"))
    assert control.failures.count == 4 and "(taken: 60.0)" in capsys.readouterr().err
    assert control.at_step(1) == "continue"
    control.close()
