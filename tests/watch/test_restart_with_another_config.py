"""The supervisor starts the trainer again with other settings: what changed stands in an event, beside what the supervisor said."""

from __future__ import annotations

import json

import pytest
from test_watchdog import Bench

RULE = "resume_config_changed"


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()


def supervisor(bench, state, **data):
    line = {
        "type": "event", "kind": "supervisor", "time_ns": bench.clock.time_ns(), "step": data.get("step"), "severity": "info",
        "text": f"attempt {data.get('attempt')} {state}", "data": {"state": state, **data},
    }  # fmt: skip
    with (bench.dir / "supervisor.events.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def start(bench, attempt, config, first, count):
    supervisor(bench, "started", attempt=attempt, step=first, resume_from=f"/ckpt/{first}" if first else None)
    bench.header(pid=attempt)
    told = {"section": "config", "values": config, "part": 0, "parts": 1}
    bench.append({"type": "event", "kind": "metadata", "time_ns": bench.clock.time_ns(), "text": "", "data": told})
    bench.train(first, count)
    bench.watchdog.turn()


def test_a_restart_by_the_supervisor_with_another_configuration_is_found_and_told_key_by_key(bench):
    start(bench, 1, {"lr": 3e-4, "data_path": "/data/a", "seed": 1}, 0, 100)
    supervisor(bench, "ended", attempt=1, kind="killed")
    start(bench, 2, {"lr": 3e-4, "data_path": "/data/a", "seed": 1}, 90, 40)
    assert not [event for event in bench.events("finding") if event.data["rule"] == RULE], "the same settings are no news"
    supervisor(bench, "ended", attempt=2, kind="killed")
    start(bench, 3, {"lr": 1e-4, "data_path": "/data/b", "seed": 1}, 120, 40)
    (found,) = [event for event in bench.events("finding") if event.data["rule"] == RULE]
    assert found.severity.value == "warning" and found.attempt == 3
    assert "lr 3e-4 → 1e-4" in found.text and "/data/b" in found.text and "attempt 2" in found.text
    assert found.data["data"]["compared_with"] == 2
    (incident,) = [event for event in bench.events("incident") if RULE in event.data["rules"]]
    assert incident.data["severity"] == "warning"
    assert [event.data["state"] for event in bench.events("supervisor")].count("started") == 3
