"""The whole schedule on a clock that runs ahead: with the demo's settings every fault is found, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.__main__ import main
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.clock import ManualClock
from trainvitals.demo import config
from trainvitals.demo.faults import DEFAULT_SCHEDULE
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.hook import Recorder
from trainvitals.incidents.rollback import RollbackInputs
from trainvitals.supervisor.choice import choose

SECONDS = 275


class GoOn:
    """A control file in which nobody ever asks for anything, until the five minutes are over."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._end_s = clock.monotonic_s() + SECONDS

    def at_step(self, step: int) -> str:
        return "stop" if self._clock.monotonic_s() >= self._end_s else "continue"


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """One JSON object per finding of ``detect`` on the file that the hook wrote."""
    clock = ManualClock()
    home = config.prepare_home(tmp_path_factory.mktemp("demo") / "home", clock.time_ns())
    options = TrainingOptions(
        run_dir=home.run_dir, checkpoints=home.checkpoints, schedule=DEFAULT_SCHEDULE, batch=320, hidden=64, text_bytes=1_000_000
    )
    control = GoOn(clock)
    with Recorder(home.run_dir, run="demo", clock=clock) as recorder:
        first = Training(options, clock)
        with pytest.raises(FloatingPointError):
            first.run(recorder, control, say=lambda _line: None)  # type: ignore[arg-type]
    chosen = choose([str(home.checkpoints)], RollbackInputs(()), HashStore(None), clock, 30).report
    assert chosen is not None
    verified = Path(chosen.path)
    assert verified.name == f"checkpoint-{first.step // 300 * 300 - 300}", "the newest one was truncated"
    clock.advance(2)
    with Recorder(home.run_dir, run="demo", clock=clock) as recorder:
        second = Training(replace(options), clock)
        second.resume(verified)
        recorder.resumed(second.step, checkpoint=str(verified), lr=second.planned_lr())
        assert second.run(recorder, control, say=lambda _line: None) == "stopped"  # type: ignore[arg-type]
        recorder.finish("stopped")
    capture = home.path / "findings.jsonl"
    with capture.open("w") as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        main(["detect", str(home.run_dir / "metrics.rank00000.jsonl"), "--config", str(config.write_settings(home, 8501))])
    return [json.loads(line) for line in capture.read_text().splitlines()]


def of(findings: list[dict[str, object]], rule: str) -> list[dict[str, object]]:
    return [finding for finding in findings if finding["rule"] == rule]


def test_the_corrupted_data_is_a_spike_that_heals(findings: list[dict[str, object]]) -> None:
    spike = of(findings, "loss_spike")[0]
    assert 560 <= spike["first_step"] <= 570  # type: ignore[operator]
    assert spike["last_step"] is not None
    assert spike["last_step"] < 700  # type: ignore[operator]


def test_the_slow_down_is_one_throughput_drop_that_ends(findings: list[dict[str, object]]) -> None:
    (drop,) = of(findings, "throughput_drop")
    # The onset is told to a bucket: two seconds are 15 slow steps.
    assert 950 <= drop["first_step"] <= 1030  # type: ignore[operator]
    assert drop["detected_step"] <= 1000 + 12 / 0.128  # type: ignore[operator]
    assert drop["last_step"] is not None


def test_the_nan_is_found(findings: list[dict[str, object]]) -> None:
    (nan,) = of(findings, "loss_nonfinite")
    assert nan["severity"] == "critical"


def test_the_learning_rate_diverges_and_trips_the_breaker_once(findings: list[dict[str, object]]) -> None:
    divergence = of(findings, "loss_divergence")[-1]
    assert divergence["severity"] == "critical"
    (trip,) = of(findings, "breaker_trip")
    assert divergence["first_step"] < trip["detected_step"] < divergence["first_step"] + 240  # type: ignore[operator]


def test_nothing_else_is_found(findings: list[dict[str, object]]) -> None:
    rules = {str(finding["rule"]) for finding in findings if finding["severity"] != "info"}
    expected = {
        "loss_spike", "throughput_drop", "loss_nonfinite", "grad_norm_nonfinite", "run_dead", "loss_divergence", "breaker_trip", "breaker_alert",
    }  # fmt: skip
    assert rules <= expected
    assert len(of(findings, "loss_spike")) <= 2
