"""LitGPT's and lit-gpt's lines."""

import pytest
from reading import DATA, read, read_file, read_in_pieces


def test_the_step_is_the_optimizers():
    parser, steps, events = read_file("litgpt.log")
    assert parser.format == "litgpt"
    assert [(step.step, step.values["loss"], step.values["iter"]) for step in steps] == [
        (10, 9.5, 40),
        (11, 9.4, 44),
        (12, 9.3, 48),
    ]
    assert [(event.kind, event.step) for event in events] == [("phase", None), ("message", 12), ("message", 12)]


def test_micro_batches_of_a_step_that_is_not_done_are_no_steps():
    parser, steps, _ = read_file("litgpt_older.log")
    assert parser.format == "litgpt"
    assert [(step.step, step.values["iter"]) for step in steps] == [(1, 4), (2, 8), (3, 12)]
    assert parser.counters["repeated_steps"] == 0


def test_the_tinyllama_form_with_totals_is_read():
    _, steps, _ = read("iter 8/100 step 2/25: loss nan, iter time: 500.00ms (optimizer.step) remaining time: 12.34 hours.\n")
    assert [(step.step, step.nonfinite) for step in steps] == [(2, {"loss": "nan"})]


@pytest.mark.parametrize("name", ["litgpt.log", "litgpt_older.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
