"""Ranks against each other, from what the hook records of sampled steps."""

from __future__ import annotations

import json
import random
import time

import pytest
from made_up import alarms, at, event, feed, find, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.detect.ranks import RankDetector
from trainvitals.hook.rank_board import Sample, rank_statistics
from trainvitals.records import Event, Severity, Step

EVERY = 50


def sampled(
    samples: int,
    *,
    ranks: int = 8,
    seed: int = 1,
    loss=lambda sample, rank: 0.0,
    late=lambda sample, rank: 0.0,
    missing=lambda sample: 0,
    is_reduced: bool = False,
    noise: float = 0.02,
    attempt: int = 1,
    first: int = 1,
) -> list[Step]:
    """One step a sample, with the statistics that the hook itself makes of all ranks. ``loss`` and ``late`` are added to a rank's."""
    rng = random.Random(seed)
    steps = []
    for number in range(first, first + samples):
        shared = 3.0 + rng.gauss(0, noise)
        told = [
            Sample(
                rank=rank,
                step=number * EVERY,
                loss=(shared if is_reduced else 3.0 + rng.gauss(0, noise)) + loss(number, rank),
                grad_norm=1.0,
                step_time_s=1.0,
                pre_all_reduce_s=0.5 * (1 + rng.gauss(0, 0.02)) * (3 if rng.random() < 0.002 else 1) + late(number, rank),
            )
            for rank in range(ranks)
        ]
        values = rank_statistics(told[: ranks - missing(number)], ranks)
        steps.append(
            Step(number * EVERY, attempt, at(number * EVERY), {"loss": shared, **{k: float(v) for k, v in values.items()}})
        )
    return steps


def test_healthy_ranks_raise_nothing_however_many_there_are():
    for ranks, seeds in ((2, 10), (3, 10), (8, 10), (64, 4)):
        for seed in range(seeds):
            assert alarms(find(sampled(400, ranks=ranks, seed=seed))) == []
            assert alarms(find(sampled(200, ranks=ranks, seed=seed, is_reduced=True))) == []


@pytest.mark.parametrize("ranks", [8, 1000])
def test_a_rank_whose_loss_stands_apart_is_named(ranks):
    records = sampled(60, ranks=ranks, loss=lambda n, rank: 0.15 if rank == 5 and n >= 20 else 0.0)
    (mismatch,) = of_rule(find(records), "rank_loss_mismatch")
    assert mismatch.severity is Severity.WARNING and mismatch.data["rank"] == 5 and mismatch.is_open
    assert mismatch.detected_step <= 33 * EVERY
    assert "rank 5 has the highest loss of all ranks" in mismatch.message


@pytest.mark.parametrize(("ranks", "sigma"), [(8, 1.5), (8, 2), (64, 2)])
def test_a_small_bias_is_found_from_how_often_a_rank_is_the_worst(ranks, sigma):
    records = sampled(500, ranks=ranks, loss=lambda n, rank: 0.02 * sigma if rank == 5 and n >= 20 else 0.0)
    mismatch = of_rule(find(records), "rank_loss_mismatch")[0]
    assert mismatch.data["rank"] == 5 and mismatch.detected_step <= 320 * EVERY
    assert mismatch.severity is Severity.WARNING


def test_a_mismatch_that_ends_is_closed():
    records = sampled(80, loss=lambda n, rank: -0.3 if rank == 2 and 20 <= n < 45 else 0.0)
    (mismatch,) = of_rule(find(records), "rank_loss_mismatch")
    assert not mismatch.is_open and "lowest loss" in mismatch.message and 45 * EVERY <= mismatch.last_step <= 60 * EVERY


def test_a_reduced_loss_that_differs_between_ranks_is_found_at_the_second_sample():
    records = sampled(40, is_reduced=True, loss=lambda n, rank: 0.01 if rank == 1 and n >= 20 else 0.0)
    (mismatch,) = of_rule(find(records), "rank_loss_mismatch")
    assert mismatch.detected_step == 21 * EVERY and "differs between them" in mismatch.message


def test_a_rank_without_a_finite_loss_is_found_at_once_and_stages_without_a_loss_are_usual():
    def loss(n, rank):
        return float("nan") if rank == 3 and n >= 20 else 0.0

    (mismatch,) = of_rule(find(sampled(40, loss=loss)), "rank_loss_mismatch")
    assert mismatch.detected_step == 20 * EVERY and mismatch.data["rank"] == 3
    assert "the loss of 1 rank is not a number at step 1,000: rank 3" in mismatch.message
    stages = sampled(200, loss=lambda n, rank: float("nan") if rank < 6 else 0.0)
    assert not of_rule(find(stages), "rank_loss_mismatch")


def test_replicas_that_hold_other_parameters_are_critical_until_the_next_start():
    engine = Engine("run")
    feed(engine, sampled(20))
    told = Event("message", at(2000), step=1000, data={"replica_mismatch": [6, 7], "replica": 0, "parameters": "layers.3.weight"})
    (mismatch,) = engine.update(told)
    assert mismatch.severity is Severity.CRITICAL and mismatch.is_open and mismatch.data["ranks"] == [6, 7]
    closed = feed(engine, sampled(3, attempt=2, first=21))
    assert [(f.rule, f.is_open) for f in closed] == [("rank_loss_mismatch", False)]


@pytest.mark.parametrize("late_s", [0.075, 0.1, 0.25])
def test_a_rank_that_is_late_again_and_again_is_a_straggler(late_s):
    records = sampled(60, ranks=64, late=lambda n, rank: late_s if rank == 17 and n >= 20 else 0.0)
    (straggler,) = of_rule(find(records), "straggler")
    assert straggler.severity is Severity.WARNING and straggler.data["rank"] == 17 and straggler.detected_step <= 40 * EVERY
    assert "rank 17 comes last to the all-reduce" in straggler.message


def test_hiccups_of_changing_ranks_are_no_straggler():
    rng = random.Random(5)
    late = {(n, rng.randrange(64)): 5.0 for n in range(1, 600)}
    assert not of_rule(find(sampled(500, ranks=64, late=lambda n, rank: late.get((n, rank), 0.0))), "straggler")


@pytest.mark.parametrize("seed", range(6))
def test_two_ranks_with_sequences_of_all_lengths_are_no_straggler(seed):
    rng = random.Random(seed)
    work = {(n, rank): 0.1 * abs(rng.gauss(0, 1)) for n in range(1, 2001) for rank in range(2)}
    assert not of_rule(find(sampled(2000, ranks=2, late=lambda n, rank: work[n, rank])), "straggler")


def test_a_straggler_that_recovers_is_closed():
    records = sampled(90, late=lambda n, rank: 0.2 if rank == 1 and 20 <= n < 50 else 0.0)
    (straggler,) = of_rule(find(records), "straggler")
    assert not straggler.is_open and straggler.last_step <= 65 * EVERY


def test_stages_of_a_pipeline_have_different_work_and_only_a_change_is_a_fault():
    layout = Event("metadata", None, attempt=1, data={"section": "layout", "values": {"tp": 1, "pp": 4}, "part": 0, "parts": 1})
    usual = sampled(60, ranks=4, late=lambda n, rank: 0.2 * (rank == 3))
    assert not of_rule(find([layout, *usual]), "straggler")
    worse = sampled(60, ranks=4, late=lambda n, rank: 0.2 * (rank == 3) + 0.4 * (rank == 1 and n > 30))
    assert [f.data["rank"] for f in of_rule(find([layout, *worse]), "straggler")] == [1]


def test_ranks_that_fall_silent_are_a_warning_and_their_return_closes_it():
    records = sampled(60, missing=lambda n: 2 if 20 <= n < 40 else 0)
    (silent,) = of_rule(find(records), "rank_silent")
    assert silent.severity is Severity.WARNING and silent.detected_step == 22 * EVERY and silent.last_step == 40 * EVERY
    assert silent.message.startswith("2 ranks told nothing in 3 samples in a row, while steps go on")


def test_one_late_sample_is_no_silence_and_ranks_that_never_told_anything_are_a_mark():
    assert not of_rule(find(sampled(60, missing=lambda n: int(n % 7 == 0))), "rank_silent")
    (never,) = of_rule(find(sampled(60, missing=lambda n: 3)), "rank_silent")
    assert never.severity is Severity.INFO and "since the start" in never.message


def test_a_note_silences_the_rules_of_ranks():
    records = sampled(60, late=lambda n, rank: 0.2 * (rank == 1 and n >= 20), missing=lambda n: int(n > 30))
    note = event("annotation", rules=["straggler", "rank_*"])
    assert alarms(find([*records[:10], note, *records[10:]])) == []


def test_the_state_is_small_and_continues_exactly():
    records = sampled(80, late=lambda n, rank: 0.2 * (rank == 1 and n >= 20), loss=lambda n, rank: 0.2 * (rank == 5 and n >= 25))
    whole = feed(Engine("run"), records)
    engine, parts = Engine("run"), []
    for begin in range(0, 80, 7):
        parts += feed(engine, records[begin : begin + 7])
        state = json.loads(json.dumps(engine.to_state(), allow_nan=False))
        assert len(json.dumps(state["_ranks"])) < 20_000
        engine = Engine("run")
        engine.restore(state)
    assert parts == whole


def test_a_sample_of_10000_ranks_costs_far_less_than_a_millisecond():
    values = {
        k: float(v)
        for k, v in rank_statistics([Sample(rank, 1, 3.0 + rank / 1e5, 1.0, 1.0, 0.5) for rank in range(10_000)], 10_000).items()
    }
    engine = Engine("run")
    detector: RankDetector = engine._ranks
    best_s = float("inf")
    for number in range(200):
        begun_s = time.perf_counter()
        detector.on_step(Step(number, 1, None, values))
        best_s = min(best_s, time.perf_counter() - begun_s)
    assert best_s < 1e-3
