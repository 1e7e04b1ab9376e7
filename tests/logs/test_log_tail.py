"""Files that grow, rotate, shrink and vanish; and a reader that is killed in between."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.logs import tail
from trainvitals.logs.grammar import LineByLine
from trainvitals.logs.tail import LogSource
from trainvitals.records import Event, Step


def line(step, loss="3.0"):
    return f"iter {step}: loss {loss}, time 1.0ms, mfu 1.0%\n"


def lines(start, end):
    return "".join(line(step) for step in range(start, end))


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def steps(records):
    return [record.step for _, record in records if isinstance(record, Step)]


def restarted(source, patterns):
    state = json.loads(json.dumps(source.to_state()))
    source.close()
    again = LogSource(patterns)
    again.restore(state)
    return again


@pytest.fixture
def log(tmp_path):
    return tmp_path / "train.log"


@pytest.fixture
def source(log):
    made = LogSource([str(log)])
    yield made
    made.close()


def test_a_growing_log_is_read_once(log, source):
    assert source.poll() == []
    append(log, lines(0, 3))
    assert steps(source.poll()) == [0, 1, 2]
    assert source.poll() == []
    append(log, line(3) + line(4)[:9])
    assert steps(source.poll()) == [3]
    append(log, line(4)[9:])
    assert steps(source.poll()) == [4]


def test_a_large_backlog_comes_in_bounded_pieces(log, source):
    append(log, lines(0, 3000))
    seen = []
    for _ in range(100):
        records = source.poll(max_bytes=5000)
        assert len(records) < 200
        seen += steps(records)
    assert seen == list(range(3000))


def test_the_rest_of_a_renamed_log_is_read_before_its_successor_in_the_same_attempt(log, source):
    append(log, lines(0, 2))
    source.poll()
    append(log, lines(2, 4))
    log.rename(log.with_suffix(".log.1"))
    append(log.with_suffix(".log.1"), lines(4, 5))
    append(log, lines(5, 7))
    records = source.poll()
    assert steps(records) == [2, 3, 4, 5, 6]
    assert {record.attempt for _, record in records} == {1}
    assert source.counters["rotations"] == 1


def test_the_writer_may_go_on_in_the_renamed_log_until_it_opens_the_new_one(log, source):
    with open(log, "a") as file:
        file.write(lines(0, 2))
        file.flush()
        assert steps(source.poll()) == [0, 1]
        log.rename(log.with_suffix(".log.1"))
        log.touch()
        assert source.poll() == []
        file.write(lines(2, 3))
        file.flush()
        assert steps(source.poll()) == [2]
    append(log, lines(3, 4))
    assert steps(source.poll()) == [3]


def test_rotated_logs_that_match_the_pattern_are_not_read_again(tmp_path, log):
    patterns = [str(tmp_path / "train.log*")]
    source = LogSource(patterns)
    seen = []
    for generation in range(5):
        append(log, lines(generation * 3, generation * 3 + 3))
        seen += steps(source.poll())
        for number in range(generation, 0, -1):
            (tmp_path / f"train.log.{number}").rename(tmp_path / f"train.log.{number + 1}")
        log.rename(tmp_path / "train.log.1")
        seen += steps(source.poll())
        source = restarted(source, patterns)
    seen += steps(source.poll())
    assert seen == list(range(15))
    source.close()


def test_a_copied_and_truncated_log_continues(log, source):
    append(log, lines(0, 50))
    source.poll()
    shutil.copy(log, log.with_suffix(".bak"))
    os.truncate(log, 0)
    append(log, lines(50, 52))
    assert steps(source.poll()) == [50, 51]
    assert source.counters["truncations"] == 1


def test_a_log_that_was_rewritten_longer_is_read_from_its_start(log, source):
    append(log, "same banner\n" * 200 + lines(100, 120))
    source.poll()
    log.write_text("same banner\n" * 200 + lines(1, 60))
    records = source.poll()
    assert steps(records) == list(range(1, 60))
    assert {record.attempt for _, record in records} == {2}


def test_a_job_that_overwrites_its_short_log_is_a_new_attempt_with_a_new_key(log, source):
    append(log, "job 1\n" + lines(0, 4))
    first = source.poll()
    log.write_text("job 2\n" + lines(0, 2))
    second = source.poll()
    assert [(record.attempt, record.step) for _, record in second if isinstance(record, Step)] == [(2, 0), (2, 1)]
    assert first[0][1].data["key"] != second[0][1].data["key"]
    assert second[0][1].data["key"].endswith("/0")


def test_a_writer_that_does_not_append_leaves_a_hole_which_is_skipped(log, source):
    with open(log, "w") as file:
        file.write(lines(0, 20))
        file.flush()
        source.poll()
        os.truncate(log, 0)
        file.write(lines(20, 22))
        file.flush()
        assert steps(source.poll()) == [20, 21]


def test_an_inode_that_is_used_again_is_another_file(log, source):
    append(log, lines(0, 30))
    source.poll()
    state = source.to_state()
    log.unlink()
    append(log, "a new job\n" + lines(0, 60))
    # Whatever number the file system gave it: the state says it is the old one.
    state["streams"][0]["cursor"]["inode"] = log.stat().st_ino
    again = LogSource([str(log)])
    again.restore(state)
    assert steps(again.poll()) == list(range(60))
    again.close()


def test_a_deleted_log_is_still_read_while_it_is_written_and_let_go_later(log):
    clock = ManualClock()
    source = LogSource([str(log)], clock=clock)
    with open(log, "a") as file:
        file.write(lines(0, 1))
        file.flush()
        source.poll()
        log.unlink()
        file.write(lines(1, 2))
        file.flush()
        assert steps(source.poll()) == [1]
        source.poll()
        clock.advance(601)
        source.poll()
        file.write(lines(2, 3))
        file.flush()
        assert source.poll() == []
    append(log, lines(5, 6))
    assert steps(source.poll()) == [5]
    source.close()


def test_a_restart_finds_the_log_under_the_name_that_a_rotation_gave_it(log, source):
    append(log, lines(0, 3) + line(3)[:8])
    source.poll()
    append(log, line(3)[8:] + lines(4, 6))
    log.rename(log.with_name("train.log-20260102"))
    append(log, lines(6, 8))
    again = restarted(source, [str(log)])
    assert steps(again.poll()) == [3, 4, 5, 6, 7]
    again.close()


def test_each_log_has_attempts_of_its_own(tmp_path):
    for name in ("a.log", "b.log"):
        append(tmp_path / name, f"host {name}\n" + lines(0, 2))
    (tmp_path / "c.log.gz").write_bytes(b"\x1f\x8b")
    os.mkfifo(tmp_path / "pipe.log")
    source = LogSource([str(tmp_path / "*.log*")])
    records = source.poll()
    keys = {path: record.data["key"] for path, record in records if isinstance(record, Event)}
    assert sorted(Path(path).name for path in keys) == ["a.log", "b.log"]
    assert len(set(keys.values())) == 2
    assert steps(records) == [0, 1, 0, 1]
    source.close()


def test_a_torn_line_at_a_rotation_is_lost_and_counted(log, source):
    append(log, lines(0, 1) + "iter 1: loss 3.5, ti")
    source.poll()
    log.rename(log.with_suffix(".old"))
    append(log, lines(2, 3))
    assert steps(source.poll()) == [2]
    assert source.counters["torn_lines"] == 1


def test_a_tree_that_is_costly_to_list_is_listed_less_often(tmp_path, monkeypatch):
    clock = ManualClock()
    append(tmp_path / "a.log", lines(0, 1))
    source = LogSource([str(tmp_path / "*.log")], clock=clock)
    work_s = iter([10.0, 10.1, 20.0, 20.001])
    monkeypatch.setattr(tail.time, "thread_time", lambda: next(work_s))
    assert steps(source.poll()) == [0]
    append(tmp_path / "a.log", lines(1, 2))
    append(tmp_path / "b.log", lines(0, 1))
    assert steps(source.poll()) == [1]
    clock.advance(10.5)
    assert steps(source.poll()) == [0]
    source.close()


_ACTIONS = st.lists(
    st.sampled_from(["append", "append", "append", "tear", "poll", "rotate", "rotate_empty", "truncate", "restart"]), max_size=40
)


@settings(max_examples=80, deadline=None)
@given(actions=_ACTIONS)
def test_every_complete_line_is_read_once_whatever_happens_to_the_file(actions, tmp_path_factory):
    directory = tmp_path_factory.mktemp("logs")
    log = directory / "train.log"
    patterns = [str(directory / "train.log*")]
    source = LogSource(patterns)
    seen, expected, unread = [], [], []
    number = generation = 0
    torn = ""
    for action in actions:
        if action == "append":
            append(log, torn + line(number))
            torn = ""
            expected.append(number)
            unread.append(number)
            number += 1
        elif action == "tear" and not torn:
            torn = line(number)[10:]
            append(log, line(number)[:10])
            expected.append(number)
            unread.append(number)
            number += 1
        elif action == "poll":
            seen += steps(source.poll())
            unread = []
        elif action in ("rotate", "rotate_empty") and log.exists():
            seen += steps(source.poll())  # two rotations between two polls lose what no name leads to any more
            append(log, torn)
            torn, unread = "", []
            log.rename(directory / f"train.log.{generation}")
            generation += 1
            if action == "rotate_empty":
                log.touch()
        elif action == "truncate" and log.exists() and not torn:
            seen += steps(source.poll())
            os.truncate(log, 0)
        elif action == "restart":
            source = restarted(source, patterns)
    if torn:
        append(log, torn)
    for _ in range(3):
        seen += steps(source.poll())
    source.close()
    shutil.rmtree(directory)
    assert seen == expected


class TwoLines(LineByLine):
    """A home-made format whose record is complete when the next one begins."""

    name = "two_lines"
    title = "two lines a step"
    example = "STEP 1"
    literals = ("STEP ",)

    def __init__(self, times):
        super().__init__()
        self._held = []

    @staticmethod
    def claims(line):
        return line.startswith("STEP ")

    def feed(self, line):
        if not self.claims(line):
            return []
        told, self._held = self._held, [Step(int(line.split()[1]), 0, None, {"loss": 1.0})]
        return told

    def idle(self):
        told, self._held = self._held, []
        return told

    finish = idle


def test_a_record_that_waits_for_a_further_line_is_given_out_once_after_a_silence(log):
    clock = ManualClock()
    source = LogSource([str(log)], clock=clock, custom={"two_lines": TwoLines})
    append(log, "STEP 1\nSTEP 2\n")
    assert steps(source.poll()) == [1]
    clock.advance(2.9)
    assert source.poll() == []
    clock.advance(0.2)
    assert steps(source.poll()) == [2]
    clock.advance(60)
    assert source.poll() == []
    append(log, "STEP 3\n")
    assert source.poll() == []
    clock.advance(3.5)
    assert steps(source.poll()) == [3]
    source.close()


def test_a_silence_changes_neither_keys_nor_ids(log):
    def read(silence_s):
        clock = ManualClock()
        source = LogSource([str(log)], "two_lines", clock=clock, custom={"two_lines": TwoLines})
        log.write_text("banner\nSTEP 1\n")
        records = source.poll()
        clock.advance(silence_s)
        records += source.poll()
        append(log, "STEP 2\nnoise\n")
        records += source.poll()
        source.close()
        return [record for _, record in records if isinstance(record, Event)]

    assert read(0) == read(60)


def test_a_file_that_cannot_be_opened_counts_once_and_is_read_when_its_rights_are_back(tmp_path, monkeypatch):
    append(tmp_path / "a.log", lines(0, 2))
    opened = os.open

    def refuse(path, *rest, **named):
        if str(path).endswith("a.log"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *rest, **named)

    source = LogSource([str(tmp_path / "*.log")])
    monkeypatch.setattr(os, "open", refuse)
    assert [source.poll(), source.poll(), source.poll()] == [[], [], []]
    assert source.counters["unreadable"] == 1
    monkeypatch.setattr(os, "open", opened)
    assert steps(source.poll()) == [0, 1]
    source.close()


def test_a_followed_file_that_takes_errors_counts_once_and_goes_on_where_it_was(log, source, monkeypatch):
    append(log, lines(0, 2))
    assert steps(source.poll()) == [0, 1]
    append(log, lines(2, 3))
    read = os.pread
    opened = os.open

    def stale(*_, **__):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    monkeypatch.setattr(os, "open", stale)
    assert [source.poll(), source.poll()] == [[], []]
    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr(os, "open", opened)
    assert steps(source.poll()) == [2]
    assert source.counters["unreadable"] == 1
