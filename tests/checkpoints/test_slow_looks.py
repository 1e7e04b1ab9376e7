"""A checkpoint whose look takes long, and that changes all the time, does not keep the thread busy that looks at all of them."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import checkpoint_makers as make
import pytest

from trainvitals.checkpoints import CheckpointWatcher, watcher
from trainvitals.clock import ManualClock
from trainvitals.records import VerificationLevel

SCAN_S = 10.0


@pytest.fixture
def looked(monkeypatch):
    """(name, when its structure was looked at); a look at ``checkpoint-1`` takes eight seconds."""
    clock, looks, look_at = ManualClock(), [], watcher.look_at

    def slowly(seen, level, run=""):
        if level is VerificationLevel.STRUCTURE:
            looks.append((seen.name, clock.monotonic_s()))
            clock.advance(8.0 if seen.name == "checkpoint-1" else 0.01)
        return look_at(seen, level, run)

    monkeypatch.setattr(watcher, "look_at", slowly)
    return clock, looks


def test_after_a_slow_look_the_next_of_that_checkpoint_waits_longer_each_time_and_no_other_does(tmp_path, looked):
    clock, looks = looked
    watched = CheckpointWatcher([str(tmp_path)], clock)
    make.huggingface(tmp_path, 1)
    for number in range(720):  # two hours; it changes every half minute and stands still in between
        if number % 3 == 0:
            (tmp_path / "checkpoint-1" / "config.json").write_text(f'{{"number": {number}}}')
        if number % 60 == 0:
            make.huggingface(tmp_path, 100 + number)
        clock.advance(SCAN_S)
        watched.scan()
    slow = [when for name, when in looks if name == "checkpoint-1"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(slow)]
    assert slow[0] <= 3 * SCAN_S and gaps == sorted(gaps[:4]) + gaps[4:]
    assert gaps[0] >= 80 and all(gap >= 600 for gap in gaps[3:]) and max(gaps) < 700
    assert len({name for name, _ in looks}) == 1 + 12, "each of the others was looked at"


def test_what_is_written_again_under_the_same_name_waits_as_well_and_is_judged_then(tmp_path, looked):
    clock, looks = looked
    watched = CheckpointWatcher([str(tmp_path)], clock)

    def scan(times: int) -> str:
        for _ in range(times):
            clock.advance(SCAN_S)
            watched.scan()
        return next((str(report.state) for report in watched.reports if Path(report.path).name == "checkpoint-1"), "")

    make.huggingface(tmp_path, 1)
    assert scan(3) == "verified"
    shutil.rmtree(tmp_path / "checkpoint-1")
    assert scan(3) == "deleted"
    make.huggingface(tmp_path, 1)
    assert scan(3) == "complete" and len(looks) == 1
    assert scan(6) == "verified" and len(looks) == 2
