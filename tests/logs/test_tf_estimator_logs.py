"""Lines of TensorFlow's Estimator."""

from reading import DATA, read, read_file, read_in_pieces, seconds


def test_every_loss_line_is_a_step_and_the_rate_before_it_its_time():
    parser, steps, _ = read_file("tf_estimator.log")
    assert parser.format == "tf_estimator"
    assert [(step.step, dict(step.values)) for step in steps] == [
        (51, {"loss": 6.93147}), (151, {"loss": 3.15373, "step_time_s": 0.25}), (251, {}),
    ]  # fmt: skip
    assert steps[2].nonfinite == {"loss": "nan"}
    assert seconds(steps[2]) == 30.5


def test_restoring_saving_and_evaluating_are_events():
    _, _, events = read_file("tf_estimator.log")
    assert [(event.kind, event.step) for event in events] == [("resume", 50), ("message", 251)]
    assert events[-1].data == {"validation_loss": 3.2, "masked_lm_accuracy": 0.41}


def test_a_nan_loss_is_told_by_the_hook_that_ends_the_run():
    _, steps, events = read("INFO:tensorflow:loss = 11.2, step = 1\nERROR:tensorflow:Model diverged with loss = NaN.\n")
    assert [step.step for step in steps] == [1]
    assert [event.data for event in events if event.kind == "message"] == [{"loss": "nan"}]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "tf_estimator.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
