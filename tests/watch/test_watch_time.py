"""Old logs, clocks that are set, wrong time zones, and silence that nobody watched begin."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from test_watchdog import Bench

HOUR_S = 3_600.0


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()


def stalls(bench):
    return [event for event in bench.events("finding") if event.data["rule"] == "stall"]


def run_on(bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.clock.advance(1)
        bench.watchdog.turn()


def test_a_log_that_was_old_when_it_was_first_read_wakes_nobody(bench):
    bench.header()
    bench.train(0, 300)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 300)
    assert [event.severity.value for event in stalls(bench)] == ["info"]
    assert "before it was watched" in stalls(bench)[0].text
    assert not any(sentence.startswith("critical") for sentence in bench.said)
    bench.start()
    run_on(bench, 300)
    assert [event.severity.value for event in stalls(bench)] == ["info"]


def test_an_old_log_that_goes_on_after_all_is_watched_like_any_other(bench):
    bench.header()
    bench.train(0, 300)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 5)
    for step in range(300, 400):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    bench.clock.advance(9 * HOUR_S)
    run_on(bench, 5)
    assert max(event.severity.rank for event in stalls(bench)) == 2


def test_a_hang_that_began_while_the_watchdog_was_down_still_wakes_somebody(bench):
    bench.header()
    for step in range(100):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    bench.start()
    bench.clock.advance(2 * HOUR_S)
    run_on(bench, 5)
    assert [event.severity.value for event in stalls(bench)][-1] == "critical"


@pytest.mark.parametrize("hours", [3, -3])
def test_a_clock_that_is_set_is_no_stall(bench, hours):
    bench.header()
    for step in range(100):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    bench.clock.advance(hours * HOUR_S, wall_only=True)
    run_on(bench, 5)
    for step in range(100, 200):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    bench.clock.advance(-hours * HOUR_S, wall_only=True)
    run_on(bench, 5)
    for step in range(200, 300):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    assert stalls(bench) == []
    assert sorted(bench.train_rows()["step"]) == list(range(300))


def test_a_stall_is_found_after_a_clock_was_set(bench):
    bench.header()
    for step in range(100):
        bench.step(step, loss=2.0)
        run_on(bench, 1)
    bench.clock.advance(-3 * HOUR_S, wall_only=True)
    run_on(bench, 3_000)
    assert [event.severity.value for event in stalls(bench)][-1] == "critical"


def test_a_log_of_a_wrong_time_zone_gives_no_stall_while_steps_come(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "run" / "*.out")])
    log = bench.dir / "train.out"
    log.write_text("")
    run_on(bench, 1)
    for step in range(1, 200):
        moment = datetime.fromtimestamp(bench.clock.time_ns() / 1e9 - 8 * HOUR_S, UTC)
        with log.open("a") as file:
            file.write(
                f" [{moment:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/  100000 | consumed samples: {step * 8:12d} | "
                f"elapsed time per iteration (ms): 1000.0 | learning rate: 1.0E-04 | global batch size: 8 | "
                f"lm loss: 2.{step % 10}E+00 | grad norm: 1.0 | number of skipped iterations: 0 | "
                f"number of nan iterations: 0 |\n"
            )
        run_on(bench, 1)
    assert len(bench.train_rows()) == 199
    assert stalls(bench) == []
    run_on(bench, 2_000)
    assert stalls(bench) != []
    bench.store.close()


OUT_OF_MEMORY = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def logged(at_s, step):
    moment = datetime.fromtimestamp(at_s, UTC)
    return (
        f" [{moment:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/ 20000 | consumed samples: {step * 8} | "
        "elapsed time per iteration (ms): 2000.0 | learning rate: 3.0E-04 | lm loss: 2.0E+00 | grad norm: 0.300 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


@pytest.mark.parametrize("is_followed_by_steps", [True, False])
def test_a_fault_of_last_night_is_not_dated_by_the_morning_in_which_it_was_read(tmp_path, is_followed_by_steps):
    bench = Bench(tmp_path, logs=[str(tmp_path / "train.log")])
    began_s = bench.clock.time_ns() // 10**9 - 9 * 3600
    steps = [logged(began_s + 2 * step, step) for step in range(60)]
    (tmp_path / "train.log").write_text("".join(steps[:40]) + OUT_OF_MEMORY + "".join(steps[40:] if is_followed_by_steps else ""))
    written_s = began_s + 130
    os.utime(tmp_path / "train.log", (written_s, written_s))
    run_on(bench, 10)
    (fault,) = bench.events("fault")
    assert began_s + 76 <= fault.time_ns / 1e9 <= began_s + 81
    bench.store.close()


def test_a_fault_between_two_reads_of_a_long_history_takes_the_time_of_the_step_before(tmp_path):
    path = tmp_path / "train.log"
    bench = Bench(tmp_path, logs=[str(path)])
    sources = bench.watchdog._sources
    sources._max_bytes = 3 * len(logged(0, 1))
    began_s = bench.clock.time_ns() // 10**9 - 9 * 3600
    path.write_text(
        "".join(logged(began_s + 2 * step, step) for step in range(30))
        + "a line of nobody\n" * 500
        + OUT_OF_MEMORY * 3
        + "x\n" * 5000
    )
    now_s = bench.clock.time_ns() / 1e9
    os.utime(path, (now_s, now_s))
    run_on(bench, 60)
    assert [round(event.time_ns / 1e9) for event in bench.events("fault")] == [began_s + 58]
    bench.store.close()


def test_a_fault_that_was_written_just_now_is_dated_by_now(tmp_path):
    path = tmp_path / "train.log"
    bench = Bench(tmp_path, logs=[str(path)])
    began_s = bench.clock.time_ns() // 10**9
    path.write_text("".join(logged(began_s - 600 + 2 * step, step) for step in range(30)))
    os.utime(path, (began_s, began_s))
    run_on(bench, 10)
    with path.open("a") as file:
        file.write(OUT_OF_MEMORY)
    os.utime(path, (began_s + 10, began_s + 10))
    run_on(bench, 10)
    (fault,) = bench.events("fault")
    assert began_s + 9 <= fault.time_ns / 1e9 <= began_s + 20
    bench.store.close()
