"""The watchdog of one run: real files, a real store, a clock that the test moves."""

from __future__ import annotations

import json
import math
import os
import random

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control.records import ControlStatus
from trainvitals.control.request import read_request
from trainvitals.errors import StoreUnavailable
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog

HOST = "node1"
FOR_EVER = (0, 2**62)


class NoCheckpoints:
    reports = ()

    def scan(self):
        return []

    def advise(self, wanted, step_s):
        pass

    def to_state(self):
        return {}

    def restore(self, state):
        pass


class Bench:
    """A run directory, a store, and watchdogs that can be started again."""

    def __init__(self, tmp_path, breaker="dry-run", logs=()):
        self.clock = ManualClock()
        self.dir = tmp_path / "run"
        self.dir.mkdir()
        self.settings = parse(
            {
                "store": f"sqlite://{tmp_path}/store.db",
                "runs": [{"name": "r", "dir": str(self.dir), "breaker": breaker, "logs": list(logs)}],
                "breaker": {"quiet_start_points": 50},
            }
        )
        self.store = SqliteStore(tmp_path / "store.db")
        self.said: list[str] = []
        self.processes: dict[int, tuple[bool, int | None]] = {}
        self.status: ControlStatus | None = None
        self.file = self.dir / "metrics.rank00000.jsonl"
        self.watchdog = self.start()

    def start(self, store=None):
        run = self.settings.runs[0]
        self.watchdog = Watchdog(
            self.settings, run, store or self.store, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable(HOST, lambda pid: self.processes.get(pid, (True, None)))),
            scanner=CheckpointScanner(NoCheckpoints(), self.clock, 10, in_thread=False),
            breaker=BreakerAction(run, lambda _dir: self.status), node=HOST, say=self.said.append,
        )  # fmt: skip
        self.watchdog.restore()
        return self.watchdog

    def header(self, pid=1, started_ns=None):
        started_ns = self.clock.time_ns() if started_ns is None else started_ns
        self.append({"type": "header", "schema": 1, "run": "r", "pid": pid, "host": HOST, "started_ns": started_ns,
                     "rank": 0, "world_size": 1, "hook_version": "0"})  # fmt: skip

    def append(self, record):
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def step(self, step, **values):
        record = {"type": "step", "step": step, "time_ns": self.clock.time_ns(), "values": {}}
        for name, value in values.items():
            if math.isfinite(value):
                record["values"][name] = value
            else:
                record.setdefault("nonfinite", {})[name] = "nan"
        self.append(record)

    def train(self, first, count, loss=2.0, seed=1):
        noise = random.Random(seed)
        for step in range(first, first + count):
            self.clock.advance(1)
            self.step(step, loss=loss + noise.gauss(0, 0.01))

    def train_rows(self):
        return self.store.raw("train", ["step", "loss"], {"run": "r"}, *FOR_EVER)

    def events(self, *kinds):
        return self.store.events("r", kinds, *FOR_EVER)


@pytest.fixture
def bench(tmp_path, request):
    made = Bench(tmp_path, **getattr(request, "param", {}))
    yield made
    made.store.close()


def test_steps_of_the_hook_reach_the_store_once_however_often_the_watchdog_starts(bench):
    bench.header()
    for part in range(5):
        bench.train(part * 20, 20)
        bench.watchdog.turn()
        bench.start()
    assert list(bench.train_rows()["step"]) == list(range(100))
    assert len(bench.events("attempt_start")) == 1


def test_a_second_start_of_the_trainer_is_a_second_attempt(bench):
    bench.header(pid=1)
    bench.train(0, 30)
    bench.watchdog.turn()
    bench.header(pid=2)
    bench.train(20, 10)
    bench.watchdog.turn()
    rows = bench.train_rows()
    assert sorted(set(rows["attempt"])) == ["1", "2"]
    assert list(rows[rows["attempt"] == "2"]["step"]) == list(range(20, 30))
    assert len((bench.dir / "attempts.jsonl").read_text().splitlines()) == 2


def test_an_attempt_knows_the_step_that_it_was_resumed_from(bench):
    bench.header(pid=1)
    bench.train(0, 30)
    bench.header(pid=2)
    bench.append({"type": "event", "kind": "resume", "time_ns": bench.clock.time_ns(), "step": 20, "text": "", "data": {}})
    bench.watchdog.turn()
    bench.start()
    bench.train(21, 5)
    bench.watchdog.turn()
    start = bench.events("attempt_start")[-1]
    assert start.attempt == 2 and start.data["resumed_from_step"] == 20


def test_a_nan_is_stored_found_and_said_once(bench):
    bench.header()
    bench.train(0, 100)
    bench.step(100, loss=math.nan)
    bench.watchdog.turn()
    bench.start()
    bench.watchdog.turn()
    row = bench.store.raw("train", ["step", "loss", "loss_nf", "nonfinite"], {"run": "r"}, *FOR_EVER).iloc[-1]
    assert math.isnan(row["loss"]) and row["loss_nf"] == 1 and row["nonfinite"] == 1
    findings = [event for event in bench.events("finding") if event.data["rule"] == "loss_nonfinite"]
    assert len(findings) == 1
    assert len([sentence for sentence in bench.said if "loss_nonfinite" in sentence]) == 1
    assert len(bench.events("incident")) == 1


def test_a_store_that_is_away_stops_neither_detection_nor_loses_a_point(bench):
    class Away:
        is_away = False

        def commit(self, points, state):
            if self.is_away:
                raise StoreUnavailable("away")
            bench.store.commit(points, state)

        def load_state(self, prefix):
            return bench.store.load_state(prefix)

    away = Away()
    bench.start(away)
    bench.header()
    bench.train(0, 80)
    bench.watchdog.turn()
    away.is_away = True
    bench.train(80, 40)
    bench.watchdog.turn()
    bench.train(120, 5, loss=math.nan)
    bench.watchdog.turn()
    assert len(bench.train_rows()) == 80
    assert any("the store took nothing" in sentence for sentence in bench.said)
    away.is_away = False
    bench.clock.advance(1)
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(125))
    assert bench.watchdog.counters.commit_failures >= 2


def test_a_watchdog_killed_while_the_store_was_away_reads_the_rest_again(bench):
    class Broken:
        def commit(self, points, state):
            raise StoreUnavailable("away")

        def load_state(self, prefix):
            return bench.store.load_state(prefix)

    bench.header()
    bench.train(0, 50)
    bench.watchdog.turn()
    bench.start(Broken())
    bench.train(50, 50)
    bench.watchdog.turn()
    bench.start()
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(100))


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
def test_an_armed_breaker_asks_for_a_pause_once(bench):
    bench.status = object()
    bench.header()
    bench.train(0, 120)
    bench.watchdog.turn()
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    bench.start()
    bench.watchdog.turn()
    request = read_request(bench.dir)
    assert request.desired == "paused" and request.by == "breaker" and request.seq == 1
    decisions = bench.events("breaker")
    assert [event.data["decision"] for event in decisions] == ["count", "paused"]


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
def test_a_pause_that_the_trainer_ignores_is_told_once_and_survives_a_restart(bench):
    bench.status = object()
    bench.header()
    bench.train(0, 120)
    bench.watchdog.turn()
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    bench.clock.advance(1)
    bench.watchdog.turn()
    bench.start()
    bench.train(124, 30, loss=math.nan)
    bench.watchdog.turn()
    bench.watchdog.turn()
    told = {event.id: event for event in bench.events("finding") if event.data["rule"] == "pause_not_honoured"}
    (finding,) = told.values()
    assert finding.data["severity"] == "critical" and "asked to pause by breaker" in finding.text


def test_a_breaker_in_dry_run_only_says_what_it_would_have_done(bench):
    bench.status = object()
    bench.header()
    bench.train(0, 120)
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    assert read_request(bench.dir).seq == 0
    assert [event.data["decision"] for event in bench.events("breaker")] == ["count", "would_pause"]


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
def test_a_breaker_pauses_nobody_for_history(bench):
    bench.status = object()
    bench.header()
    bench.train(0, 120)
    bench.train(120, 4, loss=math.nan)
    bench.clock.advance(3600)
    bench.watchdog.turn()
    assert read_request(bench.dir).seq == 0
    assert [event.data["decision"] for event in bench.events("breaker")] == ["count", "stale"]


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
def test_a_breaker_without_a_control_client_says_that_it_is_not_wired(bench):
    bench.header()
    bench.train(0, 120)
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    assert [event.data["decision"] for event in bench.events("breaker")] == ["count", "not_wired"]


def test_a_trainer_that_is_killed_is_found_dead_although_it_said_nothing(bench):
    bench.header(pid=77)
    bench.train(0, 50)
    bench.watchdog.turn()
    bench.processes[77] = (False, None)
    bench.clock.advance(5)
    bench.watchdog.turn()
    bench.clock.advance(5)
    bench.watchdog.turn()
    ends = bench.events("attempt_end")
    assert len(ends) == 1 and ends[0].data["reason"] == "process gone"
    assert any(event.data["rule"] == "run_dead" for event in bench.events("finding"))


def test_another_process_with_the_same_number_does_not_keep_a_dead_trainer_alive(bench):
    bench.header(pid=77)
    bench.train(0, 50)
    bench.watchdog.turn()
    bench.processes[77] = (True, bench.clock.time_ns())
    bench.clock.advance(5)
    bench.watchdog.turn()
    assert len(bench.events("attempt_end")) == 1


def test_a_log_beside_the_hook_gives_no_second_steps(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "run" / "*.out")])
    (bench.dir / "train.out").write_text("".join(f"iter {n}: loss 3.0000, time 500.00ms, mfu 30.00%\n" for n in range(30)))
    bench.header()
    bench.train(0, 40)
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(40))
    bench.store.close()


def test_a_log_alone_is_the_step_source(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "run" / "*.out")])
    (bench.dir / "train.out").write_text("".join(f"iter {n}: loss 3.0000, time 500.00ms, mfu 30.00%\n" for n in range(30)))
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(30))
    bench.store.close()


def test_a_log_without_times_that_stood_there_before_is_dated_back_from_its_last_change(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "run" / "*.out")])
    log = bench.dir / "train.out"
    log.write_text("".join(f"iter {n}: loss 3.0000, time 2000.00ms, mfu 30.00%\n" for n in range(30)))
    changed_ns = bench.clock.time_ns() - 600 * 10**9
    os.utime(log, ns=(changed_ns, changed_ns))
    bench.watchdog.turn()
    rows = bench.store.raw("train", ["step", "time_estimated"], {"run": "r"}, *FOR_EVER)
    seconds = (rows["time_ns"] - changed_ns) // 10**9
    assert list(seconds) == [2 * n - 58 for n in range(30)]
    assert set(rows["time_estimated"]) == {1}
    assert bench.events("attempt_start")[0].time_ns // 10**9 == rows["time_ns"].iloc[0] // 10**9
    bench.clock.advance(5)
    with log.open("a") as file:
        file.write("iter 30: loss 3.0000, time 2000.00ms, mfu 30.00%\n")
    bench.watchdog.turn()
    newest = bench.store.raw("train", ["step", "time_estimated"], {"run": "r"}, *FOR_EVER).iloc[-1]
    assert newest["step"] == 30 and newest["time_ns"] // 10**9 == bench.clock.time_ns() // 10**9
    bench.store.close()


def test_state_of_another_version_is_said_and_the_files_are_read_again(bench):
    bench.header()
    bench.train(0, 30)
    bench.watchdog.turn()
    bench.store.commit([], {"watch/r/state": b"not a state"})
    bench.start()
    bench.watchdog.turn()
    assert list(bench.train_rows()["step"]) == list(range(30))
    assert any("could not be used" in sentence for sentence in bench.said)


def test_a_fault_in_a_rule_is_counted_and_the_points_are_stored_all_the_same(bench, monkeypatch):
    monkeypatch.setattr(bench.watchdog._engine, "update", lambda _record: 1 / 0)
    bench.header()
    bench.train(0, 10)
    bench.watchdog.turn()
    assert len(bench.train_rows()) == 10
    assert bench.watchdog.counters.detector_errors > 0
    assert any("a detector failed" in event.text for event in bench.events("watch"))


def test_the_heartbeat_tells_the_newest_step_and_how_old_it_is(bench):
    bench.header()
    bench.train(0, 10)
    bench.watchdog.turn()
    bench.clock.advance(30)
    bench.watchdog.turn()
    beat = bench.store.latest("heartbeat", ["step_max", "oldest_age_s"], {"run": "r"}, 10**11, bench.clock.time_ns()).iloc[0]
    assert beat["step_max"] == 9 and beat["oldest_age_s"] == pytest.approx(30)
