"""In which order the logs of a run are read: history as it was written, whatever the files are called."""

from __future__ import annotations

import os

from trainvitals.clock import ManualClock
from trainvitals.logs import tail
from trainvitals.logs.cursor import Cursor, begins_with
from trainvitals.logs.tail import LogSource
from trainvitals.records import Step


def write(path, first, count, *, written_s):
    with path.open("a") as file:
        file.write("".join(f"iter {step}: loss 3.0, time 1.0ms, mfu 1.0%\n" for step in range(first, first + count)))
    os.utime(path, (written_s, written_s))


def steps(records):
    return [record.step for _, record in records if isinstance(record, Step)]


def test_logs_of_earlier_jobs_are_read_before_those_of_later_ones(tmp_path):
    for number, name in enumerate(("z.log", "m.log", "a.log")):
        write(tmp_path / name, 100 * number, 3, written_s=1_767_323_000 + number)
    source = LogSource([str(tmp_path / "*.log")])
    assert steps(source.poll()) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
    source.close()


def test_a_large_history_is_read_log_by_log_also_over_a_restart_of_the_reader(tmp_path):
    for number, name in enumerate(("c.log", "b.log", "a.log")):
        write(tmp_path / name, 1000 * number, 300, written_s=1_767_323_000 + number)
    source, found = LogSource([str(tmp_path / "*.log")]), []
    for _ in range(1000):
        found += steps(source.poll(max_bytes=2_000))
        state = source.to_state()
        source.close()
        source = LogSource([str(tmp_path / "*.log")])
        source.restore(state)
        if len(found) == 900:
            break
    assert found == [1000 * number + step for number in range(3) for step in range(300)]
    source.close()


def test_a_log_that_is_followed_does_not_wait_for_the_history_of_another(tmp_path):
    clock = ManualClock()
    write(tmp_path / "live.log", 0, 3, written_s=1_767_323_000)
    source = LogSource([str(tmp_path / "*.log")], clock=clock)
    source.poll()
    write(tmp_path / "copied.log", 1000, 3000, written_s=1_700_000_000)
    write(tmp_path / "live.log", 3, 1, written_s=1_767_323_010)
    clock.advance(60)
    assert 3 in steps(source.poll(max_bytes=2_000))
    source.close()


def test_of_more_logs_than_find_a_place_the_newest_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "MAX_FILES", 2)
    for number, name in enumerate(("c.log", "b.log", "a.log")):
        write(tmp_path / name, 100 * number, 1, written_s=1_767_323_000 + number)
    source = LogSource([str(tmp_path / "*.log")])
    assert steps(source.poll()) == [100, 200] and source.counters["files_beyond_limit"] == 1
    source.close()


def test_two_names_of_one_file_are_one_log(tmp_path):
    write(tmp_path / "train.log", 0, 3, written_s=1_767_323_000)
    (tmp_path / "latest.log").symlink_to(tmp_path / "train.log")
    source = LogSource([str(tmp_path / "*.log")])
    assert steps(source.poll()) == [0, 1, 2] and len(source.paths) == 1
    source.close()


def test_a_name_that_leads_to_another_file_since_the_look_is_not_opened_for_it(tmp_path):
    log, older = tmp_path / "train.log", tmp_path / "train.log.1"
    log.write_text("iter 2: loss 3.0, time 1.0ms\n")
    older.write_text("iter 1: loss 3.0, time 1.0ms\n")
    cursor = Cursor.opened(str(log))
    cursor.read(100)
    seen, fingerprint = cursor.identity, cursor.fingerprint()
    cursor.close()
    older.rename(log)
    assert Cursor.opened_as(str(log), seen) is None
    assert begins_with(str(log), seen, fingerprint) is None
