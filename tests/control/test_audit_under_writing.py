"""A check that reads between two writers' files calls nothing broken."""

import pytest

from trainvitals.control import audit_chain, audit_files
from trainvitals.control.audit import append
from trainvitals.control.audit_chain import verify
from trainvitals.errors import ControlError


def test_a_chain_that_is_put_aside_faster_than_it_is_read_is_told_as_not_checked(tmp_path, monkeypatch):
    for number in range(3):
        append(tmp_path, "request", by="ana", source="cli", data={"number": number}, run="r")
    path = tmp_path / "control" / "audit.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[1:]) + "\n")
    assert not verify(tmp_path).is_intact  # a record is really missing
    looks = iter(range(1_000))
    real = audit_files.AuditDirectory.look

    def moving(directory):
        real(directory)
        directory.older = [f"audit-{next(looks)}.jsonl"]

    monkeypatch.setattr(audit_files.AuditDirectory, "look", moving)
    monkeypatch.setattr(audit_files.AuditDirectory, "names", property(lambda directory: ["audit.jsonl"]))
    with pytest.raises(ControlError, match="could not be checked"):
        verify(tmp_path)
    assert next(looks) > audit_chain.TRIES
