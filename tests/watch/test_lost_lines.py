"""What a log loses is told by the heartbeat; what only happens to it is not."""

from __future__ import annotations

import os

import pytest

from tests.watch.test_watchdog import Bench
from trainvitals.logs import tail

LINE = "iter {}: loss 3.0, time 1.0ms, mfu 1.0%\n"


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, logs=[str(tmp_path / "train.log")])
    yield made
    made.store.close()


def lost(bench):
    bench.clock.advance(60)
    bench.watchdog.turn()
    beat = bench.store.latest("heartbeat", ["lost_records"], {"run": "r"}, 10**12, bench.clock.time_ns())
    return int(beat.iloc[0]["lost_records"])


def test_lines_that_all_ranks_print_and_a_rotation_are_no_loss_but_an_overlong_line_is(bench, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(LINE.format(1) * 64)
    assert lost(bench) == 0
    log.rename(tmp_path / "old.log")
    log.write_text(LINE.format(2) * 64)
    assert lost(bench) == 0
    with log.open("a") as file:
        file.write("x" * 70_000 + "\n")
    assert lost(bench) == 1


def test_what_was_lost_is_noted_by_kind_once_and_not_at_every_heartbeat(bench, tmp_path):
    (tmp_path / "train.log").write_text(LINE.format(1) + "x" * 70_000 + "\n")
    assert [lost(bench) for _ in range(3)] == [1, 1, 1]
    (told,) = [event for event in bench.events("watch") if "lost_by_kind" in event.data]
    assert told.data["lost_by_kind"] == {"capped_lines": 1} and "capped lines: 1" in told.text


def test_files_that_find_no_place_are_told_with_what_to_do_and_are_no_lost_records(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "MAX_FILES", 2)
    bench = Bench(tmp_path, logs=[str(tmp_path / "*.log")])
    for number in range(5):
        path = tmp_path / f"{number}.log"
        path.write_text(LINE.format(number))
        os.utime(path, (1_767_323_000 + number,) * 2)
    assert [lost(bench) for _ in range(3)] == [0, 0, 0]
    bench.clock.advance(2 * 86_400)
    assert lost(bench) == 0
    for number in range(3):  # the newest are followed
        (tmp_path / f"{number}.log").unlink()
    assert lost(bench) == 0
    more, reminder, again = [event for event in bench.events("watch") if "files_beyond_limit" in event.data]
    assert more.data["files_beyond_limit"] == 3 and "3 files that `logs` names are not followed" in more.text
    assert "rank_logs" in more.text and reminder.text == more.text and again.data["files_beyond_limit"] == 0
    bench.store.close()
