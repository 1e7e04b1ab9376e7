"""What a log loses is told by the heartbeat; what only happens to it is not."""

from __future__ import annotations

import pytest

from tests.watch.test_watchdog import Bench

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
