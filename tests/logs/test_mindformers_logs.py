"""MindFormers' lines."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_both_generations_of_the_line_are_steps_counted_through():
    parser, steps, _ = read_file("mindformers.log")
    assert parser.format == "mindformers"
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert steps[0].values == {
        "loss": 10.633, "step_time_s": 1.752, "lr": 1e-5, "loss_scale": 1024.0, "grad_norm": 8.834, "tflops_per_gpu": pytest.approx(170.738),
    }  # fmt: skip
    assert steps[3].nonfinite == {"loss": "nan"}
    assert (steps[4].values["loss"], steps[4].values["step_time_s"]) == (2.244, 1.5)
    assert [seconds(step) for step in steps] == pytest.approx([11.308, 12.308, 21.308, 22.308, 96.427])


def test_an_overflow_is_an_event():
    _, _, events = read_file("mindformers.log")
    assert [(event.step, event.data) for event in events] == [(3, {"overflow": True, "loss_scale": 1024.0})]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "mindformers.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
