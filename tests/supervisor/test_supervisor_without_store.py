"""A store that is away takes nothing from the choice of a checkpoint: the watchdog's pages in the run directory say what is wrong."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from trainvitals.errors import StoreUnavailable
from trainvitals.incidents.static_page import file_name
from trainvitals.records import Finding, Incident, Severity
from trainvitals.supervisor.knowledge import MAX_PAGES, ask, of_pages

FINDING = Finding(
    "r/1/loss_divergence/500", "loss_divergence", "loss", Severity.CRITICAL, 480, 500, None, 1, 7, 9.0, 2.0, "not coming back", True
)  # fmt: skip


def incident(number: int) -> Incident:
    return Incident(
        id=f"r/loss/{number}", run="r", family="loss", severity=Severity.CRITICAL, rules=("loss_divergence",),
        finding_ids=(FINDING.id,), first_step=480, last_step=None, opened_at_ns=number, updated_at_ns=number, closed_at_ns=None,
        title="the loss is not coming back", message="the loss is not coming back",
    )  # fmt: skip


def pages(run_dir: Path, *numbers: int) -> Path:
    place = run_dir / "incidents"
    place.mkdir(exist_ok=True)
    incidents = [incident(number) for number in numbers]
    (place / "index.json").write_text(json.dumps({"schema": 1, "incidents": [asdict(one) for one in incidents]}))
    for one in incidents:
        told = {"incident": asdict(one), "findings": [asdict(FINDING)], "near": [], "curves": []}
        (place / f"{file_name(one.id)}.json").write_text(json.dumps(told))
    return place


def away():
    raise StoreUnavailable("the disk is full")


def test_incidents_and_their_findings_are_known_from_the_pages_while_the_store_is_away(tmp_path: Path) -> None:
    pages(tmp_path, 3, 5)
    known = ask(away, "r", 10, run_dir=str(tmp_path))
    assert [one.opened_at_ns for one in known.incidents] == [5, 3] and known.trouble == "the disk is full"
    assert known.findings[0] == FINDING
    assert ask(away, "r", 10).incidents == ()


def test_a_store_that_answers_is_the_one_that_counts(tmp_path: Path) -> None:
    pages(tmp_path, 3)
    assert ask(None, "r", 10, run_dir=str(tmp_path)).incidents == ()


@pytest.mark.parametrize("harm", ["none", "garbage", "fifo", "link", "list", "numbers", "deep"])
def test_what_the_pages_hold_can_be_anything(tmp_path: Path, harm: str) -> None:
    place = tmp_path / "incidents"
    if harm != "none":
        pages(tmp_path, 1)
        index = place / "index.json"
        index.unlink()
        if harm == "fifo":
            os.mkfifo(index)
        elif harm == "link":
            index.symlink_to("/etc/passwd")
        else:
            texts = {"garbage": "\0\1", "list": "[]", "numbers": '{"incidents": [1, null, {"id": 3}]}', "deep": "[" * 200_000}
            index.write_text(texts[harm])
    assert of_pages(str(tmp_path)).incidents == ()


def test_only_the_newest_pages_are_read(tmp_path: Path) -> None:
    pages(tmp_path, *range(2 * MAX_PAGES))
    assert len(of_pages(str(tmp_path)).incidents) == MAX_PAGES
