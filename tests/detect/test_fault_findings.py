"""Faults of the log as findings: who waited, who said nothing; and what a post-mortem adds to ``run_dead``."""

from __future__ import annotations

import json

import pytest

from trainvitals.detect.engine import Engine
from trainvitals.detect.liveness import DEADLY_CLASSES
from trainvitals.logs.faults import table as fault_table
from trainvitals.records import Event, Severity, Step

START_NS = 1_767_323_045_000_000_000
S = 1_000_000_000
TIMEOUT = {"class": "nccl_timeout", "op": "ALLREDUCE", "ranks_seen_count": 7, "ranks_missing": [3], "count": 14}


def trained(steps=100, attempt=1, first=1):
    engine = Engine("run", {"stall": {"floor_s": 3600.0, "cap_s": 3600.0}})
    for step in range(first, first + steps):
        engine.update(Step(step, attempt, START_NS + step * S, {"loss": 2.0}))
    return engine


def fault(at_s, data, severity=Severity.CRITICAL, text="a line of the log"):
    return Event("fault", START_NS + at_s * S, attempt=1, severity=severity, text=text, data=data)


def postmortem(text="cause: CUDA out of memory on node17 rank 12 (03:04:05 UTC), 5,119 others only followed"):
    cause = {"class": "out_of_memory", "host": "node17", "rank": 12, "place": "", "text": "x"}
    return Event("postmortem", START_NS, attempt=1, text=text, data={"cause": cause})


def test_the_deadly_classes_of_the_rules_are_those_of_the_table():
    assert set(fault_table.DEADLY_CLASSES) | {"process_gone"} == DEADLY_CLASSES


def test_a_hanging_collective_says_who_waited_and_who_said_nothing():
    engine = trained()
    assert engine.update(fault(101, TIMEOUT)) == []
    found = {finding.rule: finding for finding in engine.tick(START_NS + 170 * S)}
    assert set(found) == {"nccl_timeout", "run_dead"}
    assert found["nccl_timeout"].message == "NCCL timeout of ALLREDUCE after step 100: 7 ranks waited, rank 3 said nothing"
    assert found["nccl_timeout"].severity is Severity.CRITICAL and found["nccl_timeout"].is_open
    closed = engine.update(Event("attempt_start", START_NS + 300 * S, attempt=2, data={"attempt": 2}))
    assert {finding.rule for finding in closed if not finding.is_open} == {"nccl_timeout", "run_dead"}


def test_few_that_waited_blame_nobody():
    engine = trained()
    engine.update(fault(101, {**TIMEOUT, "ranks_seen_count": 2, "ranks_missing": list(range(6)), "ranks_missing_count": 6}))
    messages = [finding.message for finding in engine.tick(START_NS + 170 * S) if finding.rule == "nccl_timeout"]
    assert "6 others said nothing" in messages[0] and "rank 0" not in messages[0]


def test_memory_that_was_used_up_and_did_not_end_the_run_is_a_mark():
    engine = trained()
    engine.update(fault(101, {"class": "out_of_memory", "memory": "gpu", "rank": 12, "host": "node17"}))
    (mark,) = engine.update(Step(101, 1, START_NS + 102 * S, {"loss": 2.0}))
    assert (mark.rule, mark.severity, mark.is_open) == ("out_of_memory", Severity.INFO, False)
    assert "on node17 rank 12" in mark.message


def test_a_row_of_halvings_is_no_death_and_the_floor_is_one():
    engine = trained()
    engine.update(fault(101, {"class": "numerics", "halvings": 7}, Severity.WARNING))
    assert engine.tick(START_NS + 170 * S) == []
    engine.update(fault(171, {"class": "numerics", "halvings": 7}))
    assert [finding.rule for finding in engine.tick(START_NS + 240 * S)] == ["run_dead"]


@pytest.mark.parametrize("kind", ["xid", "io_hang", "network"])
def test_a_class_that_a_run_survives_is_no_death(kind):
    engine = trained()
    engine.update(fault(101, {"class": kind}))
    assert engine.tick(START_NS + 170 * S) == []


def test_a_broken_connection_that_processes_died_after_is_a_death():
    engine = trained()
    engine.update(fault(101, {"class": "network", "followed_by": {"process_failed": 3}}))
    (dead,) = engine.tick(START_NS + 170 * S)
    assert (dead.rule, dead.data["class"]) == ("run_dead", "network")


def test_the_dead_run_names_the_cause_once():
    engine = trained()
    engine.update(fault(101, {"class": "process_failed"}))
    (dead,) = engine.tick(START_NS + 170 * S)
    (told,) = engine.update(postmortem())
    assert told.id == dead.id and told.is_open
    cause = "CUDA out of memory on node17 rank 12 (03:04:05 UTC), 5,119 others only followed"
    assert told.message == f"the run died after step 100: {cause}; first told as: a line of the log"
    assert told.data["cause"]["rank"] == 12
    assert engine.update(postmortem()) == []


def test_a_post_mortem_that_comes_after_the_next_start_still_names_the_cause_also_after_a_restart_of_the_watch():
    engine = trained()
    engine.update(fault(101, {"class": "process_failed"}))
    (dead,) = engine.tick(START_NS + 170 * S)
    engine.update(Event("attempt_start", START_NS + 200 * S, attempt=2, data={"attempt": 2}))
    again = Engine("run")
    again.restore(json.loads(json.dumps(engine.to_state())))
    (told,) = again.update(postmortem())
    assert told.id == dead.id and not told.is_open and "CUDA out of memory" in told.message


def test_a_post_mortem_without_a_cause_or_of_another_attempt_changes_nothing():
    engine = trained()
    engine.update(fault(101, {"class": "process_failed"}))
    engine.tick(START_NS + 170 * S)
    assert engine.update(Event("postmortem", START_NS, attempt=1, data={"cause": None})) == []
    assert engine.update(Event("postmortem", START_NS, attempt=7, data=postmortem().data)) == []


def test_an_error_that_the_cause_names_is_told_by_what_it_said_of_itself():
    engine = trained()
    engine.update(fault(101, {"class": "config_error"}, text="ModuleNotFoundError: No module named 'flash_attn'"))
    engine.tick(START_NS + 170 * S)
    name = "cannot start (ModuleNotFoundError)"
    cause = {"class": "config_error", "name": name}
    (told,) = engine.update(Event("postmortem", START_NS + 171 * S, attempt=1, text=f"cause: {name}", data={"cause": cause}))
    assert told.message == f"the run died after step 100: {name}; No module named 'flash_attn'"


def test_what_the_log_said_first_is_not_said_twice():
    engine = trained()
    engine.update(fault(101, {"class": "exception"}, text="exception: FloatingPointError"))
    engine.tick(START_NS + 170 * S)
    cause = {"class": "exception", "name": "FloatingPointError"}
    (told,) = engine.update(
        Event("postmortem", START_NS + 171 * S, attempt=1, text="cause: FloatingPointError (21:00:18 UTC)", data={"cause": cause})
    )
    assert told.message == "the run died after step 100: FloatingPointError (21:00:18 UTC)"
