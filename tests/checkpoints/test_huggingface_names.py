"""Whose checkpoint a directory is, when only its name says Hugging Face."""

from __future__ import annotations

from trainvitals.checkpoints import inspect
from trainvitals.records import CheckpointState


def test_a_directory_that_is_only_named_like_the_trainers_own_is_an_unknown_format_and_no_damage(tmp_path):
    own = tmp_path / "checkpoint-199"
    own.mkdir()
    (own / "weights.json").write_text("{}")
    report = inspect(str(own), level="structure")
    assert report.state is CheckpointState.UNKNOWN_FORMAT and "weights.json" in " ".join(report.reasons)


def test_a_save_of_the_trainer_that_has_just_begun_is_known_by_its_first_file(tmp_path):
    begun = tmp_path / "checkpoint-200"
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    report = inspect(str(begun), level="structure")
    assert report.format == "huggingface" and report.state is CheckpointState.INCOMPLETE
