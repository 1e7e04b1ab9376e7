"""A way back to a checkpoint that was saved after the onset of a sick loss is asked only when a person says so twice."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.control import init, supervised
from trainvitals.control.requests import Watcher
from trainvitals.records import CheckpointReport, CheckpointState, Event, Incident, Severity, VerificationLevel
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.doubt import doubt_words

NOW = 1_795_000_000 * 10**9


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    init(run_dir, "r")
    supervised.make_directories(run_dir)
    supervised.announce(run_dir, Watcher("r", (supervised.ROLLBACK,), "h", 1))
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'store = "sqlite://{tmp_path}/t.db"\n[[runs]]\nname = "r"\ndir = "{run_dir}"\n')
    monkeypatch.setenv("TRAINVITALS_CONFIG", str(config))
    store = SqliteStore(tmp_path / "t.db")
    events = []
    for step in (300, 900):
        path = tmp_path / f"step_{step}"
        path.mkdir()
        report = CheckpointReport(
            str(path), step, "torch", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 1, 10, modified_at_ns=NOW - step
        )
        events.append(Event("checkpoint", NOW - 10**9, id=f"c{step}", step=step, source="watch", data=asdict(report)))
    incident = Incident(
        "i1", "r", "loss", Severity.CRITICAL, ("loss_level_shift",), (), 800, None, NOW - 10**9, NOW, None, "t", "m"
    )
    events.append(Event("incident", NOW, id="i1", source="watch", data=asdict(incident)))
    store.write([event_point("r", event) for event in events])
    store.close()
    return tmp_path


def back(place: Path, step: int, *more: str) -> int:
    return main(["control", "rollback", str(place / "run"), "--by", "ana", "--reason", "spike", "--to", str(place / f"step_{step}"),
                 "--wait", "0", *more])  # fmt: skip


def test_a_suspect_one_is_refused_with_the_reason_and_the_way_to_insist(place: Path, capsys) -> None:
    assert back(place, 900) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["outcome"] == "refused"
    assert "step_900 is suspect" in told.err and "step 800" in told.err and "--anyway" in told.err
    assert supervised.waiting(place / "run") == []


def test_a_second_name_of_it_is_refused_as_well(place: Path, capsys) -> None:
    (place / "latest").symlink_to(place / "step_900")
    assert main(["control", "rollback", str(place / "run"), "--by", "a", "--reason", "w", "--to", str(place / "latest")]) == 1
    assert "is suspect" in capsys.readouterr().err


def test_who_insists_is_obeyed_and_a_healthy_one_needs_no_insisting(place: Path, capsys) -> None:
    back(place, 900, "--anyway")
    back(place, 300)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["outcome"] == "not_answered"
    assert len(supervised.waiting(place / "run")) == 2


def test_without_a_store_the_way_back_is_asked_and_what_was_not_looked_up_is_said(place: Path, capsys) -> None:
    (place / "t.db").unlink()
    back(place, 900)
    assert "Whether it is suspect was not looked up" in capsys.readouterr().err
    assert len(supervised.waiting(place / "run")) == 1


def test_the_same_place_written_in_another_way_is_the_same() -> None:
    assert "step 800" in doubt_words("/c//step_900/", {"/c/step_900": 800})
    assert doubt_words("/c/step_300", {"/c/step_900": 800}) == ""
