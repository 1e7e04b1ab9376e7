"""timm's lines."""

from reading import DATA, read_file, read_in_pieces


def test_the_value_counts_and_its_running_mean_does_not():
    parser, steps, _ = read_file("timm.log")
    assert parser.format == "timm"
    assert [step.step for step in steps] == [3753, 3803, 3853]
    assert steps[0].values == {"loss": 6.95, "step_time_s": 0.5, "lr": 1e-6, "data": 0.01, "samples_per_s": 2048.0}
    assert steps[2].nonfinite == {"loss": "nan"}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "timm.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
