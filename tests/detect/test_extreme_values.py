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
    losses = [1e-290] * 12 + [1e30] * 6
    found = []
    for number, loss in enumerate(losses, 1):
        found += engine.update(Step(number, 1, number * 10**9, {"loss": loss, "grad_norm": loss}))
    found += engine.finish()
    assert found
    for finding in found:
        json.dumps(asdict(finding), allow_nan=False)
