"""What the real supervisor of a small training does, as the watchdog's rules and the control page read it from its events."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.supervisor.tools import Place, wait_until
from trainvitals.clock import SystemClock
from trainvitals.control import look, submit
from trainvitals.detect.engine import Engine
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.logs.tail import LogSource
from trainvitals.records import Event, Finding, Severity
from trainvitals.web.supervisor_view import supervisor_view
from trainvitals.web.supervisor_words import phase_lines, recovery_words, supervisor_head, supervisor_state
from trainvitals.web.view import RunView


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, more=["--steps", "60"])


def told(place: Place) -> list[Event]:
    """As the watchdog reads it."""
    source = LogSource([str(place.run_dir / "supervisor.events.jsonl")], "hook", "UTC", SystemClock())
    try:
        return [record for _, record in source.poll(1 << 20) if isinstance(record, Event) and record.kind == "supervisor"]
    finally:
        source.close()


def found(place: Place) -> list[Finding]:
    engine = Engine("small")
    return [finding for event in told(place) for finding in engine.update(event)]


def page(place: Place) -> RunView:
    now_ns = time.time_ns()
    verdict = Verdict(VerdictWord.HEALTHY, "ok", "", None)
    seen = supervisor_view(told(place), place.settings.restarts_per_day, now_ns)
    return RunView(place.run, now_ns, verdict, look(str(place.run_dir), now_ns), supervisor=seen)


def test_deaths_in_one_place_are_a_critical_finding_until_a_person_lets_the_run_go_on(place: Place) -> None:
    place.more += ["--faults", "oom@25,oom@26"]
    with place.running():
        wait_until(lambda: place.history.hold_seq is not None, "a hold")
        (finding,) = found(place)
        assert (finding.rule, finding.severity, finding.is_open) == ("restart_loop", Severity.CRITICAL, True)
        assert "2 times in a row the same end (out of memory) after checkpoint 20" in finding.message
        seen = page(place)
        assert finding.message.removeprefix("the supervisor starts it no more: ") in supervisor_state(seen, seen.taken_at_ns)
        assert "2 of 20 restarts used in 24 h" in supervisor_head(seen, seen.taken_at_ns) and seen.control.supervisor
        assert "The supervisor starts it no more until somebody resumes the run" in seen.control.sentence
        submit(str(place.run_dir), "small", action="resume", by="ana", source="cli", reason="more memory")
        wait_until(lambda: "done" in place.states(), "the end of the training")
    assert place.codes == [0]
    assert [(one.rule, one.is_open) for one in found(place)] == [("restart_loop", True), ("restart_loop", False)]
    assert found(place)[-1].message.endswith("; resumed by ana: more memory")


def test_the_page_has_each_phase_of_a_restart_with_the_usual_time_of_the_start_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainvitals.supervisor.healing.LOOK_EVERY_S", 0.05)
    place.more = ["--steps", "100000", "--step-s", "0.005", "--faults", "killed@25"]
    with place.running():
        wait_until(lambda: "recovered" in place.states(), "the recovery")
        seen = supervisor_view(told(place), 20, time.time_ns())
    assert (seen.state, seen.attempt, seen.resume_step) == ("running", 2, 20)
    assert [line.split(":")[0] for line in phase_lines(seen, time.time_ns())] == [
        "✓ start",
        "✓ load",
        "✓ first step",
        "✓ caught up",
    ]
    assert seen.recovered_ns is not None
    view = RunView(place.run, 0, Verdict(VerdictWord.HEALTHY, "ok", "", None), look(str(place.run_dir), 0), supervisor=seen)
    assert "loss and throughput as before, a new checkpoint verified" in recovery_words(view, time.time_ns())
