"""BMTrain's lines."""

from reading import DATA, read_file, read_in_pieces


def test_every_line_is_a_step():
    parser, steps, _ = read_file("bmtrain.log")
    assert parser.format == "bmtrain"
    assert [(step.step, step.values["loss"]) for step in steps] == [(100, 3.1), (101, 3.099), (102, 3.098)]
    assert steps[0].values["loss_scale"] == 64
    assert steps[0].values["step_time_s"] == 1.5
    assert steps[0].values["grad_norm"] == 1.2
    assert steps[2].nonfinite == {"grad_norm": "nan"}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "bmtrain.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
