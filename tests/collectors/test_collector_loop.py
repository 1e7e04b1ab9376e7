import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.base import Health, PointBuffer, run
from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.records import Point
from trainvitals.store.encode import check_point


def point(number, measurement="node"):
    return Point(measurement, {"node": "n"}, number, {"state": "ok"})


class Store:
    """Takes points unless told otherwise; refuses those of measurement ``bad`` for ever."""

    def __init__(self):
        self.is_down = False
        self.taken = []

    def write(self, points):
        if self.is_down:
            raise StoreUnavailable("The store does not answer; the points are kept.")
        if any(one.measurement == "bad" for one in points):
            raise StoreError("Measurement 'bad' is not in the schema.")
        self.taken += points


class Numbers:
    """A collector of one point per poll that fails when told."""

    name = "numbers"

    def __init__(self, clock):
        self.clock, self.polls, self.fails, self.takes_s = clock, 0, set(), 0.0

    def collect(self):
        self.polls += 1
        self.clock.advance(self.takes_s)
        if self.polls in self.fails:
            raise OSError("the source is gone")
        return [point(self.polls)]

    def close(self):
        pass


class Loop:
    def __init__(self):
        self.clock, self.health, self.store, self.said, self.pauses = ManualClock(), Health(), Store(), [], []
        self.collector = Numbers(self.clock)
        self.buffer = PointBuffer(self.store, self.health, limit=3)

    def run(self, polls, before_poll=lambda number: None):
        def wait(seconds):
            self.pauses.append(seconds)
            self.clock.advance(seconds)
            before_poll(len(self.pauses) + 1)
            return len(self.pauses) >= polls

        before_poll(1)
        run(self.collector, self.buffer, self.health, self.clock, 10.0, wait, "n", self.said.append)


def test_each_poll_is_written_and_the_period_is_kept_whatever_a_poll_takes():
    loop = Loop()
    loop.collector.takes_s = 4.0
    loop.run(3)
    assert [one.time_ns for one in loop.store.taken] == [1, 2, 3]
    assert loop.pauses == [6.0] * 3
    assert (loop.said, loop.health.overruns) == ([], 0)


def test_a_poll_longer_than_the_period_is_counted():
    loop = Loop()
    loop.collector.takes_s = 11.0
    loop.run(2)
    assert (loop.health.overruns, loop.pauses) == (2, [0.0, 0.0])


def test_a_failing_source_is_asked_less_often_said_once_and_told_when_it_is_well_again():
    loop = Loop()
    loop.collector.fails = set(range(2, 9))
    loop.run(10)
    assert loop.pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 10.0, 10.0]
    assert (loop.health.polls, loop.health.failed_polls, loop.health.trouble) == (10, 7, "")
    assert loop.said == ["collector numbers: OSError: the source is gone", "collector numbers: all is well again"]
    events = [one for one in loop.store.taken if one.measurement == "event"]
    assert [one.fields["severity"] for one in events] == [1, 0]
    for one in events:
        check_point(one)


def test_while_the_store_is_down_the_newest_points_wait_and_drops_are_counted():
    loop = Loop()

    def outage(number):
        loop.store.is_down = 2 <= number <= 6

    loop.run(7, outage)
    # Five polls and the event that tells of the outage did not fit in a buffer of three.
    assert loop.health.dropped == 4
    assert [one.time_ns for one in loop.store.taken if one.measurement == "node"] == [1, 5, 6, 7]
    assert "does not answer" in loop.said[0]


def test_a_point_that_the_store_will_never_take_does_not_hold_up_the_others():
    health, store = Health(), Store()
    buffer = PointBuffer(store, health)
    buffer.add([point(1), point(2, "bad"), point(3)])
    assert buffer.flush() == ""
    assert [one.time_ns for one in store.taken] == [1, 3]
    assert (health.rejected, buffer.waiting) == (1, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30), st.integers(1, 6))
def test_every_point_is_written_once_or_counted_as_dropped(rounds, limit):
    health, store = Health(), Store()
    buffer = PointBuffer(store, health, limit)
    number = 0
    for count, is_down in rounds:
        store.is_down = is_down
        buffer.add([point(number := number + 1) for _ in range(count)])
        buffer.flush()
    store.is_down = False
    buffer.flush()
    times = [one.time_ns for one in store.taken]
    assert times == sorted(set(times))
    assert len(times) + health.dropped == number


@pytest.mark.parametrize("name", ["checkpoints", "trainer_log"])
def test_thin_collectors_are_for_looking_the_watchdog_stores(name, tmp_path, capsys):
    from collectors.__main__ import main

    assert main([name, "--path", str(tmp_path)]) == 2
    assert "trainvitals watch" in capsys.readouterr().err
    assert main([name, "--once", "--stdout"]) == 2
    assert "--path" in capsys.readouterr().err


def test_the_log_collector_prints_steps_as_points(tmp_path, capsys):
    import json

    from collectors.__main__ import main

    log = tmp_path / "train.log"
    log.write_text("".join(f"iter {step}: loss {3 - step / 100:.4f}, time 250.00ms, mfu 41.00%\n" for step in range(5)))
    assert main(["trainer_log", "--once", "--stdout", "--path", str(log)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    steps = [record for record in records if record["measurement"] == "train"]
    assert [record["fields"]["loss"] for record in steps] == [3.0, 2.99, 2.98, 2.97, 2.96]


def test_the_checkpoint_collector_prints_what_is_there(tmp_path, capsys):
    import json

    from collectors.__main__ import main

    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "config.json").write_text("{}")
    assert main(["checkpoints", "--once", "--stdout", "--path", str(tmp_path)]) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["tags"]["kind"] == "checkpoint"
    assert json.loads(record["fields"]["json"])["state"] == "writing"


def test_a_reader_that_has_had_enough_ends_the_collector_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"iter {step}: loss 2.0, time 80.00ms\n" for step in range(20_000)))
    command = [sys.executable, "-m", "collectors", "trainer_log", "--once", "--stdout", "--path", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith(b"{")
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), told) == (0, b"")
