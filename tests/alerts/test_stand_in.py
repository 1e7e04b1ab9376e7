"""People are paged while the outbox is damaged or its disk is full."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from notices import notice
from receivers import Receiver

from trainvitals.alerts import stand_in
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.stand_in import StandIn
from trainvitals.clock import ManualClock, SystemClock
from trainvitals.errors import StoreError
from trainvitals.settings import parse

RANDOM = os.urandom(8192)


def settings_for(tmp_path, port=1):
    targets = {
        "pager": {"kind": "webhook", "url": f"http://127.0.0.1:{port}/", "allow_private": True},
        "mild": {"kind": "webhook", "url": "http://127.0.0.1:1/", "severities": ["warning"]},
        "other": {"kind": "webhook", "url": "http://127.0.0.1:1/", "runs": ["gpt-*"]},
    }
    runs = [{"name": "r", "dir": str(tmp_path / "run")}]
    return parse({"runs": runs, "alerts": {"outbox": str(tmp_path / "alerts.db"), "targets": targets}}, str(tmp_path / "t.toml"))


def test_a_damaged_outbox_keeps_no_page_back_and_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in, "REFUSED_FOR_S", 0.0)
    (tmp_path / "alerts.db").write_bytes(RANDOM)
    (tmp_path / "memory").mkdir()
    said = []
    with Receiver() as receiver:
        settings = settings_for(tmp_path, receiver.port)
        outbox = Outbox(settings.outbox_path)
        box = StandIn(settings, outbox, SystemClock(), said.append, str(tmp_path / "memory"))
        assert box.enqueue(notice("opened"), "pager")
        assert not box.enqueue(notice("opened"), "pager"), "the same one again is told once"
        box.wake()
        deadline = time.monotonic() + 60
        while not receiver.received and time.monotonic() < deadline:
            time.sleep(0.02)
        assert receiver.received
        (tmp_path / "alerts.db").unlink()
        assert box.enqueue(notice("opened", "inc-2"), "pager")
        assert [one.target for one in outbox.messages()] == ["pager"], "the outbox is used again"
        box.stop(10.0)
        outbox.close()
    assert any("kept in memory" in one for one in said) and not list((tmp_path / "memory").iterdir())


def test_an_outbox_that_is_refused_for_a_moment_gets_no_second_place(tmp_path):
    (tmp_path / "alerts.db").write_bytes(RANDOM)
    settings, clock = settings_for(tmp_path), ManualClock()
    box = StandIn(settings, Outbox(settings.outbox_path), clock, lambda text: None, str(tmp_path))
    for _ in range(3):
        with pytest.raises(StoreError):
            box.enqueue(notice("opened"), "pager")
        clock.advance(5)
    assert not [one for one in Path(tmp_path).iterdir() if one.is_dir()]
