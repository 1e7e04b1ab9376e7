"""Buckets of the throughput rule: short while a run is young, ``bucket_s`` long from then on."""

from __future__ import annotations

import json
import random

import pytest
from made_up import curve, feed, find, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Severity, Step


def _run(points: int, seconds: float, *, slow_from: int, slow_until: int, share: float, seed: int = 1) -> list[Step]:
    def change(k: int, values: dict[str, float]) -> None:
        values["tokens_per_s"] = 1e6 * (1 + rng.gauss(0, 0.01)) * (1 - share if slow_from <= k < slow_until else 1.0)

    rng = random.Random(seed)
    return curve(points, seconds=seconds, keep=("tokens_per_s",), change=change)


@pytest.mark.parametrize(("points", "seconds"), [(5000, 0.15), (3500, 0.5), (2500, 1.0)])
@pytest.mark.parametrize("place", [0.4, 0.6, 0.8])
def test_five_percent_less_is_found_in_a_run_of_some_minutes(points: int, seconds: float, place: float) -> None:
    start = round(points * place)
    (told,) = of_rule(find(_run(points, seconds, slow_from=start, slow_until=points, share=0.05)), "throughput_drop")
    assert told.severity is Severity.WARNING
    assert start - 50 <= told.first_step <= told.detected_step


def test_a_long_run_is_not_told_of_ten_slow_seconds() -> None:
    """Thirty buckets of a young run, one of an old run."""
    assert of_rule(find(_run(40_000, 0.1, slow_from=39_000, slow_until=39_100, share=0.4)), "throughput_drop") == []


def test_steps_longer_than_a_bucket_are_a_bucket_each_from_the_first_on() -> None:
    (told,) = of_rule(find(_run(400, 30.0, slow_from=300, slow_until=400, share=0.12)), "throughput_drop")
    assert 300 < told.detected_step <= 310


@pytest.mark.parametrize("cut", [30, 500, 1900, 3100])
def test_buckets_grow_on_after_a_restart_as_if_there_had_been_none(cut: int) -> None:
    steps = _run(4000, 0.3, slow_from=3000, slow_until=4000, share=0.06)
    whole = Engine("run")
    expected = feed(whole, steps)
    first, second = Engine("run"), Engine("run")
    found = feed(first, steps[:cut])
    second.restore(json.loads(json.dumps(first.to_state())))
    found += feed(second, steps[cut:])
    assert last_states(found) == last_states(expected) != []
    assert second.to_state() == whole.to_state()


def test_a_state_of_before_buckets_grew_keeps_buckets_of_full_length() -> None:
    steps = _run(5000, 0.1, slow_from=2500, slow_until=2560, share=0.4)
    engine = Engine("run")
    feed(engine, steps[:2000])
    state = engine.to_state()
    del state["_throughput"]["_past_points"]
    engine = Engine("run")
    engine.restore(state)
    assert of_rule(last_states(feed(engine, steps[2000:])), "throughput_drop") == []


def test_a_drop_that_deepens_says_how_deep_it_was_when_it_is_over() -> None:
    """What is told when it opens is the first clear sight of it."""

    def change(k: int, values: dict[str, float]) -> None:
        values["tokens_per_s"] = 1e6 * (0.71 if 420 <= k < 500 else 0.85 if 400 <= k < 500 else 1.0)

    (told,) = of_rule(find(curve(700, keep=("tokens_per_s",), change=change)), "throughput_drop")
    assert told.message.startswith("throughput 15 % below usual") and ", 29 % at the deepest; back to" in told.message
    assert told.data["deepest_share"] == 0.29
