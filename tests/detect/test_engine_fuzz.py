"""Whatever a log holds, the engine answers: nothing raises, and every finding can be written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.detect.engine import Engine
from trainvitals.records import EVENT_KINDS, Event, Step, split_nonfinite

QUICK = {
    "loss_spike": {"min_points": 3, "warmup_points": 4, "window": 8, "short_window": 4},
    "loss_divergence": {"page_after_points": 3, "rebase_after_points": 9},
    "loss_level_shift": {"block_points": 4, "cusum_limit": 2},
    "loss_drift": {"block_points": 4},
    "grad_norm_spike": {"min_points": 3, "warmup_points": 4, "window": 8},
    "throughput_drop": {"bucket_s": 0, "min_points": 3, "recent_points": 3, "slow_points": 3, "mute_after_resume_points": 0},
    "stall": {"min_points": 1, "floor_s": 0.1},
}
NUMBERS = st.one_of(
    st.floats(), st.floats(0, 10), st.sampled_from([0.0, 1e308, -1e308, 5e-324, 2.0, 2.0, float("nan"), float("inf")])
)
TIMES = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(0, 10**12))
METRICS = ("loss", "grad_norm", "lr", "tokens_per_s", "step_time_s", "skipped", "other")
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.text(max_size=5), max_size=2)
)
KEYS = ("phase", "state", "rules", "points", "class", "reason", "exit_code", "attempt", "desired", "by", "source", "first_step")
WORDS = st.sampled_from(["paused", "begin", "end", "eval", "finished", "loss_*", "out_of_memory", "running", "killed"])


@st.composite
def steps(draw) -> Step:
    values, nonfinite = split_nonfinite(draw(st.dictionaries(st.sampled_from(METRICS), NUMBERS, max_size=5)))
    return Step(draw(st.integers(0, 40)), draw(st.integers(0, 3)), draw(TIMES), values, nonfinite)


@st.composite
def events(draw) -> Event:
    data = draw(st.dictionaries(st.sampled_from(KEYS), st.one_of(JUNK, WORDS), max_size=4))
    return Event(
        draw(st.sampled_from(sorted(EVENT_KINDS))),
        draw(TIMES),
        step=draw(st.one_of(st.none(), st.integers(0, 40))),
        attempt=draw(st.one_of(st.none(), st.integers(0, 3))),
        data=data,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    records=st.lists(st.one_of(steps(), steps(), steps(), events(), st.integers(-(2**62), 2**62)), max_size=60),
    losses=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=60),
)
def test_nothing_a_log_can_hold_raises_and_all_findings_are_json(records, losses):
    engine = Engine("run", QUICK)
    found = []
    for number, (loss, norm, speed) in enumerate(losses, 1):
        values, nonfinite = split_nonfinite({"loss": loss, "grad_norm": norm, "tokens_per_s": speed})
        found += engine.update(Step(number, 0, number * 10**9, values, nonfinite))
    for record in records:
        found += engine.tick(record) if isinstance(record, int) else engine.update(record)
    found += engine.finish()
    for finding in found:
        json.dumps(asdict(finding), allow_nan=False)
        assert len(finding.message) < 1000
        assert finding.is_open or finding.last_step is not None
    json.dumps(engine.to_state(), allow_nan=False)
