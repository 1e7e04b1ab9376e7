"""The supervisor starts nothing from weights that are no numbers: their files are whole, and no incident need know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.incidents.rollback import RollbackInputs
from trainvitals.supervisor.choice import choose


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """checkpoint-1 is sound; checkpoint-2 and checkpoint-3 hold NaN."""
    options = TrainingOptions(run_dir=tmp_path, checkpoints=tmp_path / "c", batch=16, hidden=8, text_bytes=20_000)
    training = Training(options, ManualClock())
    for step in (1, 2, 3):
        if step == 2:
            training.parameters["hidden.1.weight"][0, 0] = float("nan")
        training.advance()
        training.save()
    return tmp_path / "c"


def test_the_next_start_goes_back_past_weights_that_are_no_numbers(checkpoints: Path, tmp_path: Path) -> None:
    clock = SystemClock()
    choice = choose([str(checkpoints)], RollbackInputs(()), HashStore(str(tmp_path / "hashes")), clock, limit_s=60.0)
    assert choice.report is not None and choice.step == 1
    assert any(path.endswith("checkpoint-3") and "NaN" in why for path, why in choice.skipped)
