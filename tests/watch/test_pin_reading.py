"""A pinned checkpoint whose original is gone: its bytes are compared with what its writer left, at once and again after days."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from test_safe_checkpoint import Place

from tests.checkpoints import checkpoint_makers as make
from trainvitals import manifest
from trainvitals.checkpoints import inspect
from trainvitals.records import CheckpointState, VerificationLevel
from trainvitals.watch.pin_reading import PinReading

DAY_NS = 86_400 * 10**9


def write_manifest(path: Path, step: int) -> None:
    """As the hook writes it."""
    files = [
        manifest.ManifestFile(
            file.name, file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest(), 0, file.stat().st_mtime_ns
        )
        for file in sorted(path.iterdir())
    ]
    made = manifest.Manifest(run="run", attempt=None, step=step, algorithm="sha256", files=tuple(files))
    (path / manifest.NAME).write_text(manifest.dump(made))


def flip_a_bit(path: Path) -> None:
    """In the bytes of a tensor."""
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"data/0") + 100] ^= 1
    path.write_bytes(raw)


class Night(Place):
    """Each checkpoint has a manifest."""

    def save(self, step, name=""):
        path = super().save(step, name)
        write_manifest(path, step)
        return path


@pytest.fixture
def night(tmp_path):
    place = Night(tmp_path)
    place.header()
    yield place
    place.store.close()


def test_the_content_of_a_pin_is_looked_at_when_its_original_is_gone_and_it_can_be_resumed_from(night):
    night.run_on(1, 450)
    night.run_on(451, 800, loss=4.0)
    kept = night.checkpoints / ".trainvitals-pinned" / "checkpoint-400"
    safe = night.safe.rollback
    assert safe.checkpoint.path == str(kept) and safe.is_pinned and not safe.needs_content
    assert (safe.checkpoint.level, safe.checkpoint.proof) == (VerificationLevel.CONTENT, "manifest")
    told = [event for event in night.events("verification") if event.data["path"] == str(kept)]
    assert [event.data["level"] for event in told] == ["content"]
    assert not night.safe.wanted()


def test_a_pin_that_was_damaged_is_no_safe_checkpoint_any_more_and_stays_for_a_person_while_no_other_is_safe(night):
    night.run_on(1, 450)
    night.run_on(451, 470, loss=4.0)
    kept = night.checkpoints / ".trainvitals-pinned" / "checkpoint-400"
    flip_a_bit(kept / "optimizer.pt")
    night.run_on(471, 800, loss=4.0)
    assert night.safe.rollback.checkpoint is None
    assert "optimizer.pt" in night.safe.rollback.rejected[str(kept)]
    assert kept.is_dir()
    shown = [event.data["state"] for event in night.events("checkpoint") if event.data["path"] == str(kept)]
    assert shown[-1] == "corrupt"


def test_it_is_wanted_before_all_others_while_an_incident_is_open_and_its_original_is_there(tmp_path):
    place = Place(tmp_path)
    place.header()
    place.run_on(1, 450)
    assert not place.safe.wanted()
    place.run_on(451, 470, loss=4.0)
    assert place.safe.wanted() == (str(place.checkpoints / "checkpoint-400"),)
    place.store.close()


def test_it_is_read_again_after_days_and_a_failed_look_is_tried_again_after_an_hour(tmp_path):
    path = make.huggingface(tmp_path, 500)
    write_manifest(path, 500)
    reading = PinReading(str(tmp_path / "hashes"), "run", 0.0, 7.0, in_thread=False)
    pins = {str(path): inspect(str(path))}
    assert reading.poll(pins, 10**9, is_urgent=True) == []
    (read,) = reading.poll(pins, 2 * 10**9, is_urgent=True)
    assert read.report is not None and read.report.level is VerificationLevel.CONTENT
    pins = {str(path): read.report}
    assert reading.poll(pins, 6 * DAY_NS, is_urgent=False) == []
    assert reading.poll(pins, 8 * DAY_NS, is_urgent=False) == []
    (again,) = reading.poll(pins, 9 * DAY_NS, is_urgent=False)
    assert again.report is not None and again.report.state is CheckpointState.VERIFIED
    flip_a_bit(path / "optimizer.pt")
    reading.poll(pins, 17 * DAY_NS, is_urgent=False)
    (damaged,) = reading.poll(pins, 17 * DAY_NS, is_urgent=False)
    assert damaged.report is not None and damaged.report.state is CheckpointState.CORRUPT
    gone = {str(tmp_path / "nothing"): replace(read.report, verified_at_ns=None)}
    reading.poll(gone, 40 * DAY_NS, is_urgent=False)
    (failed,) = reading.poll(gone, 40 * DAY_NS, is_urgent=False)
    assert failed.report is None and "no such file" in failed.problem
    assert reading.poll(gone, 40 * DAY_NS + 1, is_urgent=False) == []
