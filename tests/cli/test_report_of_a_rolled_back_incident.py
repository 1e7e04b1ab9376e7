"""`report` and the incidents page tell what was seen then, also when a later start has gone over the same steps and all is well."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "watch"))

from test_watchdog import Bench

from trainvitals.__main__ import main
from trainvitals.web.assemble import run_view
from trainvitals.web.draw import draw
from trainvitals.web.incident import incident_story
from trainvitals.web.incident_then import ThenReader
from trainvitals.web.process import read_control
from trainvitals.web.view import CurveQuery
from trainvitals.web.window import attempt

ONSET = 400
LAST = 459


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.config = tmp_path / "trainvitals.toml"
    made.config.write_text(f'store = "sqlite://{tmp_path}/store.db"\n[[runs]]\nname = "r"\ndir = "{made.dir}"\n')
    made.out = tmp_path / "night.json"
    yield made
    made.store.close()


def train(bench, first, count, lr, loss):
    noise = random.Random(first)
    for step in range(first, first + count):
        bench.clock.advance(1)
        bench.step(step, loss=loss(step) + noise.gauss(0, 0.01), lr=lr, grad_norm=1.0)
        if step % 20 == 0:
            bench.watchdog.turn()
    bench.watchdog.turn()


def data(bench, step, sample):
    bench.append(
        {"type": "event", "kind": "data", "step": step, "time_ns": bench.clock.time_ns(), "data": {"sample_first": sample}}
    )
    bench.watchdog.turn()


def sick_night(bench):
    bench.header(pid=1)
    train(bench, 0, ONSET, 0.001, lambda step: 2.0)
    data(bench, ONSET - 1, 1_111)
    train(bench, ONSET, LAST + 1 - ONSET, 0.157, lambda step: 2.0 + 0.05 * (step - ONSET))


def healthy_after_going_back(bench):
    bench.header(pid=2)
    train(bench, 300, 95, 0.001, lambda step: 2.0)
    data(bench, 395, 9_999)
    train(bench, 395, 300, 0.001, lambda step: 2.0)
    for _ in range(10):
        bench.clock.advance(31)
        bench.watchdog.turn()


def report(bench, identifier):
    assert main(["report", "r", "--incident", identifier, "-o", str(bench.out), "--config", str(bench.config)]) == 0
    return json.loads(bench.out.read_text())


def view(bench, reader=None):
    run = bench.settings.runs[0]
    now_ns = bench.clock.time_ns()
    return run_view(bench.settings, bench.store, run, read_control(run, now_ns), now_ns, thens=reader)


def loss_incident(bench):
    (found,) = {event.data["id"] for event in bench.events("incident") if event.data["family"] == "loss"}
    return found


def in_code(checks):
    (found,) = [check for check in checks if check["layer"] == "code"]
    return found["mark"], found["title"]


def test_the_report_of_a_rolled_back_incident_names_the_cause_of_the_night_and_draws_its_curves(bench):
    sick_night(bench)
    identifier = loss_incident(bench)
    before = report(bench, identifier)
    assert in_code(before["checks"]) == ("!", "Learning rate 157× what it was")
    healthy_after_going_back(bench)
    after = report(bench, identifier)
    assert after["incident"]["closed_at_ns"] is not None
    assert in_code(after["checks"]) == in_code(before["checks"])
    assert "at its worst" in next(check["evidence"] for check in after["checks"] if check["layer"] == "code")
    assert "code" in after["suspect"] and after["action"].startswith("Begin with the code.")
    curves = {curve["name"]: dict(map(tuple, curve["points"])) for curve in after["curves"]}
    assert {curves["lr"][step] for step in range(ONSET, LAST + 1)} == {0.157}
    assert curves["loss"][LAST] > 4 and curves["lr"][LAST + 50] == 0.001
    (of_data,) = [check for check in after["checks"] if check["layer"] == "data"]
    assert "1,111" in of_data["evidence"] and "9,999" not in of_data["evidence"]


def test_the_incidents_page_says_so_too_and_reads_what_is_over_once(bench):
    sick_night(bench)
    identifier = loss_incident(bench)
    healthy_after_going_back(bench)
    reader = ThenReader()
    for _ in range(2):
        run = view(bench, reader)
        (incident,) = [one for one in run.incidents if one.id == identifier]
        story = incident_story(run, (), incident)
        code = next(check for check in story.checks if check.layer == "code")
        assert (code.mark, code.title) == ("!", "Learning rate 157× what it was")
        assert story.action.startswith("Begin with the code.")
        bench.store.raw = lambda *a, _raw=bench.store.raw, **k: (
            pytest.fail("read again") if a[1] == ["step", "lr", "grad_norm"] else _raw(*a, **k)
        )


def test_an_incident_is_judged_by_its_own_start_while_the_next_one_has_not_reached_its_steps(bench):
    sick_night(bench)
    identifier = loss_incident(bench)
    bench.header(pid=2)
    train(bench, 300, 3, 0.001, lambda step: 2.0)
    run = view(bench)
    story = incident_story(run, (), next(one for one in run.incidents if one.id == identifier))
    assert next(check.title for check in story.checks if check.layer == "code") == "Learning rate 157× what it was"


def test_without_its_findings_nothing_is_claimed_of_an_incident(bench):
    sick_night(bench)
    healthy_after_going_back(bench)
    run = view(bench)
    reader = ThenReader()
    found = reader.of(bench.store, "r", run.incidents, (), 2)
    assert all(not then.metrics for then in found.values())


def test_the_data_position_of_an_older_incident_is_known_when_newer_ones_have_filled_the_list(bench):
    sick_night(bench)
    identifier = loss_incident(bench)
    healthy_after_going_back(bench)
    run = view(bench)
    run = replace(run, events=tuple(event for event in run.events if event.kind != "data" or event.attempt == 2))
    story = incident_story(run, (), next(one for one in run.incidents if one.id == identifier))
    (of_data,) = [check for check in story.checks if check.layer == "data"]
    assert "1,111" in of_data.evidence


def test_the_curves_of_an_incident_show_its_own_start_and_not_the_steps_made_again(bench):
    sick_night(bench)
    healthy_after_going_back(bench)
    run, query = view(bench), CurveQuery("r", ("loss", "lr"), start=350, end=500)

    def names(query):
        return [trace.get("name", "") for trace in json.loads(draw(bench.store, run, query, bench.clock.time_ns()))["data"]]

    assert any("run again later" in name for name in names(query))
    shown = names(replace(query, until_attempt=1))
    assert shown and not any("run again later" in name for name in shown)


@pytest.mark.parametrize(
    ("text", "number"), [("2", 2), ("", None), (None, None), ("x", None), ("-1", None), ("9" * 30, None), ("\u0662", None)]
)
def test_an_address_names_a_start_by_its_number(text, number):
    assert attempt(text) == number
