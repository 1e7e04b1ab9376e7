"""The tables of docs/detection.md are those of the code, and every rule has its rows."""

from __future__ import annotations

import math
from pathlib import Path

from made_up import at, curve, feed

from trainvitals.detect.engine import Engine
from trainvitals.detect.rules import FOUND_BY_WATCH, RULES, with_tables
from trainvitals.detect.tunables import TUNABLES, numbers_of
from trainvitals.settings import parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "detection.md"


def test_the_tables_in_the_documentation_equal_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run: python -m trainvitals.detect.rules"


def test_every_rule_has_a_severity_row_and_numbers():
    rules = set(Engine().rules)
    assert set(RULES) == rules | FOUND_BY_WATCH
    # The numbers of these are [breaker] and [supervisor].
    assert set(TUNABLES) == rules - {"breaker_trip", "breaker_alert", "restart_failed", "restart_loop"}


def test_families_are_those_of_the_detectors():
    families = {rule: detector.family for detector in Engine()._detectors for rule in detector.rules}
    assert {name: rule.family for name, rule in RULES.items() if name not in FOUND_BY_WATCH} == families


def test_every_number_can_be_set_in_the_settings_and_reaches_the_rule():
    raw = {rule: dict.fromkeys(numbers, 7) for rule, numbers in TUNABLES.items()}
    tuned = parse({"detect": raw}).detect
    for rule in TUNABLES:
        assert set(numbers_of(rule, tuned).values()) == {7.0}
    Engine("run", tuned)


def test_every_number_has_a_unit_and_a_meaning_and_zero_breaks_nothing():
    for numbers in TUNABLES.values():
        assert all(number.unit and number.help for number in numbers.values())

    def change(k: int, values: dict[str, float]) -> None:
        if k % 100 > 60:
            values.update(loss=9.0 if k % 200 < 100 else math.nan, grad_norm=50.0, tokens_per_s=10.0)

    for value in (0.0, 0.5, 3.0, 1e9):
        engine = Engine("run", {rule: dict.fromkeys(numbers, value) for rule, numbers in TUNABLES.items()})
        feed(engine, curve(400, change=change))
        feed(engine, curve(100, attempt=2))
        engine.tick(at(10**6))
        engine.finish()
