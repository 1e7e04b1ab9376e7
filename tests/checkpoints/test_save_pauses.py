"""A save that stands still between two of its files is not called incomplete: as long as steps are slow, or such pauses are usual."""

import json
from pathlib import Path

import large_run_makers as large
import layout_makers

from trainvitals.checkpoints import CheckpointWatcher
from trainvitals.checkpoints.life import Patience
from trainvitals.checkpoints.save_pauses import LONGEST_S, SavePauses
from trainvitals.clock import ManualClock

MEGATRON = layout_makers.in_directory("iter_0000500", lambda: large.megatron_dist())


class Watched:
    """A directory into which Megatron saves; ``states`` looks every ten seconds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.watcher = CheckpointWatcher([str(directory)], self.clock)

    def save(self, step: int) -> Path:
        """All that is written in the background; returns the file that the training loop writes when the next step is done."""
        path = MEGATRON(self.directory)
        path = path.rename(self.directory / f"iter_{step:07d}")
        marker = path / "metadata.json"
        self.text = marker.read_bytes()
        marker.unlink()
        return marker

    def states(self, seconds: float) -> set[str]:
        seen = set()
        for _ in range(round(seconds / 10)):
            self.clock.advance(10)
            self.watcher.scan()
            seen |= {str(report.state) for report in self.watcher.reports}
        return seen


def test_with_slow_steps_a_save_may_wait_for_the_next_one(tmp_path):
    watched = Watched(tmp_path)
    watched.watcher.advise((), 60.0)
    marker = watched.save(500)
    assert watched.states(160) == {"writing"}
    marker.write_bytes(watched.text)
    watched.states(30)
    assert [str(report.state) for report in watched.watcher.reports] == ["verified"]


def test_one_that_stays_unfinished_is_told_all_the_same(tmp_path):
    watched = Watched(tmp_path)
    watched.watcher.advise((), 60.0)
    watched.save(500)
    assert "incomplete" in watched.states(240)


def test_pauses_of_earlier_saves_are_learnt_and_survive_a_restart(tmp_path):
    watched = Watched(tmp_path)
    marker = watched.save(500)
    assert watched.states(30) == {"writing"}
    marker.write_bytes(watched.text)
    watched.states(30)
    state = json.loads(json.dumps(watched.watcher.to_state()))
    watched.watcher = CheckpointWatcher([str(tmp_path)], watched.clock)
    watched.watcher.restore(state)
    watched.save(1000)
    watched.states(10)
    assert "incomplete" not in watched.states(50)
    assert "incomplete" in watched.states(30)


def test_patience_has_an_end_and_is_never_less_than_the_settings_say():
    pauses = SavePauses()
    least = Patience(unfinished_s=30.0)
    assert pauses.patience(least) == least
    pauses.step_s = 1.0
    assert pauses.patience(least) == least
    pauses.seen(10_000.0)
    pauses.step_s = 100_000.0
    assert pauses.patience(least).unfinished_s == LONGEST_S
    assert pauses.patience(Patience(unfinished_s=7_200.0)).unfinished_s == 7_200.0
