"""A death that a live supervisor mends is told to nobody; one that it does not mend is. A pause is no stall."""

from __future__ import annotations

import pytest
from test_watchdog import Bench

from trainvitals.control import supervised
from trainvitals.control.requests import Watcher
from trainvitals.records import Event


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    supervised.make_directories(made.dir)
    yield made
    made.store.close()


def alive(bench):
    supervised.announce(bench.dir, Watcher("r", (supervised.ROLLBACK,), "host", 1))


def told(bench):
    return [sentence for sentence in bench.said if sentence.startswith("incident ")]


def die(bench, pid):
    bench.append(
        {
            "type": "event",
            "kind": "attempt_end",
            "time_ns": bench.clock.time_ns(),
            "text": "",
            "data": {"reason": "killed", "exit_code": -9},
        }
    )
    bench.watchdog.turn()


def run_and_die(bench, pid=1):
    bench.header(pid=pid)
    bench.train(0, 100)
    bench.watchdog.turn()
    die(bench, pid)


def test_a_restart_that_makes_steps_again_is_told_to_nobody(bench):
    alive(bench)
    run_and_die(bench)
    assert bench.events("incident")[0].data["severity"] == "critical", "it is stored all the same"
    bench.clock.advance(20)
    bench.header(pid=2)
    bench.train(90, 30)
    bench.watchdog.turn()
    alive(bench)
    for _ in range(5):
        bench.clock.advance(60)
        bench.train(120, 60)
        bench.watchdog.turn()
    assert not any("opened" in sentence for sentence in told(bench))
    assert sum("recovered" in sentence for sentence in told(bench)) == 1


def test_a_watchdog_that_is_killed_meanwhile_tells_it_to_nobody_either(bench):
    alive(bench)
    run_and_die(bench)
    bench.start()
    bench.watchdog.turn()
    bench.start()
    bench.clock.advance(20)
    bench.header(pid=2)
    bench.train(90, 30)
    bench.watchdog.turn()
    bench.start()
    bench.train(120, 300)
    bench.watchdog.turn()
    bench.clock.advance(1)
    bench.watchdog.turn()
    assert not any("opened" in sentence for sentence in told(bench))


def test_without_a_supervisor_or_after_its_time_a_death_is_told(bench):
    run_and_die(bench)
    assert any("opened" in sentence for sentence in told(bench))


def test_a_death_that_is_not_mended_in_ten_minutes_is_told_once(bench):
    alive(bench)
    run_and_die(bench)
    for _ in range(25):
        alive(bench)
        bench.clock.advance(30)
        bench.watchdog.turn()
    assert [sentence.split(":")[0] for sentence in told(bench)] == ["incident opened"]


def test_a_supervisor_that_gives_up_is_told_at_once(bench):
    alive(bench)
    run_and_die(bench)
    assert told(bench) == []
    from trainvitals.supervisor.events import EventFile

    EventFile(str(bench.dir), bench.clock).tell(
        "held", "no more", severity="critical", rule="restart_loop", reason="3 deaths in a row"
    )
    bench.clock.advance(5)
    bench.watchdog.turn()
    assert any("opened" in sentence for sentence in told(bench))


def test_a_pause_of_hours_is_no_stall_and_opens_nothing(bench):
    bench.header()
    bench.train(0, 200)
    bench.watchdog.turn()
    paused = {
        "type": "event",
        "kind": "phase",
        "time_ns": bench.clock.time_ns(),
        "step": 199,
        "text": "",
        "data": {"phase": "paused", "state": "begin"},
    }
    bench.append(paused)
    bench.watchdog.turn()
    for _ in range(20):
        bench.clock.advance(900)
        bench.watchdog.turn()
    assert told(bench) == [] and bench.events("incident") == []
    assert isinstance(bench.events("phase")[0], Event)


def says(bench, state, **data):
    from trainvitals.supervisor.events import EventFile

    EventFile(str(bench.dir), bench.clock).tell(state, state, **data)


def wait(bench, seconds):
    for _ in range(0, seconds, 30):
        alive(bench)
        bench.clock.advance(30)
        bench.watchdog.turn()


USUAL = {"start": 60.0, "load": 900.0, "first_step": 60.0}


def test_a_restart_of_half_an_hour_that_goes_on_by_the_supervisors_events_is_told_to_nobody_also_over_kills(bench):
    alive(bench)
    says(bench, "started", usual_s=USUAL, hang_s=1800.0)
    run_and_die(bench)
    says(bench, "ended", attempt=1)
    wait(bench, 120)
    says(bench, "started", usual_s=USUAL, hang_s=1800.0)
    wait(bench, 90)
    says(bench, "phase", phase="start")
    wait(bench, 900)
    bench.start()
    wait(bench, 600)
    assert told(bench) == []
    says(bench, "phase", phase="load")
    bench.header(pid=2)
    bench.train(90, 600)
    bench.watchdog.turn()
    assert [sentence.split(":")[0] for sentence in told(bench)] in ([], ["incident recovered"])


def test_a_hang_is_told_at_the_stalls_own_deadline_also_with_a_supervisor_that_ends_it_later(bench):
    alive(bench)
    says(bench, "started", usual_s=USUAL, hang_s=1800.0)
    bench.header(pid=1)
    bench.train(0, 300)
    wait(bench, 90)
    assert [sentence.split(":")[0] for sentence in told(bench)] == ["incident opened"]
    wait(bench, 90)
    assert [sentence.split(":")[0] for sentence in told(bench)] == ["incident opened", "incident escalated"]


def test_a_hang_is_left_to_a_supervisor_that_is_about_to_end_it(bench):
    alive(bench)
    says(bench, "started", usual_s=USUAL, hang_s=120.0)
    bench.header(pid=1)
    bench.train(0, 300)
    wait(bench, 150)
    assert bench.events("incident") and told(bench) == []
    wait(bench, 90)
    assert [sentence.split(":")[0] for sentence in told(bench)] == ["incident opened"]
