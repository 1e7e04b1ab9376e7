"""What a dead run is called by, what is told of it besides, and what only the end of a log can say."""

from __future__ import annotations

import pytest
from test_fault_findings import START_NS, S, fault, postmortem, trained

from trainvitals.detect.engine import Engine
from trainvitals.incidents.grouping import Grouper
from trainvitals.records import Event, Severity, Step


def died(engine: Engine, at_s: int):
    return next(finding for finding in engine.tick(START_NS + at_s * S) if finding.rule == "run_dead")


def test_what_a_launcher_complains_of_gives_way_to_what_it_complained_about():
    engine = trained()
    engine.update(fault(101, {"class": "process_failed"}, text="failed (exitcode: 1) local_rank: 5"))
    engine.update(fault(110, {"class": "out_of_memory"}, text="torch.OutOfMemoryError: CUDA out of memory"))
    engine.update(fault(111, {"class": "exception"}, text="RuntimeError: unrelated"))
    dead = died(engine, 162)
    assert dead.message == "the run died after step 100: torch.OutOfMemoryError: CUDA out of memory"
    assert dead.data["class"] == "out_of_memory"


def test_a_dead_run_is_not_called_stalled_as_well():
    engine = Engine("run")
    for step in range(1, 101):
        engine.update(Step(step, 1, START_NS + step * S, {"loss": 2.0}))
        engine.tick(START_NS + step * S)
    engine.update(fault(101, {"class": "process_failed"}))
    rules = {finding.rule for at_s in range(102, 2000) for finding in engine.tick(START_NS + at_s * S)}
    assert "run_dead" in rules
    engine.update(Event("attempt_start", START_NS + 2001 * S, attempt=2, data={"attempt": 2}))
    for step in range(100, 200):
        engine.update(Step(step, 2, START_NS + (2000 + step) * S, {"loss": 2.0}))
        engine.tick(START_NS + (2000 + step) * S)
    assert any(finding.rule == "stall" for at_s in range(2300, 9000, 100) for finding in engine.tick(START_NS + at_s * S))


def test_a_log_that_ends_in_a_failing_gpu_is_dead_of_it_and_one_that_goes_on_is_not():
    xid = fault(101, {"class": "xid", "xid": 79}, text="NVRM: Xid 79, GPU has fallen off the bus")
    engine = trained()
    engine.update(xid)
    assert engine.tick(START_NS + 170 * S) == []
    (dead,) = engine.finish()
    assert (dead.rule, dead.severity) == ("run_dead", Severity.CRITICAL) and "fallen off the bus" in dead.message
    engine = trained()
    engine.update(xid)
    engine.update(Step(101, 1, START_NS + 110 * S, {"loss": 2.0}))
    assert engine.finish() == []


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_an_xid_of_a_programs_fault_ends_nothing(severity):
    engine = trained()
    engine.update(fault(101, {"class": "xid", "xid": 31}, severity))
    assert engine.finish() == []


def test_a_start_that_never_trained_did_not_die_after_a_step():
    engine = Engine("run")
    engine.update(fault(1, {"class": "time_limit"}, text="CANCELLED DUE TO TIME LIMIT"))
    (dead,) = engine.finish()
    assert dead.message == "the run died before any step was read: CANCELLED DUE TO TIME LIMIT"


def test_the_title_of_a_death_keeps_its_cause_whatever_is_told_later():
    engine, grouper = trained(), Grouper("run")
    engine.update(fault(101, {"class": "process_failed"}))
    found = [*engine.tick(START_NS + 170 * S), *engine.update(postmortem())]
    found += engine.update(Event("attempt_start", START_NS + 200 * S, attempt=2, data={"attempt": 2}))
    titles = [incident.title for finding in found if (incident := grouper.add(finding, START_NS)) is not None]
    assert titles[-1].startswith("the run died after step 100: CUDA out of memory on node17 rank 12")
    again = Grouper("run")
    again.restore(grouper.to_state())
    assert again.to_state() == grouper.to_state()
