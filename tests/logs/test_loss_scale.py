"""Overflows of a loss scaler: a few are messages, a row of them is a warning, the floor ends the run."""

from __future__ import annotations

from reading import OVERFLOW, faults_of

from trainvitals.records import Severity


def halvings(start, count):
    return "".join(OVERFLOW.format(start // 2**n, start // 2 ** (n + 1)) for n in range(count))


def test_a_few_overflows_are_messages_and_five_in_a_row_are_a_warning():
    assert [event.kind for event in faults_of(halvings(1 << 16, 4))] == ["message"] * 4
    *messages, fault = faults_of(halvings(1 << 16, 7))
    assert [event.kind for event in messages] == ["message"] * 7
    assert (fault.severity, fault.data["class"], fault.data["halvings"]) == (Severity.WARNING, "numerics", 7)


def test_a_line_that_reduces_the_hysteresis_and_a_scale_that_rose_are_no_halving():
    kept = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4, but hysteresis is 2. Reducing hysteresis to 1\n"
    assert faults_of(kept * 9) == []
    assert {event.kind for event in faults_of(halvings(64, 3) + halvings(64, 3))} == {"message"}


def test_ranks_that_all_print_an_overflow_halve_once():
    text = "".join(halvings(1 << 16, 4).splitlines(keepends=True)[n // 8] for n in range(32))
    assert len(faults_of(text)) == 4


def test_the_floor_is_critical_and_says_how_it_came_there():
    text = halvings(64, 6) + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n"
    event = [event for event in faults_of(text) if event.kind == "fault"]
    assert [(e.severity, e.data["class"], e.data["halvings"]) for e in event] == [(Severity.CRITICAL, "numerics", 6)]
