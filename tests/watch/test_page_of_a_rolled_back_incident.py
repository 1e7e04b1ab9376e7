"""The page of an incident tells what was seen then, also when a later start has gone over the same steps and all is well."""

from __future__ import annotations

import json
import random

import pytest
from test_watchdog import Bench


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
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


def first_page(bench):
    (found,) = [path for path in (bench.dir / "incidents").glob("*.json") if path.name != "index.json"]
    return found


def found_in(page):
    return [(check["layer"], check["title"]) for check in page["checks"] if check["mark"] == "!"]


def test_after_a_roll_back_the_page_still_shows_the_learning_rate_and_the_curve_of_that_night(bench):
    bench.header(pid=1)
    train(bench, 0, 400, 0.001, lambda step: 2.0)
    train(bench, 400, 60, 0.157, lambda step: 2.0 + 0.05 * (step - 400))
    path = first_page(bench)
    before = json.loads(path.read_text())
    assert any(layer == "code" and "Learning rate" in title for layer, title in found_in(before))
    bench.header(pid=2)
    train(bench, 300, 400, 0.001, lambda step: 2.0)
    for _ in range(10):
        bench.clock.advance(31)
        bench.watchdog.turn()
    after = json.loads(path.read_text())
    assert after["incident"]["closed_at_ns"] is not None
    assert found_in(after) == found_in(before)
    values = {tuple(point) for curve in before["curves"] for point in curve["points"] if curve["name"] == "lr"}
    assert values and values <= {tuple(point) for curve in after["curves"] for point in curve["points"] if curve["name"] == "lr"}
