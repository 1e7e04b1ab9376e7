"""The demo's trainer saves behind its back, and each checkpoint gets a manifest that is true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hook.save_readers import assert_true
from trainvitals import checkpoints
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.hook import Recorder
from trainvitals.records import CheckpointState, ContentProof, VerificationLevel


class GoOn:
    def at_step(self, step: int) -> str:
        return "continue"


@pytest.fixture
def options(tmp_path: Path) -> TrainingOptions:
    return TrainingOptions(
        run_dir=tmp_path, checkpoints=tmp_path / "checkpoints", steps=70, batch=64, hidden=16, text_bytes=200_000, step_time_s=0.0,
        checkpoint_every=10,
    )  # fmt: skip


def run(options: TrainingOptions) -> list[dict[str, object]]:
    with Recorder(options.run_dir, run="demo") as recorder:
        assert Training(options).run(recorder, GoOn(), say=lambda _line: None) == "finished"  # type: ignore[arg-type]
    lines = (options.run_dir / "metrics.rank00000.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record.get("kind") == "save"]


def test_saves_are_told_and_what_is_kept_verifies_by_the_hashes_of_its_writer(options: TrainingOptions) -> None:
    told = [(event["step"], event["data"]) for event in run(options)]
    by_state = {state: [step for step, data in told if data["state"] == state] for state in ("begun", "persisted", "deleted")}
    assert by_state == {"begun": list(range(10, 71, 10)), "persisted": list(range(10, 71, 10)), "deleted": by_state["deleted"]}
    assert {data["path"] for _, data in told if data["state"] == "deleted"} >= {str(options.checkpoints / "checkpoint-10")}
    last = next(data for step, data in told if step == 60 and data["state"] == "persisted")
    assert last["is_async"] and 0 < last["blocked_s"] <= last["persisted_s"]
    kept = sorted(options.checkpoints.glob("checkpoint-*"))
    assert len(kept) == 5
    for path in kept[-2:]:
        found = assert_true(path)
        assert (found.trainer, found.has_optimizer, found.has_rng, found.has_data_position) == ("demo", True, True, True)
        report = checkpoints.inspect(str(path), level=VerificationLevel.CONTENT)
        assert (report.state, report.level, report.proof) == (
            CheckpointState.VERIFIED, VerificationLevel.CONTENT, ContentProof.MANIFEST,
        )  # fmt: skip


def test_what_is_saved_behind_is_the_state_of_its_step(options: TrainingOptions) -> None:
    run(options)
    resumed = Training(options)
    resumed.resume(options.checkpoints / "checkpoint-60")
    assert resumed.step == 60
    while resumed.step < 70:
        resumed.advance()
    whole = Training(options)
    whole.resume(options.checkpoints / "checkpoint-70")
    for name, values in whole.parameters.items():
        assert (values == resumed.parameters[name]).all(), name


def test_a_disk_that_does_not_take_a_checkpoint_fails_the_next_save(options: TrainingOptions) -> None:
    options.checkpoints.write_text("in the way")
    with Recorder(options.run_dir, run="demo") as recorder, pytest.raises(OSError):
        Training(options).run(recorder, GoOn(), say=lambda _line: None)  # type: ignore[arg-type]
    lines = (options.run_dir / "metrics.rank00000.jsonl").read_text().splitlines()
    states = [record["data"]["state"] for record in map(json.loads, lines) if record.get("kind") == "save"]
    assert states == ["begun", "staged", "failed"]
