"""Real logs and curves of others, read when they lie beside the checkout; they are never part of it."""

import csv
import gzip
from pathlib import Path

import pytest

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data does not lie beside the checkout (../shared/data)")


def read(path):
    parser = Parser()
    with gzip.open(path) as file:
        records = parser.feed(file.read()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


@pytest.mark.parametrize(
    ("name", "count", "last"),
    [
        ("megatron_gpt2_slurm_timelimit.out.gz", 4, 4),
        ("megatron_deepspeed_3d.out.gz", 2, 2),
        ("megatron_deepspeed_3d_49_iterations.out.gz", 49, 49),
        ("hf_trainer_tqdm_64ranks.out.gz", 0, None),
        ("hf_trainer_state_grpo.json.gz", 2000, 2000),
        ("hf_trainer_state_mistral.json.gz", 866, 8660),
        ("llmc_main.log.gz", 19560, 19559),
        ("modded_nanogpt_with_source_header.txt.gz", 5100, 5100),
        ("build_nanogpt_gh200.out.gz", 5467, 5466),
        ("lightning_metrics.csv.gz", 220, 10999),
        ("mlperf_mllog_llama31_8b.txt.gz", 360, 11519),
        ("torchrun_slurm_timelimit.err.gz", 0, None),
    ],
)
def test_as_many_steps_as_the_log_holds(name, count, last):
    _, steps, _ = read(SHARED / "logs" / name)
    assert (len(steps), steps[-1].step if steps else None) == (count, last)
    assert {step.attempt for step in steps} <= {1}


@pytest.mark.parametrize("name", ["megatron_gpt2_slurm_timelimit.out.gz", "torchrun_slurm_timelimit.err.gz"])
def test_a_time_limit_is_one_fault_whatever_follows(name):
    _, _, events = read(SHARED / "logs" / name)
    assert [event.data["class"] for event in events if event.kind == "fault"] == ["time_limit"]


def test_zero_losses_of_grpo_stay_losses():
    _, steps, _ = read(SHARED / "logs" / "hf_trainer_state_grpo.json.gz")
    assert sum(step.values.get("loss") == 0.0 for step in steps) == 1568
    assert not any(step.nonfinite for step in steps)


@pytest.mark.parametrize("path", sorted((SHARED / "series").glob("*.csv.gz")), ids=lambda path: path.name)
def test_every_row_of_a_curve_is_a_step(path):
    parser, steps, _ = read(path)
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(text for text in file if not text.startswith("#")))
    assert parser.format == "curve_csv"
    assert [step.step for step in steps] == [int(row["step"]) for row in rows if any(v for k, v in row.items() if k != "step")]
    assert sum("loss" in step.values for step in steps) == sum(row["loss"] not in ("", "nan", "inf") for row in rows)
    assert parser.counters["bad_records"] == 0
