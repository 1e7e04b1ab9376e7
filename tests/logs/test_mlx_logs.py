"""MLX LM's lines."""

from reading import DATA, read_file, read_in_pieces


def test_every_training_line_is_a_step():
    parser, steps, _ = read_file("mlx.log")
    assert parser.format == "mlx"
    assert [step.step for step in steps] == [10, 20, 30]
    assert steps[0].values == {
        "loss": 2.71, "lr": 1e-5, "it_sec": 4.0, "tokens_per_s": 1699.733, "tokens": 920.0, "peak_mem": 1.437, "step_time_s": 0.25,
    }  # fmt: skip
    assert steps[2].nonfinite == {"loss": "nan"}


def test_validation_and_saving_are_events():
    _, _, events = read_file("mlx.log")
    assert [(event.kind, event.step) for event in events] == [("message", 1), ("message", 30), ("phase", 30)]
    assert events[0].data == {"validation_loss": 2.323}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "mlx.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
