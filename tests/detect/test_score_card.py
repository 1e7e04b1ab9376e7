"""The score card's own parts: curves are repeatable, rivals find what they are made for, real curves are read as they are."""

from __future__ import annotations

import gzip
import math
import random
from pathlib import Path

import pytest

from bench import detection
from bench.detection_baselines import BASELINES, Baseline, adwin, hampel_three_of_five, in_a_row, rolling_z
from bench.detection_curves import NOISE_CLASSES, bfloat16, healthy, inject, read_curve, read_labels, records
from trainvitals.records import Event, Step


def _noise(points: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [3 + rng.gauss(0, 0.01) for _ in range(points)]


@pytest.mark.parametrize("noise", NOISE_CLASSES)
def test_the_same_seed_makes_the_same_records(noise: str) -> None:
    def make() -> list[Step | Event]:
        rng = random.Random(noise)
        return list(records(rng, healthy(rng, 600, noise), noise))

    assert make() == make()


def test_the_stalls_of_the_generator_are_at_most_ten_steps_long() -> None:
    rng = random.Random(4)
    run = healthy(rng, 3000, "stalls")
    usual = sorted(run.step_time_s)[1500]
    assert 8 * usual < max(run.step_time_s) <= 10 * usual
    told = [record for record in records(rng, run, "stalls") if isinstance(record, Event)]
    assert {event.data["phase"] for event in told} == {"eval", "checkpoint"}


@pytest.mark.parametrize("method", [rolling_z, in_a_row, hampel_three_of_five, adwin])
def test_a_rival_is_quiet_on_bell_shaped_noise_and_finds_a_step(method: Baseline) -> None:
    losses = _noise(3000)
    assert len(method(losses)) < 30
    risen = losses[:2000] + [value + 0.5 for value in losses[2000:]]
    assert any(2000 <= at < 2100 for at in method(risen))


def test_no_rival_stumbles_over_nan() -> None:
    losses = [math.nan if at % 7 == 0 else value for at, value in enumerate(_noise(1500))]
    for method in BASELINES.values():
        assert all(0 <= at < 1500 for at in method(losses))


def test_alarms_that_are_close_are_one_incident() -> None:
    assert detection.incidents([]) == 0
    assert detection.incidents([5, 100, 300, 900, 901]) == 2


def test_a_bfloat16_has_eight_significant_bits() -> None:
    assert bfloat16(2.3456) == 2.34375
    assert bfloat16(0.0) == 0.0
    assert bfloat16(-0.01171) == -bfloat16(0.01171)


def test_a_real_curve_is_read_with_its_spacing_and_step_times(tmp_path: Path) -> None:
    rows = "\n".join(f"{5 * k},{4 - k / 1000},{'' if k == 3 else 0.5}" for k in range(1, 300))
    path = tmp_path / "run.csv.gz"
    path.write_bytes(gzip.compress(f"# throughput unit: steps/s\nstep,loss,throughput\n{rows}\n".encode()))
    curve = read_curve(path)
    assert curve.spacing == 5
    assert len(curve.loss) == 299
    assert curve.step_time_s[0] == 10.0
    assert math.isnan(curve.tokens_per_s[2])
    assert curve.grad_norm == []
    (tmp_path / "labels.csv").write_text(
        "name,kind,first_step,last_step,evidence,sure\nrun,clean,1,2,none,yes\nrun,loss_bump_minor,3,4,x,no\n"
    )
    assert [label.is_sure for label in read_labels(tmp_path / "labels.csv")["run"]] == [True, False]


def test_a_fault_of_no_name_is_refused() -> None:
    rng = random.Random(1)
    with pytest.raises(ValueError, match="hiccup"):
        inject(healthy(rng, 50, "plain"), 10, "hiccup", 1, rng)


def test_one_command_prints_every_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(6)
    run = healthy(rng, 2200, "plain")
    lines = [f"{t + 1},{run.loss[t]:.5f},{run.tokens_per_s[t]:.1f}" for t in range(2200)]
    (tmp_path / "made.csv").write_text("# throughput unit: tokens/s\nstep,loss,throughput\n" + "\n".join(lines) + "\n")
    (tmp_path / "labels.txt").write_text("name,kind,first_step,last_step,evidence,sure\nmade,clean,1,2200,none,yes\n")
    monkeypatch.setattr(detection, "NOISE_CLASSES", ("plain", "stalls"))
    monkeypatch.setattr(detection, "FAULTS", detection.FAULTS[:1])
    monkeypatch.setattr(detection, "COMPARED", detection.COMPARED[1:2])
    series = ["--series", str(tmp_path), "--labels", str(tmp_path / "labels.txt")]
    monkeypatch.setattr("sys.argv", ["detection", "--seeds", "1", "--points", "6100", *series])
    detection.main()
    told = capsys.readouterr().out
    for head in (
        "Made-up healthy curves",
        "Faults in made-up curves",
        "Trainvitals, loss rules",
        "Drops in real throughput",
        "CPU",
    ):
        assert head in told
