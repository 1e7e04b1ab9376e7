"""Whatever numbers a run logs, an incident's page is drawn; and a page that cannot be drawn costs that page, not the watchdog."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from test_watchdog import Bench

from trainvitals.incidents.static_page_curve import Curve, svg
from trainvitals.watch import incident_files


def go_wrong(bench):
    for step in range(300, 310):
        bench.clock.advance(1)
        bench.step(step, loss=math.nan)
    bench.watchdog.turn()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats() | st.sampled_from([0.0, 5e-324, -5e-324, 1e-308, 1.79e308, -1.79e308]), min_size=1, max_size=12))
def test_any_floats_are_a_curve(values):
    points = tuple((step, value) for step, value in enumerate(values) if math.isfinite(value))
    drawn = svg(Curve("loss", points, (3,)), 1, 2)
    assert "nan" not in drawn and "inf" not in drawn
    assert bool(drawn) == bool(points)


def test_numbers_that_are_almost_nothing_end_no_watchdog(tmp_path):
    bench = Bench(tmp_path)
    bench.header()
    for step in range(300):
        bench.clock.advance(1)
        bench.step(step, loss=5e-324 if step % 2 else 0.0)
    bench.watchdog.turn()
    go_wrong(bench)
    assert any(said.startswith("incident opened") for said in bench.said)
    bench.store.close()


def test_a_page_that_cannot_be_drawn_is_said_and_people_are_told_all_the_same(tmp_path, monkeypatch):
    def broken(page):
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(incident_files, "to_html", broken)
    bench = Bench(tmp_path)
    bench.header()
    bench.train(0, 300)
    bench.watchdog.turn()
    go_wrong(bench)
    bench.watchdog.turn()
    assert any(said.startswith("incident opened") for said in bench.said)
    assert any("could not be written (ZeroDivisionError" in said for said in bench.said)
    bench.store.close()
