"""A log of last week that is copied beside the running one is numbered after it; what runs is judged all the same."""

from __future__ import annotations

from made_up import alarms, at, curve, feed, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Severity, Step

WEEK_NS = 7 * 86_400 * 1_000_000_000


def test_the_running_attempt_is_judged_again_after_an_old_log_was_numbered_behind_it() -> None:
    engine = Engine("run")
    steps = curve(1500)
    feed(engine, steps[:1000])
    old = [Step(s.step, 2, s.time_ns - WEEK_NS, s.values, s.nonfinite) for s in curve(400, seed=5, attempt=2)]
    feed(engine, old)
    assert alarms(feed(engine, steps[1000:1200])) == []
    sick = [Step(s.step, 1, s.time_ns, {**s.values, "loss": s.values["loss"] * 3}) for s in steps[1200:]]
    found = feed(engine, sick)
    assert any(f.severity is Severity.CRITICAL for f in of_rule(found, "loss_spike") + of_rule(found, "loss_divergence"))


def test_a_former_attempt_that_still_prints_beside_a_new_one_is_ignored() -> None:
    engine = Engine("run")
    feed(engine, curve(500))
    new = [Step(s.step, 2, at(5_000.0 + 10 * k), s.values) for k, s in enumerate(curve(200, first=401, seed=3))]
    former = [Step(600 + k, 1, at(5_001.0 + 10 * k), {"loss": 90.0}) for k in range(200)]
    assert alarms(feed(engine, [step for pair in zip(new, former, strict=True) for step in pair])) == []
