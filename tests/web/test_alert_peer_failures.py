"""A look of the dashboard at its watchdogs that fails in an unexpected way is counted where people see it."""

from __future__ import annotations

from pathlib import Path

from trainvitals.clock import ManualClock
from trainvitals.settings import parse
from trainvitals.web.alert_peer import FAILED_LOOKS, AlertPeer
from trainvitals.web.view import Snapshot


def test_failed_looks_are_counted_said_and_once_they_last_on_every_page(tmp_path: Path) -> None:
    target = {"kind": "webhook", "url": "https://pager.example"}
    settings = parse({"runs": [], "alerts": {"outbox": str(tmp_path / "alerts.db"), "targets": {"pager": target}}})
    is_broken = True

    def snapshot() -> Snapshot:
        if is_broken:
            raise KeyError("made-up")
        return Snapshot(1)

    peer = AlertPeer(settings, snapshot, ManualClock(), is_sending=False)
    peer.look()
    assert "KeyError" in peer.view().trouble
    assert "failed once" in peer.view().sentences[0]
    assert peer.view().banner == ""
    for _ in range(FAILED_LOOKS - 1):
        peer.look()
    assert "KeyError" in peer.view().banner
    is_broken = False
    peer.look()
    assert (peer.view().trouble, peer.view().banner) == ("", "")
    assert any(f"failed {FAILED_LOOKS} times" in sentence for sentence in peer.view().sentences)
    peer.stop()
