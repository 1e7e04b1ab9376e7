"""The real ``watch`` process on a store that cannot be opened: it pages and pauses, and the store has it once when it is mended."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alerts"))

from receivers import Receiver

from trainvitals.alerts.outbox import Outbox
from trainvitals.cli.watch_store_away import AGAIN_AFTER_S, STORE_AWAY_S, StoreAway
from trainvitals.clock import ManualClock
from trainvitals.control import init
from trainvitals.control.request import history, read_request
from trainvitals.errors import StoreUnavailable
from trainvitals.hook import ControlClient, Recorder
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


def until(what, then=None):
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, then() if then else "it did not come"
        time.sleep(0.05)


def test_a_blow_up_while_the_store_is_a_ruin_pages_and_pauses_and_is_in_the_mended_store_once(tmp_path):
    chance, run_dir, place = random.Random(3), tmp_path / "run", tmp_path / "disk"
    run_dir.mkdir()
    place.write_text("no directory: the disk is not mounted")
    init(run_dir, "r")
    errors = tmp_path / "errors"
    with (
        Receiver() as receiver,
        Recorder(str(run_dir), run="r") as recorder,
        closing(ControlClient(str(run_dir), run="r", on_checkpoint=lambda step: None, recorder=recorder, poll_s=0.05)),
        errors.open("wb") as said,
    ):
        (tmp_path / "trainvitals.toml").write_text(
            f'store = "sqlite://{place}/store.db"\n[[runs]]\nname = "r"\ndir = "{run_dir}"\nbreaker = "armed"\n[alerts]\n'
            f'outbox = "{tmp_path}/alerts.db"\n[alerts.targets.pager]\nkind = "webhook"\nurl = "{receiver.url}"\nallow_private = true\n'
            "[watch]\npoll_s = 0.05\n"
        )
        command = [sys.executable, "-m", "trainvitals", "watch", "--run", "r", "--config", str(tmp_path / "trainvitals.toml")]
        watch = subprocess.Popen(command, stderr=said, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            for step in range(150):
                recorder.log(step, loss=2.0 + chance.gauss(0, 0.01))
            until(lambda: "cannot be opened" in errors.read_text(), errors.read_text)
            for step in range(150, 160):
                recorder.log(step, loss=float("nan"))
            until(lambda: receiver.received, errors.read_text)
            until(lambda: read_request(run_dir).desired == "paused", errors.read_text)
            place.unlink()
            place.mkdir()
            until(lambda: "the store answers again" in errors.read_text(), errors.read_text)
            for step in range(160, 170):
                recorder.log(step, loss=float("nan"))
            store = SqliteStore(place / "store.db", read_only=True)
            until(lambda: len(rows(store)) == 170, errors.read_text)
        finally:
            watch.terminate()
            assert watch.wait(30) == 0
    assert rows(store) == list(range(170))
    incidents = [event for event in store.events("r", ["incident"], 0, 2**62) if event.data["family"] == "loss"]
    assert len(incidents) == 1
    assert len([one for one in history(run_dir) if one.source == "breaker"]) == 1
    names = [one.json["data"]["incident_id"] for one in receiver.received]
    assert names.count(incidents[0].data["id"]) == 1, [one.json for one in receiver.received]
    assert [event.data["decision"] for event in store.events("r", ["breaker"], 0, 2**62)].count("paused") == 1
    store.close()


def rows(store):
    return list(store.raw("train", ["step"], {"run": "r"}, 0, 2**62)["step"])


@pytest.fixture
def away(tmp_path):
    targets = {
        "chat": {"kind": "webhook", "url": "http://127.0.0.1:1/", "allow_private": True, "severities": ["warning", "critical"]},
        "night": {"kind": "webhook", "url": "http://127.0.0.1:1/", "severities": ["warning"], "quiet_hours": "00:00-23:59"},
        "pager": {"kind": "webhook", "url": "http://127.0.0.1:1/", "severities": ["critical"]},
        "other": {"kind": "webhook", "url": "http://127.0.0.1:1/", "severities": ["warning"], "runs": ["gpt-*"]},
    }
    runs = [{"name": "r", "dir": str(tmp_path / "run")}]
    settings = parse(
        {"runs": runs, "alerts": {"outbox": str(tmp_path / "alerts.db"), "targets": targets}}, str(tmp_path / "t.toml")
    )
    clock = ManualClock()
    outbox = Outbox(settings.outbox_path, clock)
    yield StoreAway(settings, settings.runs[0], clock, outbox.enqueue), clock, outbox
    outbox.close()


def look(away, clock, seconds, trouble):
    for _ in range(round(seconds)):
        away.poll(trouble)
        clock.advance(1)


def test_a_store_that_takes_nothing_is_told_once_as_a_warning_and_so_is_that_it_is_back(away):
    away, clock, outbox = away
    look(away, clock, STORE_AWAY_S, "the disk is full")
    assert outbox.messages() == [], "a moment is nothing to tell"
    look(away, clock, 300, "the disk is full")
    (one,) = outbox.messages()
    assert (one.target, one.severity, one.kind) == ("chat", "warning", "opened")
    assert "the disk is full" in one.what and "watched all the same" in one.what
    look(away, clock, 5, "")
    assert sorted(one.kind for one in outbox.messages()) == ["opened", "recovered"]


def test_a_store_that_comes_and_goes_is_told_once_in_half_an_hour(away):
    away, clock, outbox = away
    for _ in range(round(AGAIN_AFTER_S / 100) - 1):
        look(away, clock, 90, "it is locked")
        look(away, clock, 10, "")
    assert sorted(one.kind for one in outbox.messages()) == ["opened", "recovered"]


def test_what_the_outbox_refuses_is_handed_over_later(tmp_path, away):
    _, clock, outbox = away
    is_broken = True

    def tell(notice, target):
        if is_broken:
            raise StoreUnavailable("full")
        return outbox.enqueue(notice, target)

    settings = away[0]._settings
    again = StoreAway(settings, settings.runs[0], clock, tell)
    look(again, clock, 100, "away")
    assert outbox.messages() == []
    is_broken = False
    look(again, clock, 2, "away")
    assert [one.kind for one in outbox.messages()] == ["opened"]
