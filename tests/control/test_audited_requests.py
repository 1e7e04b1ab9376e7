"""Asking with an audit: the record stands before the request, what was not asked is told too, and a pause is never held up by it."""

from __future__ import annotations

import pytest

from trainvitals.control import inbox, read_request, submit
from trainvitals.control.audit import newest
from trainvitals.control.audit_chain import history_anchors, verify
from trainvitals.control.audited import ask, ask_watchdog
from trainvitals.control.requests import ANNOTATION, Watcher
from trainvitals.errors import ControlConflict, ControlError


def spoil(run_dir):
    """No audit can be written here any more, everything else can."""
    (run_dir / "control").mkdir(mode=0o770, exist_ok=True)
    (run_dir / "control" / "audit.lock").unlink(missing_ok=True)
    (run_dir / "control" / "audit.lock").mkdir()


def wish(run_dir, action, **more):
    return ask(run_dir, "r", action=action, by="ana", source="cli", reason="why not", **more)


def test_a_request_holds_its_record_and_the_history_anchors_it(tmp_path):
    asked = wish(tmp_path, "pause", save=False)
    record = newest(tmp_path, 1)[0]
    assert (record.kind, record.by, record.data["action"], record.data["seq"]) == ("request", "ana", "pause", 1)
    present = read_request(tmp_path)
    assert (present.audit_n, present.audit_hash) == (record.n, record.hash) == (asked.request.audit_n, asked.request.audit_hash)
    anchors = history_anchors(tmp_path)
    assert [anchor.head.n for anchor in anchors] == [1]
    assert verify(tmp_path, anchors).is_intact
    (tmp_path / "control" / "audit.jsonl").write_bytes(b"")
    assert verify(tmp_path, anchors).broken_n == 1


def test_who_lost_against_another_person_is_in_the_audit_too(tmp_path):
    wish(tmp_path, "pause")
    with pytest.raises(ControlConflict):
        wish(tmp_path, "resume", expected_seq=0)
    record = newest(tmp_path, 1)[0]
    assert (record.kind, record.data["action"], record.data["is_conflict"]) == ("not_asked", "resume", True)


@pytest.mark.parametrize("action", ["resume", "checkpoint", "stop"])
def test_what_cannot_be_audited_is_refused_with_a_sentence(tmp_path, action):
    submit(tmp_path, "r", action="pause", by="a", source="cli", reason="x")
    spoil(tmp_path)
    with pytest.raises(ControlError, match="could not be audited"):
        wish(tmp_path, action)
    assert read_request(tmp_path).seq == 1


def test_a_pause_that_cannot_be_audited_is_done_and_told(tmp_path):
    spoil(tmp_path)
    asked = wish(tmp_path, "pause")
    assert "not in the audit" in asked.warning
    assert read_request(tmp_path).desired == "paused"


def test_asking_for_what_stands_already_is_no_new_record(tmp_path):
    wish(tmp_path, "pause")
    wish(tmp_path, "pause")
    assert len(newest(tmp_path, 9)) == 1


def test_a_request_to_the_watchdog_is_audited_or_refused(tmp_path):
    inbox.announce(tmp_path, Watcher("r", (ANNOTATION,)))
    asked = ask_watchdog(tmp_path, "r", kind=ANNOTATION, by="ana", source="ui", data={"text": "new mix"})
    record = newest(tmp_path, 1)[0]
    assert (record.data["request"], record.data["asked"]) == (asked.id, {"text": "new mix"})
    spoil(tmp_path)
    with pytest.raises(ControlError, match="could not be audited"):
        ask_watchdog(tmp_path, "r", kind=ANNOTATION, by="ana", source="ui", data={"text": "newer mix"})
    assert len(inbox.listing(tmp_path).names) == 1
