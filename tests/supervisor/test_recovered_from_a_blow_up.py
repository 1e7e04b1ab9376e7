"""After a way back the run is called recovered by the level that was healthy before it blew up, and never beside a critical incident."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.records import Incident, Severity
from trainvitals.supervisor.history import History, Start, Wish
from trainvitals.supervisor.knowledge import open_critical
from trainvitals.supervisor.loss_memory import LEAST, MAX_TRACE, NEWEST, LossMemory
from trainvitals.supervisor.progress import Progress
from trainvitals.supervisor.recovery import Look, lacking
from trainvitals.supervisor.wishes import after_end

S = 10**9
ROLLED_BACK = Start(1, S, first_step=1, last_step=4_900, ended_ns=9 * S, kind="rollback", safe_step=4_200, caught_up_ns=8 * S)
WISH = Wish("w", "me", "it blew up", "/c/step_4200")


def progress(tmp_path: Path, losses: list[tuple[int, float]]) -> Progress:
    one = Progress(str(tmp_path), tmp_path / "log", ManualClock())
    for step, loss in losses:
        one.memory.add(step, loss)
    return one


def blown(first: int, onset: int, last: int) -> list[tuple[int, float]]:
    """2.0 with a little noise, then away from it."""
    return [(step, 2.0 + 0.01 * (step % 5) + max(0, step - onset) * 0.01) for step in range(first, last + 1)]


def look(history: History, loss: float, **changes: object) -> Look:
    new = [(step, loss) for step in range(4_901, 5_000)]
    return replace(Look(history.peak_step, 4_999, 50, history.curve, new, verified_step=4_950, resumed_step=4_200), **changes)


def test_a_blow_up_longer_than_the_newest_points_leaves_the_healthy_level_known(tmp_path: Path) -> None:
    one = progress(tmp_path, blown(1, 4_275, 4_900))
    assert one.losses[0][0] > 4_275, "nothing healthy is among the newest"
    history = after_end(History(wish=WISH), one, ROLLED_BACK)
    assert history.curve and all(step <= 4_200 and loss < 2.1 for step, loss in history.curve)
    assert any("above its old level 2.02" in missing for missing in lacking(look(history, 8.7)))
    assert lacking(look(history, 2.02)) == ()


def test_a_start_that_went_on_from_damaged_weights_sets_no_new_level(tmp_path: Path) -> None:
    healthy = after_end(History(wish=WISH), progress(tmp_path, blown(1, 4_275, 4_900)), ROLLED_BACK)
    second = replace(ROLLED_BACK, number=2, first_step=4_200, last_step=5_900, safe_step=5_800)
    sick = progress(tmp_path, [(step, 8.7) for step in range(4_200, 5_900)])
    assert after_end(healthy, sick, second).curve == healthy.curve
    better = progress(tmp_path, [(step, 1.9) for step in range(4_200, 5_900)])
    assert after_end(healthy, better, second).curve[-1][1] == 1.9


def test_without_a_safe_checkpoint_nothing_of_a_start_that_was_left_is_a_level(tmp_path: Path) -> None:
    one = progress(tmp_path, blown(1, 200, 900))
    assert after_end(History(wish=WISH), one, replace(ROLLED_BACK, safe_step=None)).curve == ()


def test_a_death_that_has_nothing_to_do_with_the_loss_sets_the_level_of_its_end(tmp_path: Path) -> None:
    one = progress(tmp_path, blown(1, 10_000, 900))
    curve = after_end(History(), one, replace(ROLLED_BACK, kind="died", safe_step=None)).curve
    assert len(curve) == NEWEST and curve[-1][0] == 900


def test_beside_an_open_critical_incident_nothing_is_recovered(tmp_path: Path) -> None:
    incident = Incident(
        "r/loss/3", "r", "loss", Severity.CRITICAL, ("loss_divergence",), ("f",), 4_538, None, S, S, None, "loss 2.61 → 4.72 since step 4,538", ""
    )  # fmt: skip
    place = tmp_path / "incidents"
    place.mkdir()

    def write(*incidents: Incident) -> str:
        (place / "index.json").write_text(
            json.dumps({"schema": 1, "incidents": [asdict(one) for one in incidents], "silences": []})
        )
        return open_critical(str(tmp_path))

    assert write(incident) == incident.title
    (missing,) = lacking(look(History(peak_step=4_900), 2.0, open_incident=write(incident)))
    assert missing == "a critical incident is open: loss 2.61 → 4.72 since step 4,538"
    assert write(replace(incident, closed_at_ns=2 * S)) == "" and write(replace(incident, severity=Severity.WARNING)) == ""
    (place / "index.json").write_text("[1, {")
    assert open_critical(str(tmp_path)) == "" and open_critical(str(tmp_path / "nowhere")) == ""


@pytest.mark.parametrize("count", [0, LEAST - 1, NEWEST, MAX_TRACE + 1, 50 * MAX_TRACE])
def test_the_memory_is_bounded_and_knows_the_level_near_any_step(count: int) -> None:
    memory = LossMemory()
    for step in range(count):
        memory.add(step, float(step))
    assert len(memory.newest) <= NEWEST and len(memory._trace) <= MAX_TRACE + 1
    level = memory.until(count // 2)
    if count >= NEWEST:
        assert len(level) >= LEAST and level[-1][0] >= count // 2 - 2 * count // MAX_TRACE - 1


@given(st.lists(st.tuples(st.integers(0, 1_000), st.floats(-10, 10)), max_size=400), st.none() | st.integers(-1, 1_000))
def test_it_tells_only_steps_at_or_before_the_one_that_is_asked_for(points: list[tuple[int, float]], until: int | None) -> None:
    memory = LossMemory()
    for step, loss in points:
        memory.add(step, loss)
    assert all(until is None or step <= until for step, _ in memory.until(until))
