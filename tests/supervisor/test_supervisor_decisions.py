"""What follows an end: decided from the history alone, so each case is a line here."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.postmortem import Cause, Postmortem
from trainvitals.settings import SupervisorSettings
from trainvitals.supervisor.decide import DAY_NS, Begin, Done, GiveUp, Hold, Wait, decide
from trainvitals.supervisor.exits import POLICIES, Evidence, classify, policies_table
from trainvitals.supervisor.history import History, Start, from_document, to_document

SETTINGS = SupervisorSettings()
T = 1_800_000_000 * 10**9
S = 10**9


def ended(number: int, kind: str = "killed", at_ns: int = T, safe: int | None = 100, first: int | None = 1) -> Start:
    return Start(
        number, at_ns - 60 * S, first_step=first, last_step=first, ended_ns=at_ns, kind=kind, sentence="why", safe_step=safe
    )


def history(*starts: Start, **more: object) -> History:
    return replace(History(starts), **more)  # type: ignore[arg-type]


def test_a_run_without_a_start_starts() -> None:
    assert isinstance(decide(History(), SETTINGS, T), Begin)


@pytest.mark.parametrize(("kind", "code"), [("finished", 0), ("parked", 75)])
def test_what_ended_as_wished_is_done(kind: str, code: int) -> None:
    decision = decide(history(ended(1, kind)), SETTINGS, T)
    assert isinstance(decision, Done) and decision.code == code


def test_a_death_waits_for_its_back_off_and_then_starts() -> None:
    first = decide(history(ended(1)), SETTINGS, T, chance=0.5)
    assert isinstance(first, Wait) and first.until_ns == T + 5 * S
    assert isinstance(decide(history(ended(1)), SETTINGS, T + 5 * S, chance=0.5), Begin)


def test_back_offs_double_while_nothing_advances_and_are_capped_and_jittered() -> None:
    patient = replace(SETTINGS, deaths_in_place=100)
    waits = []
    for count in range(1, 12):
        decision = decide(history(*(ended(n) for n in range(1, count + 1))), patient, T, chance=0.5)
        assert isinstance(decision, Wait)
        waits.append((decision.until_ns - T) / S)
    assert waits[:4] == [5, 10, 20, 40] and waits[-1] == 600
    low, high = (decide(history(ended(1)), SETTINGS, T, chance=chance) for chance in (0.0, 1.0))
    assert isinstance(low, Wait) and isinstance(high, Wait)
    assert (low.until_ns - T, high.until_ns - T) == (4 * S, 6 * S)


def test_progress_resets_the_back_off() -> None:
    decision = decide(history(ended(1, safe=100), ended(2, safe=100), ended(3, safe=200)), SETTINGS, T, chance=0.5)
    assert isinstance(decision, Wait) and decision.until_ns == T + 5 * S


def test_three_deaths_after_one_checkpoint_hold() -> None:
    decision = decide(history(*(ended(n) for n in (1, 2, 3))), SETTINGS, T)
    assert isinstance(decision, Hold) and decision.rule == "restart_loop"
    assert "checkpoint 100" in decision.reason


def test_three_deaths_before_the_first_step_hold_even_if_the_checkpoints_differ() -> None:
    decision = decide(history(*(ended(n, safe=n, first=None) for n in (1, 2, 3))), SETTINGS, T)
    assert isinstance(decision, Hold) and decision.rule == "restart_failed"


@pytest.mark.parametrize("kind", ["out_of_memory", "numerics"])
def test_what_the_same_data_brings_again_holds_after_two(kind: str) -> None:
    assert isinstance(decide(history(ended(1, kind)), SETTINGS, T), Wait)
    assert isinstance(decide(history(ended(1, kind), ended(2, kind)), SETTINGS, T), Hold)
    assert isinstance(decide(history(ended(1, kind, safe=50), ended(2, kind)), SETTINGS, T), Wait)


@pytest.mark.parametrize("kind", ["disk_full", "wide_area", "resumed_behind"])
def test_what_a_restart_would_meet_again_holds_at_once(kind: str) -> None:
    assert isinstance(decide(history(ended(1, kind)), SETTINGS, T), Hold)


def test_a_wrong_configuration_gives_up_before_the_first_step_ever_and_holds_later() -> None:
    assert isinstance(decide(history(ended(1, "config_error", first=None)), SETTINGS, T), GiveUp)
    later = decide(history(ended(1), ended(2, "config_error", first=None)), SETTINGS, T)
    assert isinstance(later, Hold)


def test_the_budget_of_a_day_holds_and_an_old_death_does_not_count() -> None:
    few = replace(SETTINGS, restarts_per_day=3)
    starts = [ended(n, safe=n) for n in (1, 2, 3, 4)]
    decision = decide(history(*starts), few, T)
    assert isinstance(decision, Hold) and "24 h" in decision.reason
    old = [ended(1, safe=1, at_ns=T - DAY_NS - 1), *starts[1:]]
    assert isinstance(decide(history(*old), few, T), Wait)


def test_what_a_person_let_go_on_begins_anew_with_all_counts() -> None:
    starts = [ended(n) for n in (1, 2, 3)]
    assert isinstance(decide(history(*starts, released=3), SETTINGS, T), Begin)
    after = [*starts, ended(4, at_ns=T + 10 * S)]
    assert isinstance(decide(history(*after, released=3), SETTINGS, T + 10 * S), Wait)


@pytest.mark.parametrize("kind", ["rollback", "shutdown", "stopped"])
def test_what_somebody_wished_starts_again_without_a_wait(kind: str) -> None:
    assert isinstance(decide(history(ended(1), ended(2), ended(3, kind)), SETTINGS, T), Begin)


starts_of = st.lists(
    st.builds(
        ended, st.integers(1, 300), st.sampled_from([*POLICIES, "nonsense"]), st.integers(0, 2 * T), st.none() | st.integers(0, 10),
        st.none() | st.integers(0, 10),
    ),
    max_size=30,
)  # fmt: skip


@given(starts_of, st.integers(0, 2 * T), st.floats(0, 1), st.integers(0, 300))
def test_every_history_has_a_decision_and_it_never_spins(starts: list[Start], now_ns: int, chance: float, released: int) -> None:
    decision = decide(history(*starts, released=released), SETTINGS, now_ns, chance)
    assert isinstance(decision, (Begin, Wait, Hold, GiveUp, Done))
    if isinstance(decision, Wait):
        assert now_ns < decision.until_ns <= now_ns + 721 * S


@given(starts_of)
def test_what_is_remembered_comes_back_as_it_was(starts: list[Start]) -> None:
    known = History(tuple(starts), curve=((1, 2.5), (2, 2.25)), peak_step=7, held="why", hold_seq=3)
    assert from_document(to_document(known)) == known


# -- classes ------------------------------------------------------------------------------------------------------------


def told(kind: str) -> Postmortem:
    return Postmortem(1, Cause(kind, kind, "text", None, None, "", None, "log"), {}, 0, ())


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (Evidence(0), "finished"),
        (Evidence(0, is_stop_asked=True), "stopped"),
        (Evidence(0, is_stop_asked=True, end_reason="finished"), "finished"),
        (Evidence(75), "parked"),
        (Evidence(None, end_reason="finished"), "finished"),
        (Evidence(None), "unknown"),
        (Evidence(-9), "killed"),
        (Evidence(137), "killed"),
        (Evidence(-signal.SIGTERM), "cancelled"),
        (Evidence(139), "crashed"),
        (Evidence(127), "config_error"),
        (Evidence(1), "unknown"),
        (Evidence(1, postmortem=told("out_of_memory")), "out_of_memory"),
        (Evidence(-9, postmortem=told("nccl_timeout")), "nccl_timeout"),
        (Evidence(1, postmortem=told("exception"), nonfinite_at_step=5), "numerics"),
        (Evidence(1, postmortem=told("out_of_memory"), nonfinite_at_step=5), "out_of_memory"),
        (Evidence(0, ended_by_us="hang"), "hang"),
        (Evidence(-9, ended_by_us="rollback"), "rollback"),
        (Evidence(1, postmortem=told("network"), faulty_nodes=8, wide_area_nodes=8), "wide_area"),
        (Evidence(1, postmortem=told("network"), faulty_nodes=800, wide_area_nodes=0), "network"),
        (Evidence(1, postmortem=told("a class of the future")), "unknown"),
        (Evidence(1, postmortem=told("config_error")), "config_error"),
        (Evidence(1, postmortem=told("config_error"), has_steps=True), "exception"),
        (Evidence(-9, postmortem=told("config_error"), has_steps=True), "killed"),
        (Evidence(137, postmortem=told("config_error"), has_steps=True), "killed"),
    ],
)
def test_an_end_is_told_by_the_best_that_is_known_of_it(evidence: Evidence, kind: str) -> None:
    assert classify(evidence).kind == kind


def test_every_class_of_a_fault_has_a_policy() -> None:
    from trainvitals.logs.faults.table import CLASSES

    assert set(CLASSES) <= set(POLICIES)


def test_the_table_of_policies_stands_in_the_documentation() -> None:
    from pathlib import Path

    assert policies_table() in (Path(__file__).parents[2] / "docs" / "supervisor.md").read_text(encoding="utf-8")
