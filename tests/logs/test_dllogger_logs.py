"""DLLogger's lines in NVIDIA's BERT examples."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_every_training_iteration_is_a_step():
    parser, steps, events = read_file("dllogger.log")
    assert parser.format == "dllogger"
    assert [step.step for step in steps] == [120, 130, 140]
    assert steps[0].values == {"average_loss": 7.25, "loss": 7.125, "lr": 7.5e-05}
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == pytest.approx([12.5, 13.5, 14.5])
    assert events == []


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "dllogger.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
