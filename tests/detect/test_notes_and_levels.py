"""After a note the level that the run came to is usual, and nothing that it passed on the way there."""

from __future__ import annotations

import random

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Step

SECOND_NS = 10**9


def step(number: int, loss: float, grad_norm: float) -> Step:
    return Step(number, time_ns=number * SECOND_NS, values={"loss": loss, "grad_norm": grad_norm}, attempt=1)


def run(note: Event, note_at: int, ramp: range, last: int, by: float = 6.0) -> list[Finding]:
    """Loss 2 and grad norm 1 that rise by ``by`` and five sixths of it over ``ramp`` and stay."""
    noise, engine, found = random.Random(1), Engine("run"), []
    for number in range(1, last + 1):
        share = min(1.0, max(0.0, (number - ramp.start) / len(ramp)))
        found += engine.update(step(number, 2 + by * share + noise.gauss(0, 0.02), 1 + by * 5 / 6 * share + noise.gauss(0, 0.02)))
        if number == note_at:
            found += engine.update(note)
    newest = {one.id: one for one in found}
    return [one for one in newest.values() if one.severity.rank > 0]


def note(at: int) -> Event:
    return Event("annotation", at * SECOND_NS, step=at, data={"change": "data_mix"})


def test_a_ramp_under_a_note_is_told_neither_then_nor_when_the_note_ends() -> None:
    assert run(note(800), 800, range(800, 920), 2000, by=0.18) == []


def test_a_note_after_the_fact_ends_the_grad_norms_finding_too_and_says_so() -> None:
    found = [one for one in run(note(800), 900, range(800, 802), 1500) if one.family != "breaker"]
    assert found and all(not one.is_open and one.data["is_expected"] for one in found)
    assert {"loss_spike", "grad_norm_spike"} <= {one.rule for one in found}
    assert all(one.message.endswith("; expected, says a note") for one in found)
