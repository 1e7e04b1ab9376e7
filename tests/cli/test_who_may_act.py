"""Who may act is asked by the commands too, where the settings say it for the run of the directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.control import files, inbox, init, read_request
from trainvitals.control.audit import newest
from trainvitals.control.requests import ANNOTATION, Watcher


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    init(made, "r")
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'[[runs]]\nname = "r"\ndir = "{made}"\n[access.runs."r"]\noperators = ["ana"]\n')
    monkeypatch.setenv("TRAINVITALS_CONFIG", str(config))
    return made


def control(run_dir: Path, action: str, by: str, *more: str) -> int:
    return main(["control", action, str(run_dir), "--by", by, "--reason", "why", "--wait", "0", *more])


@pytest.mark.parametrize("action", ["pause", "resume", "checkpoint", "stop"])
@pytest.mark.parametrize("run", [(), ("--run", "another")])
def test_a_viewer_is_refused_whatever_name_of_a_run_is_given(run_dir: Path, capsys, action: str, run: tuple[str, ...]) -> None:
    assert control(run_dir, action, "eve", *run) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["outcome"] == "refused"
    assert "eve may look at 'r', but not act on it" in told.err
    assert read_request(run_dir).seq == 0
    assert newest(run_dir, 1)[0].kind == "access_refused"


def test_a_viewer_can_neither_roll_back_nor_annotate(run_dir: Path, capsys) -> None:
    assert control(run_dir, "rollback", "eve", "--to", str(run_dir)) == 1
    inbox.announce(run_dir, Watcher("r", (ANNOTATION,)))
    assert main(["annotate", str(run_dir), "words", "--by", "eve", "--wait", "0"]) == 1
    assert inbox.listing(run_dir).names == ()
    assert [record.data["action"] for record in newest(run_dir, 9)] == ["rollback", "annotate"]


def test_an_operator_is_not_refused_and_is_audited(run_dir: Path) -> None:
    assert control(run_dir, "pause", "ana") == 1  # no trainer listens
    assert read_request(run_dir).desired == "paused"
    assert newest(run_dir, 1)[0].by == "ana"


def test_settings_that_cannot_be_read_hold_up_everything_but_a_pause(run_dir: Path, monkeypatch, capsys) -> None:
    broken = run_dir.parent / "broken.toml"
    broken.write_text("[[")
    assert control(run_dir, "stop", "ana", "--config", str(broken)) == 2
    assert read_request(run_dir).seq == 0
    assert control(run_dir, "pause", "ana", "--config", str(broken)) == 1
    assert read_request(run_dir).desired == "paused"
    assert "was not looked up" in capsys.readouterr().err


def test_a_pause_that_cannot_be_audited_is_made_and_told(run_dir: Path, capsys) -> None:
    (files.control_dir(run_dir) / "audit.lock").mkdir()
    control(run_dir, "pause", "ana")
    assert read_request(run_dir).desired == "paused"
    assert "not in the audit" in capsys.readouterr().err
    assert control(run_dir, "resume", "ana") == 1
    assert read_request(run_dir).desired == "paused"
