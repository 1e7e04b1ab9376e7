"""An event file is followed while it grows, like any log."""

import json
import sys

import pytest
from tensorboard.compat.proto.event_pb2 import Event as Message
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from trainvitals.logs.tail import LogSource
from trainvitals.records import Step

START = 1_770_000_000.0


class Writer:
    def __init__(self, path):
        self.path = path
        self.write(Message(wall_time=START, file_version="brain.Event:2"))

    def write(self, event):
        with self.path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())

    def scalar(self, tag, step, value):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self.write(Message(wall_time=START + step, step=step, summary=summary))


class Clock:
    now_s = 0.0

    def monotonic_s(self):
        return self.now_s

    def time_ns(self):
        return int(START * 1e9)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.out.tfevents.1770000000.host.1.0"


def steps_of(records):
    return [record.step for _, record in records if isinstance(record, Step)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_event_file_is_followed_also_over_restarts_of_the_reader(path, is_restarted):
    clock, writer = Clock(), Writer(path)
    source = LogSource([str(path)], clock=clock)
    found = []
    for step in range(1, 31):
        writer.scalar("loss", step, 2.0)
        writer.scalar("grad_norm", step, 1.0)
        found += source.poll(max_bytes=70)
        if is_restarted:
            state = json.loads(json.dumps(source.to_state(), allow_nan=False))
            source.close()
            source = LogSource([str(path)], clock=clock)
            source.restore(state)
    for _ in range(100):
        found += source.poll(max_bytes=1000)
    assert steps_of(found) == list(range(1, 23))  # the newest are held: late tags may come
    clock.now_s = 10.0
    found += source.poll() + source.poll()
    assert steps_of(found) == list(range(1, 30))
    for now_s in (20.0, 200.0):
        clock.now_s = now_s
        found += source.poll()
    assert steps_of(found) == list(range(1, 31))
    assert all(record.values == {"loss": 2.0, "grad_norm": 1.0} for _, record in found if isinstance(record, Step))
    assert source.counters["bad_records"] == 0
    source.close()


def test_a_flush_in_the_middle_of_a_step_costs_none_of_its_tags(path):
    clock, writer, found = Clock(), Writer(path), []
    source = LogSource([str(path)], clock=clock)
    for step in range(1, 6):
        # The first tag after the flush time is flushed alone; the rest of the step comes two minutes later.
        for tag, value in (("loss", 2.0), ("grad_norm", 1.0), ("lr", 1e-4)):
            writer.scalar(tag, step, value)
            if tag == "loss":
                for _ in range(40):
                    clock.now_s += 3.0
                    found += source.poll()
    for _ in range(3):
        clock.now_s += 200.0
        found += source.poll()
    assert steps_of(found) == [1, 2, 3, 4, 5] and source.counters["repeated_steps"] == 0
    assert {tuple(record.values) for _, record in found if isinstance(record, Step)} == {("loss", "grad_norm", "lr")}
    source.close()


def test_without_the_package_the_file_counts_as_unreadable_and_is_read_when_it_is_there(path, monkeypatch):
    writer = Writer(path)
    writer.scalar("loss", 1, 2.0)
    clock = Clock()
    source = LogSource([str(path)], clock=clock)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
        assert source.poll() == []
        assert source.poll() == []
        assert source.counters["unreadable"] == 1
    found = source.poll()
    for now_s in (10.0, 20.0, 200.0):
        clock.now_s = now_s
        found += source.poll()
    assert steps_of(found) == [1]
    source.close()
