"""An event that is read again has the id that it had: after a silence, in another program, in a file read by itself."""

from __future__ import annotations

import json

from trainvitals.logs.parser import Parser
from trainvitals.records import Event


def row(**values):
    return (json.dumps(values) + "\n").encode()


def evaluations(parser, chunks, *, is_silent_between=False):
    records = []
    for chunk in chunks:
        records += parser.feed(chunk)
        if is_silent_between:
            records += parser.idle()
    records += parser.finish()
    return [(event.step, event.id) for event in records if isinstance(event, Event) and event.kind == "message"]


TWO_EVALUATIONS = [
    *(row(step=step, loss=3.0 - step / 10, lr=1e-4) for step in (1, 2)),
    row(step=2, **{"val/web_loss": 2.0}),
    row(step=2, **{"val/code_loss": 2.1}),
    row(step=3, loss=2.7, lr=1e-4),
    row(step=3, **{"val/web_loss": 1.9}),
    *(row(step=step, loss=3.0 - step / 10, lr=1e-4) for step in (4, 5)),
]


def test_what_a_silence_tells_in_two_goes_renames_nothing_behind_it():
    at_once = evaluations(Parser(), TWO_EVALUATIONS)
    in_two_goes = evaluations(Parser(), TWO_EVALUATIONS, is_silent_between=True)
    assert [step for step, _ in at_once] == [2, 3] and [step for step, _ in in_two_goes] == [2, 2, 3]
    assert set(at_once) < set(in_two_goes) and len(set(in_two_goes)) == 3


def test_the_same_step_of_two_attempts_is_evaluated_twice():
    def attempt(loss):
        return [row(step=step, loss=loss, lr=1e-4) for step in range(1, 30)] + [row(step=29, **{"val/loss": loss})]

    found = evaluations(Parser(), [*attempt(3.0), *attempt(2.0), row(step=30, loss=1.0, lr=1e-4)])
    assert [step for step, _ in found] == [29, 29] and len(set(found)) == 2


def test_events_of_a_rotated_file_have_the_ids_that_they_have_in_it_alone():
    older = [row(step=step, loss=3.0, lr=1e-4) for step in range(1, 9)] + [
        row(step=8, **{"val/loss": 2.5}),
        row(step=9, loss=2.5),
    ]
    newer = [row(step=step, loss=2.0, lr=1e-4) for step in range(10, 19)] + [
        row(step=18, **{"val/loss": 1.5}),
        row(step=19, loss=2),
    ]
    series = Parser()
    for chunk in older:
        series.feed(chunk)
    series.idle()
    series.next_file()
    assert evaluations(series, newer) == evaluations(Parser(), newer)
