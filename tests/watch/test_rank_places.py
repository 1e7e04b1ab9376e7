"""Where the ranks are that a finding names: from what the trainer told at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.records import Event, Finding, Severity
from trainvitals.settings import RunSettings
from trainvitals.watch.deaths import Deaths
from trainvitals.watch.metadata import MetadataFiles

PLACES = {str(rank): f"node{rank // 8}/{rank % 8}/GPU-{rank}" for rank in range(64)}


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    files = MetadataFiles(str(tmp_path), "r")
    files.take(Event("attempt_start", 1, attempt=1, data={"attempt": 1}))
    files.take(Event("metadata", 1, attempt=1, data={"section": "ranks", "values": PLACES, "part": 0, "parts": 1}))
    assert files.flush() == ""
    return Deaths(RunSettings(name="r", dir=str(tmp_path)), None)


def _finding(rule: str, data: dict[str, object], family: str = "rank") -> Finding:
    return Finding(
        id=f"r/1/{rule}/50", rule=rule, family=family, severity=Severity.WARNING, first_step=50, detected_step=50, last_step=None,
        attempt=1, time_ns=1, value=1.0, expected=None, message="a rank", is_open=True, data=data,
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["straggler", "rank_loss_mismatch"])
def test_a_finding_that_names_a_rank_names_its_host_and_gpu(deaths: Deaths, rule: str) -> None:
    found = deaths.with_place(_finding(rule, {"rank": 17}))
    assert found.message == "a rank [rank 17: node2/1/GPU-17]" and found.data["place"] == "node2/1/GPU-17"
    assert deaths.with_place(found) == found


def test_a_finding_that_names_several_ranks_names_the_host_and_gpu_of_each(deaths: Deaths) -> None:
    found = deaths.with_place(_finding("rank_loss_mismatch", {"ranks": [6, 9]}))
    assert found.message == "a rank [rank 6: node0/6/GPU-6, rank 9: node1/1/GPU-9]"


@pytest.mark.parametrize("data", [{}, {"rank": 999}, {"ranks": 3}, {"ranks": ["6"]}, {"rank": 17, "place": "node2/1/GPU-17"}])
def test_a_finding_without_a_rank_that_is_known_stays_as_it_is(deaths: Deaths, data: dict[str, object]) -> None:
    finding = _finding("straggler", data)
    assert deaths.with_place(finding) == finding
    assert deaths.with_place(_finding("loss_spike", {"rank": 17}, "loss")).message == "a rank"
