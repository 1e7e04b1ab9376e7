"""MaxText's lines."""

from reading import DATA, read, read_file, read_in_pieces, seconds


def test_every_generation_of_the_line_is_a_step():
    parser, steps, _ = read_file("maxtext.log")
    assert parser.format == "maxtext"
    assert [step.step for step in steps] == list(range(7, 14))
    assert steps[0].values == {
        "step_time_s": 8.5, "tflops_per_gpu": 300.1, "tokens_per_s": 15000.25, "total_weights": 1048576.0, "loss": 9.68,
    }  # fmt: skip
    assert steps[-1].values["lr"] == 3e-4
    assert steps[-1].values["grad_norm"] == 12.34


def test_a_loss_of_zero_is_a_loss_and_nan_is_not():
    _, steps, _ = read_file("maxtext.log")
    assert steps[4].values["loss"] == 0.0
    assert steps[5].nonfinite == {"loss": "nan", "main_model_loss": "nan"}


def test_a_time_without_a_year_takes_it_from_the_file_and_no_time_is_none():
    _, steps, _ = read_file("maxtext.log")
    assert [seconds(step) for step in steps] == [7.678901, 8.678901, 9.678901, 10.678901, None, None, None]


def test_restoring_saving_and_evaluating_are_events():
    _, _, events = read_file("maxtext.log")
    assert [(event.kind, event.step) for event in events] == [("resume", 6), ("phase", 10), ("message", 10)]
    assert events[-1].data == {"validation_loss": 9.701, "total_weights": 524288.0}


def test_the_oldest_line_and_maxdiffusions_are_read():
    _, steps, _ = read(
        "completed step: 15107, seconds: 2.167, TFLOP/s: 36.722, loss: 2.191\n"
        "completed step: 15108, seconds: 11.7, TFLOP/s/device: 348.7, Tokens/s/device: 6760.2, Samples/s/device: 0.0854, loss: 1.540\n"
    )
    assert steps[0].values == {"step_time_s": 2.167, "tflops_per_gpu": 36.722, "loss": 2.191}
    assert steps[1].values["samples_per_s"] == 0.0854


def test_two_hosts_in_one_line_are_two_records():
    _, steps, _ = read(
        "completed step: 1, seconds: 1.0, TFLOP/s/device: 3.0, loss: 9.5completed step: 2, seconds: 1.0, TFLOP/s/device: 3.0, loss: 9.4\n"
    )
    assert [step.step for step in steps] == [1, 2]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "maxtext.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
