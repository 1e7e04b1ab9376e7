"""Orbit's lines and outputs over several lines."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_an_output_in_one_line_and_over_several_is_a_step():
    parser, steps, _ = read_file("orbit.log")
    assert parser.format == "orbit"
    assert [step.step for step in steps] == [1000, 1100, 1200]
    assert steps[0].values == {"step_time_s": 0.25, "lr": 1e-4, "masked_lm_accuracy": 0.21, "loss": 7.125}
    assert steps[1].nonfinite == {"loss": "nan"}
    assert steps[2].values == {"step_time_s": 0.2, "train_accuracy": 0.0, "loss": 6.5}
    assert parser.counters["repeated_steps"] == 2
    assert seconds(steps[0]) == 10.59736


def test_restoring_saving_and_evaluating_are_events():
    _, _, events = read_file("orbit.log")
    assert [(event.kind, event.step) for event in events] == [("resume", 900), ("message", 1200), ("phase", 1200)]
    assert events[1].data == {"validation_loss": 6.75, "masked_lm_accuracy": 0.25}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "orbit.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
