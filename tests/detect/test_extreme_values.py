"""Values at the edge of what a float can hold."""

from __future__ import annotations

import json
from dataclasses import asdict

from trainvitals.detect.engine import Engine
from trainvitals.records import Step


def test_a_ratio_that_overflows_is_null_in_the_finding_and_never_infinity():
    engine = Engine(
        "run",
        {
            "grad_norm_spike": {"min_points": 3, "warmup_points": 4, "window": 8},
            "loss_spike": {"min_points": 3, "warmup_points": 4},
        },
    )
    values = [(1e-3, 1e-290)] * 12 + [(1e308, 1e30)] * 6
    found = []
    for number, (loss, norm) in enumerate(values, 1):
        found += engine.update(Step(number, 1, number * 10**9, {"loss": loss, "grad_norm": norm}))
    found += engine.finish()
    assert found
    for finding in found:
        json.dumps(asdict(finding), allow_nan=False)
    json.dumps(engine.to_state(), allow_nan=False)


def test_the_state_after_a_leap_out_of_nothing_is_still_json():
    engine = Engine("run", {"loss_spike": {"min_points": 3, "warmup_points": 4}})
    for number, loss in enumerate([0.0, 0.0, 2.3e-293, 3e15], 1):
        engine.update(Step(number, 1, number * 10**9, {"loss": loss}))
    json.dumps(engine.to_state(), allow_nan=False)
