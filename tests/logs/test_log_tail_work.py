"""What one look at the logs may take: a log that is slow to read ends it, is read on by the next, and tells the same."""

from __future__ import annotations

from trainvitals.clock import ManualClock
from trainvitals.logs import tail
from trainvitals.logs.tail import LogSource
from trainvitals.records import Step


def test_a_poll_that_took_its_work_ends_before_its_bytes_and_nothing_is_lost(tmp_path, monkeypatch):
    line = "iter {}: loss 2.5000, time 100.00ms, mfu 1.00%\n"
    (tmp_path / "a.log").write_text("".join(line.format(number) for number in range(20_000)))
    monkeypatch.setattr(tail, "MAX_POLL_S", 0.0)
    source = LogSource([str(tmp_path / "*.log")], clock=ManualClock())
    steps, polls = [], 0
    while True:
        steps += [record.step for _, record in source.poll() if isinstance(record, Step)]
        polls += 1
        if not source.is_behind:
            break
    assert steps == list(range(20_000)) and polls >= 3


def test_a_log_of_nothing_but_short_lines_does_not_keep_the_other_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "MAX_POLL_S", 0.01)
    (tmp_path / "b.log").write_text("iter 1: loss 2.5000, time 100.00ms, mfu 1.00%\n")
    source = LogSource([str(tmp_path / "*.log")], clock=ManualClock())
    source.poll()
    (tmp_path / "a.log").write_text("{\n" * 400_000)
    source.poll()
    assert source.is_behind
    with (tmp_path / "b.log").open("a") as file:
        file.write("iter 2: loss 2.5000, time 100.00ms, mfu 1.00%\n")
    found = [record.step for _ in range(2) for _, record in source.poll() if isinstance(record, Step)]
    assert found == [2] and source.is_behind


def test_a_log_that_is_slow_to_read_is_read_in_small_pieces_and_tells_the_same(tmp_path, monkeypatch):
    line = "iter {}: loss 2.5000, time 100.00ms, mfu 1.00%\n"
    (tmp_path / "a.log").write_text("".join(line.format(number) for number in range(5_000)))
    monkeypatch.setattr(tail, "_SLOW_CHUNK_NS", -1)
    source = LogSource([str(tmp_path / "*.log")], clock=ManualClock())
    assert [record.step for _, record in source.poll() if isinstance(record, Step)] == list(range(5_000))
    (stream,) = source._streams.values()
    assert stream.chunk_bytes < tail._CHUNK_BYTES
    monkeypatch.setattr(tail, "_SLOW_CHUNK_NS", 10**12)
    for number in range(5_000, 5_010):
        with (tmp_path / "a.log").open("a") as file:
            file.write(line.format(number))
        source.poll()
    assert stream.chunk_bytes == tail._CHUNK_BYTES
