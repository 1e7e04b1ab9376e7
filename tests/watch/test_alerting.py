"""From what a run does to messages in the outbox: a whole watchdog, real files, a real store, a real outbox, a clock that is moved."""

from __future__ import annotations

import json
import math
import random

import pytest

from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.words import headline
from trainvitals.clock import ManualClock
from trainvitals.control.inbox import submit
from trainvitals.control.requests import ACKNOWLEDGE
from trainvitals.errors import StoreUnavailable
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.alerting import MAX_PENDING, Alerting
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog

FOR_EVER = (0, 2**62)
S = 10**9


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


class Door:
    """The store, behind a door that a test can shut."""

    def __init__(self, store):
        self.store, self.is_away = store, False

    def commit(self, points, state):
        if self.is_away:
            raise StoreUnavailable("away")
        self.store.commit(points, state)

    def load_state(self, prefix):
        return self.store.load_state(prefix)


class Box:
    """The outbox, which can be away too, and tells what it was given."""

    def __init__(self, outbox):
        self.outbox, self.is_away, self.given = outbox, False, []

    def enqueue(self, notice, target, not_before_ns=0):
        if self.is_away:
            raise StoreUnavailable("full disk")
        self.given.append((notice.id, target))
        return self.outbox.enqueue(notice, target, not_before_ns)


class Night:
    """One run, its watchdog, and what people were told."""

    def __init__(self, tmp_path):
        self.clock = ManualClock()
        self.dir = tmp_path / "run"
        self.dir.mkdir()
        self.settings = parse(
            {
                "store": f"sqlite://{tmp_path}/store.db",
                "runs": [{"name": "llama-70b", "dir": str(self.dir), "gpus": 512}],
                "dashboard": {"public_url": "https://health.example"},
                "alerts": {
                    "runbook_url": "https://wiki/{rule}",
                    "targets": {
                        "pager": {"kind": "webhook", "url": "https://pager.example", "repeat_s": 600},
                        "team": {"kind": "feishu", "url": "https://team.example", "severities": ["warning", "critical"], "language": "zh"},
                    },
                },
            }
        )  # fmt: skip
        self.door = Door(SqliteStore(tmp_path / "store.db"))
        self.box = Box(Outbox(tmp_path / "alerts.db", self.clock))
        self.said: list[str] = []
        self.file = self.dir / "metrics.rank00000.jsonl"
        self.watchdog = self.start()

    def start(self):
        run = self.settings.runs[0]
        self.alerting = Alerting(self.settings, run, self.box, self.clock, self.said.append)
        self.watchdog = Watchdog(
            self.settings, run, self.door, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable("h", lambda pid: (True, None))),
            scanner=CheckpointScanner(NoCheckpoints(), self.clock, 10, in_thread=False), breaker=BreakerAction(run, lambda _dir: None),
            node="h", say=self.said.append, alerts=self.alerting,
        )  # fmt: skip
        self.watchdog.restore()
        return self.watchdog

    def write(self, record):
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def begin(self):
        self.write({"type": "header", "schema": 1, "run": "llama-70b", "pid": 1, "host": "h", "started_ns": self.clock.time_ns(),
                    "rank": 0, "world_size": 1, "hook_version": "0"})  # fmt: skip

    def train(self, first, count, loss=2.0):
        noise = random.Random(first)
        for step in range(first, first + count):
            self.clock.advance(1)
            values = {"loss": loss + noise.gauss(0, 0.01)} if math.isfinite(loss) else {}
            bad = {} if values else {"nonfinite": {"loss": "nan"}}
            self.write({"type": "step", "step": step, "time_ns": self.clock.time_ns(), "values": values, **bad})

    def pass_time(self, seconds, turns=1):
        for _ in range(turns):
            self.clock.advance(seconds / turns)
            self.watchdog.turn()

    def told(self, target="pager"):
        return [message.kind for message in reversed(self.box.outbox.messages(target=target))]

    def notices(self, target="pager"):
        found = []
        while (claim := self.box.outbox.claim(target, 10**6)) is not None:
            found.append(claim.notice)
            self.box.outbox.settle(claim, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
        return found


@pytest.fixture
def night(tmp_path):
    made = Night(tmp_path)
    yield made
    made.door.store.close()
    made.box.outbox.close()


def test_five_hundred_steps_without_a_number_are_one_page(night):
    night.begin()
    night.train(0, 100)
    night.watchdog.turn()
    for part in range(50):
        night.train(100 + 10 * part, 10, math.nan)
        night.watchdog.turn()
    (notice,) = night.notices()
    assert headline(notice).startswith("TRAINING-SICK llama-70b: loss is NaN")
    assert notice.severity == "critical"
    assert notice.link.startswith("https://health.example/incidents?run=llama-70b&by=step&from=0&to=")
    assert notice.runbook_url == "https://wiki/loss_nonfinite"
    assert [suspect.group for suspect in notice.suspects] == ["data", "code", "code", "cluster"]
    assert notice.suspects[2].evidence, "the numbers themselves are evidence"


def test_people_are_told_although_the_store_is_away_and_only_once_when_it_is_back(night):
    night.begin()
    night.train(0, 100)
    night.watchdog.turn()
    night.door.is_away = True
    night.train(100, 10, math.nan)
    night.pass_time(1, 3)
    assert night.told() == ["opened"]
    night.start()  # a kill while the store was away: all is read again
    night.door.is_away = False
    night.pass_time(1, 3)
    night.start()
    night.pass_time(1, 3)
    assert night.told() == ["opened"]


def test_a_kill_between_the_commit_and_the_outbox_loses_no_page(night):
    night.begin()
    night.train(0, 100)
    night.watchdog.turn()
    night.box.is_away = True
    night.train(100, 10, math.nan)
    night.watchdog.turn()
    assert night.told() == []
    assert any("full disk" in sentence for sentence in night.said)
    night.box.is_away = False
    night.start()
    night.watchdog.turn()
    assert night.told() == ["opened"]
    assert night.alerting.waiting == 0


def test_killed_after_every_single_turn_it_tells_the_same_and_nothing_twice(night):
    night.begin()
    for part in range(12):
        night.train(10 * part, 10)
        night.watchdog.turn()
        night.start()
    for part in range(12, 20):
        night.train(10 * part, 10, math.nan)
        night.watchdog.turn()
        night.start()
    for part in range(20, 60):
        night.train(10 * part, 10)
        night.pass_time(5)
        night.start()
    assert night.told() == ["opened", "recovered"]
    assert night.told("team") == ["opened", "recovered"]


def test_nobody_has_it_so_it_is_told_again_with_what_is_known_now(night):
    night.begin()
    night.train(0, 100)
    night.train(100, 10, math.nan)
    night.watchdog.turn()
    night.train(110, 700, math.nan)
    night.watchdog.turn()
    night.pass_time(5)
    opened, reminder = night.notices()
    assert (reminder.kind, reminder.number) == ("reminder", 1)
    assert reminder.id != opened.id
    assert "(open for" in headline(reminder)


def test_each_message_is_an_event_of_the_run(night):
    night.begin()
    night.train(0, 100)
    night.train(100, 10, math.nan)
    night.watchdog.turn()
    night.watchdog.turn()
    events = night.door.store.events("llama-70b", ("alert",), *FOR_EVER)
    assert {event.data["target"] for event in events} == {"pager", "team"}
    assert all(event.text.startswith("told ") for event in events)


def test_what_began_in_a_run_that_was_given_up_wakes_nobody(night):
    night.begin()
    night.train(0, 100)
    night.train(100, 10, math.nan)
    night.clock.advance(3 * 86_400)
    night.watchdog.turn()
    assert night.told() == []
    assert night.alerting.history >= 1


def test_an_outbox_that_is_away_for_long_costs_the_oldest_and_that_is_counted(night):
    night.box.is_away = True
    night.begin()
    night.train(0, 100)
    night.train(100, 10, math.nan)
    night.watchdog.turn()
    night.alerting._pending *= MAX_PENDING
    night.train(110, 10, math.nan)
    night.pass_time(700)
    assert night.alerting.waiting <= MAX_PENDING
    assert night.alerting.dropped > 0


def test_evidence_that_cannot_be_collected_keeps_no_page_back(night, monkeypatch):
    night.begin()
    night.train(0, 100)
    night.watchdog.turn()

    def broken(*_args):
        raise OSError("stale file handle")

    monkeypatch.setattr(night.alerting.facts, "known", broken)
    night.train(100, 10, math.nan)
    night.watchdog.turn()
    assert night.told() == ["opened"]
    assert night.alerting.faults == 1


def test_a_loss_that_is_no_number_after_a_spike_that_somebody_has_is_told_with_its_own_words(night):
    night.begin()
    night.train(0, 600)
    night.watchdog.turn()
    night.train(600, 60, 8.0)
    night.pass_time(1, 3)
    before = night.notices()
    assert {notice.rule for notice in before} <= {"loss_spike", "loss_divergence"} and before[-1].severity == "critical"
    incident = before[-1].incident_id
    had = {"incident": incident, "note": "at it"}
    submit(night.dir, "llama-70b", kind=ACKNOWLEDGE, by="ana", source="cli", data=had, clock=night.clock)
    night.pass_time(1, 3)
    night.notices()
    night.train(660, 5, math.nan)
    night.pass_time(1, 3)
    (notice,) = night.notices()
    assert (notice.kind, notice.rule, notice.incident_id) == ("escalated", "loss_nonfinite", incident)
    assert headline(notice).startswith("TRAINING-SICK llama-70b: loss is NaN")
