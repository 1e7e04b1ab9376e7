"""From the spool's counters through heartbeats to the sentences of the overview."""

from __future__ import annotations

import pandas as pd
from spool_fakes import FakeStore, steps

from collectors.base import Health, PointBuffer, run
from trainvitals.clock import ManualClock
from trainvitals.records import Point
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.rollup_driver import DirtyNotes
from trainvitals.store.sink import heartbeat_fields
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.spool_shipper import Shipper
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.process import read_control
from trainvitals.web.spool import SpoolNumbers

NOW = 1_795_000_000 * 10**9


def beat(run: str, node: str, age_s: float, **fields: float) -> Point:
    return Point("heartbeat", {"run": run, "node": node}, NOW - round(age_s * 1e9), fields)


def test_a_heartbeat_carries_depth_age_drops_and_dead_letters(tmp_path):
    clock = ManualClock()
    file = SpoolFile(tmp_path / "a.spool", clock, max_age_s=100)
    spool = Spool(file, FakeStore(), start=False)
    spool.write(steps(0, 3))
    clock.advance(150)
    spool.write(steps(3, 2))
    Shipper(file, FakeStore(refuses=lambda point: point.fields["step"] == 3)).ship_once()
    spool.write(steps(5, 7))
    clock.advance(8)
    wanted = {"spool_depth": 7, "spool_age_s": 8.0, "spool_dropped": 3, "spool_dead": 1}
    assert heartbeat_fields(spool) == heartbeat_fields(DirtyNotes(spool, clock)) == wanted
    spool.close()


def test_the_overview_says_what_waits_what_was_dropped_and_what_was_refused(tmp_path):
    store = SqliteStore(tmp_path / "t.db")
    store.write(
        [
            beat("r", "run-host", 1, ranks=1, lost_records=0, spool_depth=1_000, spool_age_s=90.0, spool_dropped=5, spool_dead=0),
            beat("", "n1", 5, spool_depth=234, spool_age_s=3_700.0, spool_dropped=0, spool_dead=2),
            beat("", "gone", 3 * 86_400, spool_depth=9, spool_age_s=9.0, spool_dropped=9, spool_dead=9),
        ]
    )
    chosen = RunSettings(name="r", dir=str(tmp_path / "run"))
    view = run_view(Settings(store="", runs=(chosen,)), store, chosen, read_control(chosen, NOW), NOW)
    text = "\n".join(view.not_watched)
    store.close()
    assert "1,234 points wait in a spool for the store, the oldest for 1 h" in text
    assert "5 points dropped by a spool" in text
    assert "2 points refused by the store" in text
    assert view.watch_seen_ns == NOW - 10**9


def test_a_spool_that_keeps_up_is_no_news():
    frame = pd.DataFrame({"spool_depth": [12], "spool_age_s": [0.4], "spool_dropped": [0], "spool_dead": [0]})
    assert SpoolNumbers.of(frame, pd.DataFrame()).sentences() == ()


def test_a_collector_sends_the_numbers_of_its_spool_with_each_poll():
    class Silent:
        name = "silent"

        def collect(self):
            return []

        def close(self):
            pass

    store, health = FakeStore(), Health()
    numbers = [beat("", "n1", 0, spool_depth=1, spool_age_s=0.0, spool_dropped=0, spool_dead=0)]
    run(Silent(), PointBuffer(store, health), health, ManualClock(), 1.0, lambda _: True, "n1", also=lambda: numbers)
    assert store.requests == [numbers]


def test_one_point_is_one_point():
    said = SpoolNumbers(depth=1, age_s=90.0, dropped=1, dead=1).sentences()
    assert [line.split(" for the store")[0].split(" by ")[0] for line in said] == [
        "1 point waits in a spool", "1 point dropped", "1 point refused",
    ]  # fmt: skip
