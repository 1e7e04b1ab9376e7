"""An old log that is copied beside the running one: every page tells of what runs, as detection does. Through a real watchdog and store."""

from __future__ import annotations

import json

import pytest
from test_old_log_beside_the_new import WEEK_S, Logs, line, loss_of

from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import Event, Step
from trainvitals.store.encode import event_point, step_point
from trainvitals.watch.alert_facts import AlertFacts
from trainvitals.watch.incident_files import IncidentFiles
from trainvitals.web.assemble import run_view
from trainvitals.web.doubt import stored_doubt
from trainvitals.web.draw import draw
from trainvitals.web.incident import incident_story
from trainvitals.web.incident_then import is_past
from trainvitals.web.present import tiles
from trainvitals.web.process import read_control
from trainvitals.web.view import CurveQuery, Snapshot

S = 10**9


class Seen(Logs):
    """With what the poller makes of it."""

    def view(self):
        now_ns = self.clock.time_ns()
        run = self.settings.runs[0]
        return run_view(self.settings, self.store, run, read_control(run, now_ns), now_ns)

    def copy_old(self, count=160):
        then_ns = self.clock.time_ns() - round(WEEK_S * S)
        lines = [line(then_ns + n * S, n * 10, loss_of(n)) for n in range(1, count)]
        (self.logs / "last_week.log").write_text("".join(lines))


@pytest.fixture
def place(tmp_path):
    made = Seen(tmp_path)
    made.begin()
    made.live(150)
    yield made
    made.store.close()
    made.outbox.close()


def step_tile(view):
    return next(one for one in tiles(Snapshot(view.taken_at_ns, (view,)), view, view.taken_at_ns) if one["label"] == "Step")


def test_the_running_attempt_stays_current_and_whole(place):
    before = place.view()
    place.copy_old()
    place.live(3)
    view = place.view()
    assert [one.number for one in view.attempts] == [2, 1]
    assert view.attempt.number == 1 and view.attempt.ended_ns is None and view.attempt.superseded_from is None
    assert view.verdict.word is before.verdict.word and view.verdict.word is not VerdictWord.STOPPED
    assert view.last_step == place.step_now and step_tile(view)["context"].endswith("attempt 1")
    old = view.attempts[0]
    assert old.ended_ns == old.newest_ns < view.attempt.started_ns


@pytest.mark.parametrize("start", [None, 1])
def test_its_curve_is_not_drawn_as_run_again(place, start):
    place.copy_old()
    place.live(3)
    view = place.view()
    figure = json.loads(draw(place.store, view, CurveQuery(view.name, ("loss",), start=start), place.clock.time_ns()))
    again = [trace["name"] for trace in figure["data"] if "run again later" in trace.get("name", "")]
    assert again and all("attempt 2" in name for name in again)


def test_a_real_restart_is_current_with_its_first_step(place):
    place.copy_old()
    place.live(3)
    place.clock.advance(30)
    (place.logs / "again.log").write_text(line(place.clock.time_ns(), 1_200, 2.0))
    place.turns()
    view = place.view()
    assert view.attempt.number == 3 and view.attempt.first_step == 1_200
    assert [one.number for one in view.attempts if one.ended_ns is None] == [3]
    assert view.attempts[-2].number == 1 and view.attempts[-2].superseded_from == 1_200


def test_a_restart_is_current_before_its_first_step(place):
    place.copy_old()
    place.live(3)
    now_ns = place.clock.time_ns() + 20 * S
    place.store.write([event_point(place.settings.runs[0].name, Event("attempt_start", now_ns, attempt=3, id="s3", data={}))])
    place.clock.advance(21)
    view = place.view()
    assert view.attempt.number == 3 and view.attempt.last_step is None and view.last_step == place.step_now


def test_an_open_incident_is_told_by_the_values_of_now(place):
    place.live(20, loss=lambda step: 9.0)
    place.copy_old()
    place.live(20, loss=lambda step: 9.0)
    view = place.view()
    sick = next(one for one in view.incidents if one.is_open and one.family == "loss")
    assert view.attempt.number == 1 and sick.id not in view.thens
    assert not is_past(sick, view.findings, view.attempt.number)
    assert all(finding.attempt == 1 for finding in incident_story(view, (), sick).findings)
    assert stored_doubt(place.store, view.name, "/c/none", place.clock.time_ns()) == ""


def test_a_message_about_it_is_of_the_start_that_runs(place):
    facts = AlertFacts(place.settings, place.settings.runs[0])
    now_ns = place.clock.time_ns()
    facts.take(Step(10, 1, now_ns, {"loss": 2.0}))
    facts.take(Step(10, 2, now_ns - round(WEEK_S * S), {"loss": 2.0}))
    again = AlertFacts(place.settings, place.settings.runs[0])
    again.restore(json.loads(json.dumps(facts.to_state())))
    assert [one._last_of(numbers) for one in (facts, again) for numbers in ({1, 2}, {2}, {2, 3}, ())] == [1, 2, 3, None] * 2


def test_the_page_of_an_incident_goes_on_with_what_runs(place):
    kept = IncidentFiles(place.settings, place.settings.runs[0])
    now_ns = place.clock.time_ns()
    kept.take(Step(10, 1, now_ns, {"loss": 2.0}))
    kept.take(Step(10, 2, now_ns - round(WEEK_S * S), {"loss": 2.0}))
    assert kept._running.number == 1
    kept.take(Step(5, 3, now_ns + S, {"loss": 2.0}))
    assert kept._running.number == 3


def test_many_old_logs_do_not_hide_the_running_start_behind_their_points(place):
    """More points than are read at once are newer than those of the old ones, whose times only the store knows."""
    name, now_ns = place.settings.runs[0].name, place.clock.time_ns()
    points = []
    for number in range(2, 14):
        then_ns = now_ns - number * 86_400 * S
        points.append(event_point(name, Event("attempt_start", then_ns, attempt=number, id=f"s{number}", data={"first_step": 1})))
        points += [step_point(name, Step(n, number, then_ns + n * S, {"loss": 2.0}), then_ns + n * S + n) for n in range(1, 4)]
    place.store.write(points)
    place.live(300)
    view = place.view()
    assert view.attempt.number == 1 and view.attempts[-2].number == 2 and view.attempts[0].number == 13
