"""A death that the supervisor mended within its time wakes nobody, also when the wait for it to last goes beyond that time."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.incidents.change import ChangeKind
from trainvitals.incidents.engine import IncidentEngine
from trainvitals.incidents.mending import Patience
from trainvitals.records import Finding, Severity

S = 10**9
DEATH = Finding(
    "f", "run_dead", "liveness", Severity.CRITICAL, 500, 500, None, 1, 0, None, None, "the trainer ended after step 500: crashed", True
)  # fmt: skip


def told(engine: IncidentEngine, from_s: int, to_s: int) -> list[tuple[int, str, bool]]:
    found = []
    for second in range(from_s, to_s, 10):
        engine.advance(second * S)
        found += [(second, one.kind.value, one.is_healed) for one in engine.take_changes(second * S, is_supervised=True)]
    return found


def test_a_start_in_the_last_minute_of_its_time_is_a_line_of_the_summary():
    engine = IncidentEngine("r", Patience(600.0, 120.0))
    engine.advance(0)
    engine.add(DEATH, 0)
    assert told(engine, 0, 570) == []
    engine.add(replace(DEATH, is_open=False, last_step=500), 570 * S)
    engine.stepped(2)
    (change,) = told(engine, 570, 1_200)
    assert change[1:] == (ChangeKind.RECOVERED.value, True)


def test_a_death_that_is_not_mended_in_its_time_is_told():
    engine = IncidentEngine("r", Patience(600.0, 120.0))
    engine.advance(0)
    engine.add(DEATH, 0)
    assert told(engine, 0, 700) == [(600, ChangeKind.OPENED.value, False)]
