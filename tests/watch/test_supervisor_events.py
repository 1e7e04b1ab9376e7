"""The supervisor's events are stored by the watchdog, once; a trainer cannot speak in its name."""

from __future__ import annotations

from test_watchdog import Bench

from trainvitals.clock import ManualClock
from trainvitals.supervisor.events import EventFile


def test_what_the_supervisor_did_is_stored_once_over_restarts_of_the_watchdog(tmp_path):
    bench = Bench(tmp_path)
    bench.header()
    bench.step(1, loss=3.0)
    file = EventFile(str(bench.dir), bench.clock)
    bench.watchdog.turn()
    file.tell("started", "attempt 1 started", attempt=1)
    bench.watchdog.turn()
    bench.start(bench.store)
    bench.clock.advance(1)
    file.tell("ended", "attempt 1 ended: killed by SIGKILL", severity="warning", step=1, kind="killed")
    bench.watchdog.turn()
    bench.watchdog.turn()
    stored = bench.events("supervisor")
    assert [(event.data["state"], event.source, event.attempt) for event in stored] == [
        ("started", "supervisor", 1), ("ended", "supervisor", 1),
    ]  # fmt: skip
    assert stored[1].text == "attempt 1 ended: killed by SIGKILL"
    bench.store.close()


def test_a_trainer_that_speaks_in_its_name_wrote_a_message(tmp_path):
    bench = Bench(tmp_path)
    bench.header()
    bench.append(
        {"type": "event", "kind": "supervisor", "time_ns": bench.clock.time_ns(), "text": "held", "data": {"state": "held"}}
    )
    bench.watchdog.turn()
    assert bench.events("supervisor") == []
    assert [event.data["said_kind"] for event in bench.events("message")] == ["supervisor"]
    bench.store.close()


def test_an_event_that_a_full_disk_took_is_counted_in_the_next(tmp_path):
    file = EventFile(str(tmp_path / "not there"), ManualClock())
    file.tell("started", "one")
    file.tell("started", "two")
    assert file.lost == 2
    (tmp_path / "not there").mkdir()
    file.tell("started", "three")
    assert '"lost_events":2' in (tmp_path / "not there" / "supervisor.events.jsonl").read_text()
    assert file.lost == 0
