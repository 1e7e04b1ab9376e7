"""Meta Lingua's lines."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_every_line_is_a_step_and_ranks_do_not_multiply_it():
    parser, steps, _ = read_file("lingua.log")
    assert parser.format == "lingua"
    assert [step.step for step in steps] == [10, 20, 30]
    assert parser.counters["repeated_steps"] == 3
    assert steps[0].values["loss"] == 10.1234
    assert steps[0].values["grad_norm"] == 1.2
    assert steps[0].values["tflops_per_gpu"] == 350
    assert steps[0].values["tokens_per_s"] == 55_000
    assert steps[0].values["step_time_s"] == 0.5012
    assert steps[2].nonfinite == {"loss": "nan"}


def test_a_year_of_two_digits_is_this_centurys():
    _, steps, _ = read_file("lingua.log")
    assert [seconds(step) for step in steps] == pytest.approx([10.123456, 20.123456, 30.123456])


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "lingua.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
