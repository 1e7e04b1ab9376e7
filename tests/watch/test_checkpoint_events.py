"""From the files of checkpoints to findings, in the whole watchdog: real files, a real store, a clock that the test moves."""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoints"))

from checkpoint_makers import huggingface
from test_watchdog import HOST, Bench

from trainvitals.checkpoints.life import Patience
from trainvitals.checkpoints.resume_choice import choose_all
from trainvitals.checkpoints.watcher import CheckpointWatcher
from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    ContentProof,
    ResumeChoice,
    VerificationLevel,
)
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_events import CheckpointEvents
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog


class CheckpointBench(Bench):
    """A bench whose watchdog looks at a directory of checkpoints."""

    def start(self, store=None, choose=None):
        self.checkpoints = self.dir / "checkpoints"
        self.checkpoints.mkdir(exist_ok=True)
        run = self.settings.runs[0]
        watcher = CheckpointWatcher([str(self.checkpoints)], self.clock, Patience(settle_s=2, unfinished_s=4))
        scanner = CheckpointScanner(
            watcher, self.clock, 1, in_thread=False, choose=choose or (lambda: choose_all(watcher.reports))
        )
        self.watchdog = Watchdog(
            self.settings, run, store or self.store, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable(HOST, lambda pid: self.processes.get(pid, (True, None)))),
            scanner=scanner, breaker=BreakerAction(run, lambda _dir: self.status), node=HOST, say=self.said.append,
        )  # fmt: skip
        self.watchdog.restore()
        return self.watchdog

    def turns(self, count, first=None):
        for k in range(count):
            self.clock.advance(1)
            if first is not None:
                self.step(first + k, loss=2.0)
            self.watchdog.turn()

    def save(self, step, **how):
        huggingface(self.checkpoints, step, modified_s=self.clock.time_ns() / 1e9, **how)

    def findings(self, rule):
        newest = {}
        for found in self.events("finding"):
            if found.data["rule"] == rule:
                newest[found.id] = found
        return list(newest.values())


@pytest.fixture
def bench(tmp_path):
    made = CheckpointBench(tmp_path)
    yield made
    made.store.close()


def test_a_damaged_checkpoint_becomes_a_finding_and_an_incident_and_both_end_when_it_is_gone(bench):
    bench.header()
    bench.save(100)
    bench.turns(10, first=100)
    bench.save(200)
    (bench.checkpoints / "checkpoint-200" / "optimizer.pt").write_bytes(b"PK\x03\x04 cut short")
    bench.turns(10, first=200)
    (found,) = bench.findings("checkpoint_corrupt")
    assert found.data["is_open"] and found.severity == "warning"
    assert "checkpoint-200 is corrupt: optimizer.pt" in found.text
    assert "a restart would load it; newest verified: step 100" in found.text
    (incident,) = bench.events("incident")
    assert incident.data["family"] == "checkpoint" and incident.data["closed_at_ns"] is None
    for file in (bench.checkpoints / "checkpoint-200").iterdir():
        file.unlink()
    (bench.checkpoints / "checkpoint-200").rmdir()
    bench.turns(6, first=300)
    (found,) = bench.findings("checkpoint_corrupt")
    assert not found.data["is_open"]
    assert bench.events("incident")[-1].data["closed_at_ns"] is not None


def test_what_a_restart_would_load_is_told_when_it_changes_only(bench):
    bench.header()
    bench.save(100)
    bench.turns(8, first=100)
    assert [(event.data["step"], event.data["how"]) for event in bench.events("pointer")] == [(100, "highest checkpoint-N")]
    bench.save(200)
    bench.turns(8, first=200)
    bench.start()
    bench.turns(8, first=300)
    steps = [event.data["step"] for event in bench.events("pointer")]
    assert steps[-1] == 200 and len(steps) <= 3, "at most one more, while it was written"


def test_a_watchdog_that_is_killed_at_any_turn_tells_everything_once(bench):
    bench.header()
    for number in range(100, 500, 100):
        bench.save(number)
        if number == 300:
            (bench.checkpoints / "checkpoint-300" / "model.safetensors").write_bytes(b"short")
        for k in range(8):
            bench.turns(1, first=number + k)
            bench.start()
            bench.turns(1)
    # A start forgets how long a checkpoint stood still, and nothing else.
    bench.turns(10)
    assert len(bench.findings("checkpoint_corrupt")) == 1
    assert len({event.id for event in bench.events("incident")}) == 1


def test_a_start_that_goes_back_further_than_it_must_is_found(bench):
    bench.header(pid=1)
    for number in (100, 200, 300):
        bench.train(number - 99, 100)
        bench.save(number)
        bench.turns(6)
    bench.header(pid=2)
    bench.append({"type": "event", "kind": "resume", "time_ns": bench.clock.time_ns(), "step": 100, "text": "", "data": {}})
    bench.turns(5, first=101)
    (found,) = bench.findings("resume_behind")
    assert found.severity == "warning"
    assert "started from step 100 although verified checkpoint checkpoint-300 of step 300 was there" in found.text
    assert found.attempt == 2


def test_the_reports_are_told_although_the_choice_cannot_be_found(bench):
    def broken():
        raise OSError("no rights")

    bench.start(choose=broken)
    bench.save(100)
    bench.turns(6)
    assert [event.data["state"] for event in bench.events("checkpoint")][-1] == "verified"
    assert "what a restart would load is not known (OSError: no rights)" in bench.events("watch")[-1].text


def test_a_directory_that_is_not_there_is_told_once_when_it_stays_away(bench):
    bench.checkpoints.rmdir()
    bench.turns(2)
    assert [event for event in bench.events("watch") if "There is no directory" in event.text] == []
    bench.turns(5)
    (told,) = [event for event in bench.events("watch") if "There is no directory" in event.text]
    assert str(bench.checkpoints) in told.text


def test_open_findings_of_an_earlier_version_are_closed_and_found_anew(bench):
    bench.header()
    bench.save(100)
    (bench.checkpoints / "checkpoint-100" / "model.safetensors").write_bytes(b"short")
    bench.turns(8, first=1)
    state = json.loads(json.dumps(bench.watchdog._state()))
    old = {
        "id": "r/checkpoint_corrupt//c/x", "rule": "checkpoint_corrupt", "family": "checkpoint", "severity": "warning", "first_step": 5,
        "detected_step": 5, "last_step": None, "attempt": 1, "time_ns": bench.clock.time_ns(), "value": None, "expected": None,
        "message": "checkpoint x is corrupt", "is_open": True, "data": {},
    }  # fmt: skip
    del state["checkpoint_events"], state["engine"]["_saves"], state["engine"]["_checkpoints"]
    state["checkpoint_findings"] = {"/c/x": old}
    bench.store.commit([], {"watch/r/state": zlib.compress(json.dumps(state).encode())})
    bench.start()
    bench.turns(8, first=20)
    found = {event.id: event.data["is_open"] for event in bench.findings("checkpoint_corrupt")}
    assert found == {"r/checkpoint_corrupt//c/x": False, f"r/1/checkpoint_corrupt/{bench.checkpoints}/checkpoint-100": True}


def _report(level, state=CheckpointState.VERIFIED, at_ns=5_000):
    return CheckpointReport(
        "/c/1", 1, "huggingface", state, level, True, 3, 10, proof=ContentProof.MANIFEST, verified_at_ns=at_ns
    )


def test_a_look_at_the_content_that_ended_is_told_once_per_look():
    events = CheckpointEvents()
    first = [e for e in events.of([_report(VerificationLevel.CONTENT)], [], 1, 9_000) if e.kind == "verification"]
    again = [e for e in events.of([_report(VerificationLevel.CONTENT)], [], 1, 9_999) if e.kind == "verification"]
    assert [(e.id, e.time_ns) for e in first] == [(e.id, e.time_ns) for e in again]
    assert first[0].time_ns == 5_000 and first[0].data["proof"] == "manifest"
    later = [e for e in events.of([_report(VerificationLevel.LOAD, at_ns=7_000)], [], 1, 9_999) if e.kind == "verification"]
    assert later[0].id != first[0].id
    assert not [e for e in events.of([_report(VerificationLevel.STRUCTURE, at_ns=None)], [], 1, 1) if e.kind == "verification"]


def test_choices_are_bounded_and_go_on_from_their_state():
    events = CheckpointEvents()
    choices = [ResumeChoice(f"/c/{k}", None, None, "latest") for k in range(200)]
    assert len(events.of([], choices, None, 1)) == 200
    kept = events.to_state()
    assert len(kept["choices"]) <= 64
    other = CheckpointEvents()
    other.restore(kept)
    assert other.of([], choices[-5:], None, 2) == []


def test_a_save_in_progress_is_told_once_a_minute_and_its_end_at_once():
    events = CheckpointEvents()
    second = 10**9

    def told(state: CheckpointState, at_s: int, path: str = "/c/step-1") -> int:
        report = replace(_report(VerificationLevel.PRESENCE, at_ns=None), path=path, state=state, bytes=at_s)
        return len(events.of([report], [], 1, at_s * second))

    writing = [told(CheckpointState.WRITING, at_s) for at_s in range(0, 300, 10)]
    assert sum(writing) == 5 and writing[0] == 1
    assert told(CheckpointState.WRITING, 295, "/c/step-2") == 1
    assert told(CheckpointState.COMPLETE, 300) == 1
    assert told(CheckpointState.WRITING, 301) == 1
    assert told(CheckpointState.WRITING, 200) == 1  # a clock that was set back hides nothing
