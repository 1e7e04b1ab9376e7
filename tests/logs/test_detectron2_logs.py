"""detectron2's lines."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_every_line_is_a_step():
    parser, steps, _ = read_file("detectron2.log")
    assert parser.format == "detectron2"
    assert [step.step for step in steps] == [19, 39, 59]
    assert steps[0].values["loss"] == 1.986
    assert steps[0].values["step_time_s"] == 1.1678
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == [19, 39, 59]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "detectron2.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
