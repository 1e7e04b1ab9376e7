"""A run whose loss is normal and whose weights are no numbers: which checkpoint the watchdog loads, recommends and keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_safe_checkpoint import Place

from trainvitals.checkpoints.schedule import Candidate, Policy, next_job
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel
from trainvitals.settings import RunSettings, WatchSettings
from trainvitals.watch.pin_work import PinWork
from trainvitals.watch.safe_checkpoint import SafeCheckpoint

SECOND_NS = 10**9
NAN = ("model.pt: a note", "tensor w in model.pt holds NaN (64 of 64 sampled values)")


def saved(step: int, level: VerificationLevel = VerificationLevel.CONTENT) -> CheckpointReport:
    return CheckpointReport(
        f"/c/step_{step}.pt", step, "torch", CheckpointState.VERIFIED, level, True, 1, 100, modified_at_ns=step * SECOND_NS
    )


class Loading:
    """The directory and the thread that looks into it: loads what it is advised to, and finds the truth."""

    def __init__(self, safe: SafeCheckpoint, known: list[CheckpointReport], damaged_from: int) -> None:
        self.safe, self.known, self.damaged_from = safe, known, damaged_from
        self.tried: dict[str, str] = {}
        self.recommended: list[int | None] = []

    def turn(self, now_s: int) -> str | None:
        self.safe.scanned(self.known)
        self.safe.poll(now_s * SECOND_NS, 1)
        best = self.safe.rollback.checkpoint
        self.recommended.append(best.step if best is not None and not self.safe.rollback.needs_load else None)
        candidates = [
            Candidate(one.path, "s", one, looked="s", loaded=self.tried.get(one.path, ""))
            for one in sorted(self.known, key=lambda one: -(one.step or 0))
        ]
        job = next_job(candidates, now_s * SECOND_NS, Policy(recheck_days=0), self.safe.wanted())
        if job is None:
            return None
        assert job.level is VerificationLevel.LOAD
        self.tried[job.path] = "s"
        self.known = [self._loaded(one) if one.path == job.path else one for one in self.known]
        return job.path

    def _loaded(self, one: CheckpointReport) -> CheckpointReport:
        if (one.step or 0) >= self.damaged_from:
            return replace(one, state=CheckpointState.CORRUPT, reasons=NAN)
        return replace(one, level=VerificationLevel.LOAD)


@pytest.fixture
def safe(tmp_path):
    run = replace(RunSettings(name="run", dir=str(tmp_path / "run")), checkpoints=(str(tmp_path),))
    return SafeCheckpoint(run, WatchSettings(pin_safe_checkpoint=False), PinWork(in_thread=False))


def test_it_walks_back_from_the_damaged_newest_until_one_is_sound(safe) -> None:
    newest = replace(saved(4200), state=CheckpointState.CORRUPT, reasons=NAN)
    place = Loading(safe, [saved(3500), saved(3600), saved(3700), saved(3900), saved(4050), newest], damaged_from=3650)
    looks = [place.turn(5000 + second) for second in range(12)]
    loaded = [path for path in looks if path is not None]
    assert loaded[-1] == "/c/step_3600.pt" and "/c/step_3500.pt" not in loaded
    assert set(place.recommended) == {None, 3600} and place.recommended[-1] == 3600
    assert safe.wanted() == ()


def test_nothing_is_loaded_for_other_damage(safe) -> None:
    newest = replace(saved(4200), state=CheckpointState.CORRUPT, reasons=("cut short",))
    place = Loading(safe, [saved(3700), newest], damaged_from=3650)
    assert place.turn(5000) is None and place.recommended == [3700]


def test_the_last_one_before_the_damage_is_kept_from_deletion_although_no_incident_is_open(tmp_path) -> None:
    place = Place(tmp_path)
    place.header()
    place.run_on(1, 450)
    known = [replace(one, state=CheckpointState.CORRUPT, reasons=NAN) if one.step == 400 else one for one in place.safe._known]
    place.safe.scanned(known)
    for second in range(3):
        place.safe.poll(place.clock.time_ns() + second * SECOND_NS, 1)
    assert place.pinned() == ["checkpoint-300"]
    place.store.close()
