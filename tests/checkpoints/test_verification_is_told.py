"""A look at a content that found damage is told like one that found none: when it ended, and what it found."""

import checkpoint_makers as make
import content_makers as made

from trainvitals.checkpoints import inspect
from trainvitals.watch.checkpoint_events import CheckpointEvents


def test_damage_has_the_time_of_the_look_that_found_it_and_an_event_of_its_own(tmp_path):
    path = make.huggingface(tmp_path, 500)
    made.write_manifest(path, 500)
    raw = (path / "optimizer.pt").read_bytes()
    (path / "optimizer.pt").write_bytes(made.flipped(raw, made.data_offset(raw)))
    report = inspect(str(path), "content")
    assert report.state == "corrupt" and report.verified_at_ns is not None
    (told,) = [event for event in CheckpointEvents().of([report], [], 1, 10**18) if event.kind == "verification"]
    assert told.time_ns == report.verified_at_ns and told.data["state"] == "corrupt"
    assert "optimizer.pt" in told.data["reasons"][0]


def test_damage_of_the_structure_is_no_look_at_the_content(tmp_path):
    path = make.huggingface(tmp_path, 500)
    (path / "optimizer.pt").write_bytes(b"")
    report = inspect(str(path), "content")
    assert report.state == "corrupt" and report.verified_at_ns is None
