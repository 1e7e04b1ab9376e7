"""PaddleNLP's lines."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_both_generations_of_the_line_are_steps():
    parser, steps, _ = read_file("paddlenlp.log")
    assert parser.format == "paddlenlp"
    assert [step.step for step in steps] == [10, 20, 30, 40]
    assert steps[0].values["loss"] == 3.15
    assert steps[0].values["tokens_per_s"] == 889.0448
    assert steps[0].values["step_time_s"] == pytest.approx(1 / 4.427)
    assert steps[3].values["loss"] == 2.851
    assert steps[3].values["lr"] == 1e-5
    assert steps[3].values["tokens_per_s"] == 5000
    assert seconds(steps[0]) == pytest.approx(10.008)


def test_an_evaluation_is_an_event():
    _, _, events = read_file("paddlenlp.log")
    assert events[0].data["validation_loss"] == 2.9012


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "paddlenlp.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
