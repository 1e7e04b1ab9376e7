"""An old log that is copied beside the live one, and a mirror that brings two hours at once: the breaker takes their times as they are."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from test_start_without_store import Place

from trainvitals.clock import ManualClock
from trainvitals.control.request import read_request
from trainvitals.watch.trainer_clocks import KEPT_LOOKS, TrainerClocks

WEEK_S = 7 * 86_400.0
HOUR_NS = 3600 * 10**9


def line(time_ns, step, loss):
    when = datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f" [{when}] iteration {step:8d}/    5000 | consumed samples: {step * 100} | elapsed time per iteration (ms): 100.1 | "
        f"learning rate: 1.0E-04 | global batch size: 512 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.500 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def loss_of(step):
    return 2.0 + 0.01 * math.sin(step)


class Logs(Place):
    """Whose steps come from ``logs/*.log``; ``behind_s``: of the trainer's clock."""

    behind_s = 0.0

    def __init__(self, tmp_path):
        self.logs = tmp_path / "logs"
        self.logs.mkdir()
        super().__init__(tmp_path)
        run = replace(self.settings.runs[0], logs=(str(self.logs / "*.log"),))
        self.settings = replace(self.settings, runs=(run,))
        self.step_now = 0

    def live(self, count, loss=loss_of, turns=True):
        for _ in range(count):
            self.clock.advance(1)
            self.step_now += 10
            with (self.logs / "run.log").open("a") as file:
                file.write(line(self.clock.time_ns() - round(self.behind_s * 1e9), self.step_now, loss(self.step_now)))
            if turns:
                self.watchdog.turn()


@pytest.fixture
def place(tmp_path):
    made = Logs(tmp_path)
    yield made
    made.store.close()
    made.outbox.close()


def test_a_log_of_last_week_that_is_copied_beside_the_new_one_pauses_nobody(place):
    place.begin()
    place.live(150)
    then_ns = place.clock.time_ns() - round(WEEK_S * 1e9)
    lines = [line(then_ns + n * 10**9, n * 10, loss_of(n) if n < 140 else math.nan) for n in range(1, 160)]
    (place.logs / "last_week.log").write_text("".join(lines))
    place.live(30)
    assert read_request(place.dir).desired == "running"
    assert any("would have paused" in said and "6 d 23 h" in said for said in place.said)


def test_a_mirror_that_brings_two_hours_at_once_pauses_nobody_for_what_was_at_their_beginning(place):
    place.begin()
    place.live(150)
    place.live(6, loss=lambda _: math.nan, turns=False)
    place.live(7_200, turns=False)
    place.turns()
    assert read_request(place.dir).desired == "running"


@pytest.mark.parametrize("behind_s", [600.0, WEEK_S])
def test_a_log_whose_trainer_has_a_wrong_clock_is_paused_also_in_its_next_attempt_and_after_a_restart_of_the_watch(
    place, behind_s
):
    place.behind_s = behind_s
    place.begin()
    place.live(150)
    place.begin()
    place.step_now = 400
    place.live(8, loss=lambda step: math.nan if step > 420 else loss_of(step))
    assert read_request(place.dir).desired == "paused"


def behind(clock, looks_s, path="run.log"):
    clocks = TrainerClocks(clock)
    clocks.caught_up(True)
    for look_s in looks_s:
        clocks.looked([(path, clock.time_ns() - round(look_s * 1e9))])
        clocks.caught_up(True)
    return clocks


def test_a_difference_must_be_seen_again_and_again_and_be_the_same():
    clock = ManualClock()
    told_ns = clock.time_ns() - HOUR_NS
    assert behind(clock, [3600] * 3).written_ns("run.log", told_ns) == told_ns
    assert behind(clock, [3600] * 4).written_ns("run.log", told_ns) == clock.time_ns()
    assert behind(clock, [9000, 7000, 5000, 3600, 3600]).written_ns("run.log", told_ns) == told_ns
    assert behind(clock, [3600] * 4).written_ns("other.log", told_ns) == told_ns
    assert behind(clock, [-3600] * 4).written_ns("run.log", told_ns) == told_ns, "a clock that runs ahead"


def test_a_clock_that_is_set_right_is_believed_at_once():
    clock = ManualClock()
    clocks = behind(clock, [3600] * 5 + [0])
    assert clocks.written_ns("run.log", clock.time_ns()) == clock.time_ns()


def test_what_was_learnt_goes_on_over_a_restart_and_stays_small():
    clock = ManualClock()
    clocks = behind(clock, [3600] * 9)
    again = TrainerClocks(clock)
    again.restore(clocks.to_state())
    assert again.to_state() == clocks.to_state() == {"run.log": [HOUR_NS] * KEPT_LOOKS}
    for number in range(200):
        again.looked([(f"{number}.log", 1)])
    assert len(again.to_state()) == 64
