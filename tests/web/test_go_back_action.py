"""Going back from the page: only where a supervisor runs the trainer, only for who may, with a name and a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals import settings as settings_module
from trainvitals.control import supervised
from trainvitals.control.requests import Watcher
from trainvitals.web.actions import go_back, is_supervised


@pytest.fixture
def settings(tmp_path: Path) -> settings_module.Settings:
    (tmp_path / "run").mkdir()
    return settings_module.parse({"runs": [{"name": "r1", "dir": str(tmp_path / "run"), "checkpoints": [str(tmp_path / "c")]}]})


def announced(settings: settings_module.Settings) -> str:
    run_dir = settings.runs[0].dir
    supervised.make_directories(run_dir)
    supervised.announce(run_dir, Watcher("r1", (supervised.ROLLBACK,), "h", 1))
    return run_dir


def test_without_a_supervisor_nothing_is_asked(settings: settings_module.Settings) -> None:
    assert not is_supervised(settings, "r1")
    outcome = go_back(settings, "r1", "/c/checkpoint-10", "alice", "spike")
    assert not outcome.is_done and "Nobody supervises" in outcome.sentence


def test_with_one_the_request_lies_there_with_name_and_reason(settings: settings_module.Settings) -> None:
    run_dir = announced(settings)
    assert is_supervised(settings, "r1")
    assert go_back(settings, "r1", "/c/checkpoint-10", "alice", "spike").is_done
    (name,) = supervised.waiting(run_dir)
    request = supervised.read(run_dir, name)
    assert request is not None
    assert (request.kind, request.by, request.source, request.run) == ("rollback", "alice", "ui", "r1")
    assert request.data == {"to": "/c/checkpoint-10", "reason": "spike", "skip_samples": ""}


@pytest.mark.parametrize(("by", "reason"), [("", "spike"), ("alice", " "), ("al\x1bice", "spike")])
def test_without_a_name_or_a_reason_nothing_is_asked(settings: settings_module.Settings, by: str, reason: str) -> None:
    run_dir = announced(settings)
    assert not go_back(settings, "r1", "/c/checkpoint-10", by, reason).is_done
    assert supervised.waiting(run_dir) == []


def test_a_run_that_the_settings_do_not_name_cannot_be_meant(settings: settings_module.Settings) -> None:
    assert not is_supervised(settings, "other")
    assert not go_back(settings, "other", "/c", "alice", "spike").is_done


def test_a_supervisor_that_is_long_silent_is_none(settings: settings_module.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    announced(settings)
    monkeypatch.setattr(supervised, "SILENT_AFTER_S", -1.0)
    assert not is_supervised(settings, "r1")
