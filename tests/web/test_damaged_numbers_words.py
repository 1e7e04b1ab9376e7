"""What the page says of a checkpoint that stands beside damaged numbers."""

from __future__ import annotations

from dataclasses import replace

from test_checkpoint_page import seen, store  # noqa: F401 (fixtures)

from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel
from trainvitals.settings import RunSettings
from trainvitals.web import checkpoint_words as words
from trainvitals.web.checkpoint_advice import suspects_of, way_back_of
from trainvitals.web.checkpoints import CheckpointFacts
from trainvitals.web.facts import Facts

NAN = "tensor w in model.pt holds NaN (64 of 64 sampled values)"


def saved(step: int, **values) -> CheckpointReport:
    report = CheckpointReport(
        f"/c/step_{step}.pt",
        step,
        "torch",
        CheckpointState.VERIFIED,
        VerificationLevel.CONTENT,
        True,
        1,
        100,
        modified_at_ns=step,
    )
    return replace(report, **values)


FACTS = Facts(
    checkpoints=(
        saved(3700),
        saved(3800, state=CheckpointState.DELETED, level=None, reasons=("its files are gone", f"before that: {NAN}")),
        saved(3900),
    )
)


def test_one_saved_after_damaged_numbers_is_suspect_and_no_way_back_also_when_the_damaged_one_is_deleted() -> None:
    assert suspects_of(FACTS, []) == {"/c/step_3900.pt": 3800}
    back = way_back_of(RunSettings(name="run"), FACTS, CheckpointFacts(), [], [], None, {})
    assert back.checkpoint is not None and back.checkpoint.step == 3700 and back.needs_load
    assert set(back.rejected) == {"/c/step_3900.pt"}


def test_what_is_to_be_loaded_first_is_not_called_safe(seen) -> None:  # noqa: F811
    back = way_back_of(RunSettings(name="run"), FACTS, CheckpointFacts(), [], [], None, {})
    told = replace(seen, rollback=back, recommended=back.checkpoint, incidents=())
    assert words.safe_sentence(told) == "To be loaded before it is used: step 3,700, content verified."
    assert back.checkpoint is not None
    assert words.verify_command(back.checkpoint, "load").endswith("verify /c/step_3700.pt --level load")
