"""A slow rank among many that all hiccup: the hook's smoothed lateness, and the finding that says where the rank is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping

import pytest
from made_up import alarms, at, feed, find, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.detect.ranks import RankDetector
from trainvitals.hook.rank_board import Sample, rank_statistics
from trainvitals.hook.rank_lateness import MANY_RANKS, RankLateness
from trainvitals.records import Event, Severity, Step

EVERY = 50


def place_of(rank: int) -> dict[str, object]:
    return {"host": f"node{rank // 8}", "local_rank": rank % 8, "gpu_uuid": f"GPU-{rank:04x}"}


def told(
    samples: int, ranks: int, slow: Callable[[int, int], float], *, noise: float = 0.02, hiccups: float = 0.002, seed: int = 1
) -> list[Step | Event]:
    """What rank 0 records: ``slow(sample, rank)`` is the share by which a rank is slower."""
    rng, lateness, records = random.Random(seed), RankLateness(), []
    for number in range(1, samples + 1):
        times_s = {
            rank: 0.5 * (1 + rng.gauss(0, noise)) * (3 if rng.random() < hiccups else 1) * (1 + slow(number, rank))
            for rank in range(ranks)
        }
        found = lateness.take(times_s, lambda worst: {rank: place_of(rank) for rank in worst})
        statistics = rank_statistics([Sample(rank, 1, 3.0, 1.0, 1.0, time_s) for rank, time_s in times_s.items()], ranks)
        if found.told:
            data = json.loads(json.dumps(found.told))
            records.append(Event("ranks", at(number * EVERY), step=number * EVERY, text=found.text, data=data))
        values = {name: float(value) for name, value in {**statistics, **found.statistics}.items()}
        records.append(Step(number * EVERY, 1, at(number * EVERY), {"loss": 3.0, **values}))
    return records


@pytest.mark.parametrize(("ranks", "share", "within"), [(64, 0.2, 22), (1024, 0.15, 26), (1024, 0.5, 16), (4096, 0.2, 22)])
def test_a_slow_rank_is_found_among_many_that_hiccup_and_its_host_and_gpu_are_named(ranks, share, within):
    found = find(told(20 + 2 * within, ranks, lambda n, rank: share * (rank == 17 and n > 20)))
    (straggler,) = of_rule(found, "straggler")
    assert straggler.severity is Severity.WARNING and straggler.data["rank"] == 17
    assert straggler.detected_step <= (20 + within) * EVERY
    assert straggler.message.endswith("[rank 17: node2/1/GPU-0011]") and straggler.data["place"] == "node2/1/GPU-0011"


def test_a_slow_node_is_one_finding_that_says_how_many_ranks_are_late():
    (straggler,) = of_rule(find(told(60, 512, lambda n, rank: 0.3 * (rank // 8 == 3 and n > 10))), "straggler")
    assert 24 <= straggler.data["rank"] < 32 and "late too: 7 other ranks" in straggler.message


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_many_healthy_ranks_raise_nothing_however_much_their_work_varies(noise):
    for seed in range(2):
        assert alarms(find(told(150, 512, lambda n, rank: 0.0, noise=noise, seed=seed))) == []


def test_a_quarter_of_the_ranks_that_has_more_work_is_nobodys_fault():
    assert not of_rule(find(told(60, 256, lambda n, rank: 0.3 * (rank >= 192))), "straggler")


def test_a_straggler_among_many_ends_when_it_is_as_fast_as_the_others():
    (straggler,) = of_rule(find(told(100, 256, lambda n, rank: 0.3 * (rank == 5 and 10 < n <= 50))), "straggler")
    assert not straggler.is_open and 52 * EVERY <= straggler.last_step <= 70 * EVERY


def test_of_the_stages_of_a_pipeline_only_a_change_counts():
    layout = Event("metadata", None, attempt=1, data={"section": "layout", "values": {"pp": 16}, "part": 0, "parts": 1})
    last_stage = told(150, 256, lambda n, rank: 0.15 * (rank >= 240))
    assert not of_rule(find([layout, *last_stage]), "straggler")
    worse = told(150, 256, lambda n, rank: 0.15 * (rank >= 240) + 0.3 * (rank == 3 and n > 90))
    assert [finding.data["rank"] for finding in of_rule(find([layout, *worse]), "straggler")] == [3]


def test_the_straggler_of_a_few_ranks_has_its_place_too():
    records = told(60, 8, lambda n, rank: 0.3 * (rank == 5 and n > 20))
    (straggler,) = of_rule(find(records), "straggler")
    assert straggler.data["place"] == "node0/5/GPU-0005" and "[rank 5: node0/5/GPU-0005]" in straggler.message


def test_a_restart_in_between_changes_nothing():
    records = told(70, 128, lambda n, rank: 0.3 * (rank == 9 and 10 < n <= 40))
    expected = feed(Engine("run"), records)
    for cut in (15, 30, 60):
        first, second = Engine("run"), Engine("run")
        found = feed(first, records[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert last_states([*found, *feed(second, records[cut:])]) == last_states(expected) != []


@pytest.mark.parametrize(
    "worst",
    ["text", [1, None, []], [{"rank": "x"}], [{"rank": 3}], [{"rank": 3, "host": ["a"] * 10_000}], [{"rank": True}] * 1000],
)
def test_a_list_of_worst_ranks_that_no_hook_wrote_costs_nothing(worst):
    engine = Engine("run")
    engine.update(Event("ranks", at(0), data={"worst": worst}))
    feed(engine, told(5, 64, lambda n, rank: 0.0)[:5])
    assert len(json.dumps(engine.to_state()["_ranks"])) < 5_000


def test_what_ten_thousand_ranks_leave_of_a_sample_is_judged_in_far_less_than_a_millisecond():
    (step,) = [record for record in told(1, 10_000, lambda n, rank: 0.0) if isinstance(record, Step)]
    assert set(step.values) >= {"late_rank", "late_share", "pre_all_reduce_rank_median_s", "pre_all_reduce_rank_mad_s"}
    detector: RankDetector = Engine("run")._ranks
    calls = _calls_of(lambda: detector.on_step(step))
    assert calls < 300  # whatever the number of ranks: about 20 us


def _calls_of(function: Callable[[], None]) -> int:
    """Function calls, which unlike the time do not depend on what else the machine does."""
    import sys

    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for _ in range(20):
        function()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


# -- the hook's part ------------------------------------------------------------------------------------------------------


def nowhere(ranks: object) -> Mapping[int, Mapping[str, object]]:
    return {}


def test_a_sample_without_times_or_of_one_rank_says_nothing():
    for times_s in ({}, {0: 0.5}, {0: 0.0, 1: 0.0}):
        found = RankLateness().take(times_s, nowhere)
        assert (found.statistics, found.told) == ({}, {})


def test_the_statistics_are_those_of_all_ranks():
    times_s = {rank: 0.5 + 0.001 * rank for rank in range(MANY_RANKS + 1)}
    found = RankLateness().take(times_s, nowhere).statistics
    assert found["pre_all_reduce_rank_median_s"] == pytest.approx(0.532)
    assert found["pre_all_reduce_rank_mad_s"] == pytest.approx(0.016)
    assert found["late_rank"] == MANY_RANKS
    few = RankLateness().take(dict.fromkeys(range(8), 0.5), nowhere).statistics
    assert set(few) == {"pre_all_reduce_rank_median_s", "pre_all_reduce_rank_mad_s"}


def test_the_ten_worst_are_told_when_another_is_the_worst_and_from_time_to_time_with_places_asked_for_these_only():
    asked: list[list[int]] = []

    def places(ranks):
        asked.append(list(ranks))
        return {rank: place_of(rank) for rank in ranks if rank != 4}

    lateness, seen = RankLateness(), []
    for number in range(90):
        slow = 3 if number < 60 else 4
        seen.append(lateness.take({rank: 0.8 if rank == slow else 0.5 for rank in range(100)}, places).told)
    numbers = [number for number, data in enumerate(seen) if data]
    assert numbers[:3] == [1, 21, 41] and any(60 < number < 80 for number in numbers)
    assert len(asked) == len(numbers) and all(len(ranks) == 10 for ranks in asked)
    assert seen[1]["worst"][0] == {"rank": 3, "share": 0.057, "pre_all_reduce_s": 0.8, **place_of(3)}
    newest = seen[numbers[-1]]["worst"][0]
    assert newest["rank"] == 4 and "host" not in newest
