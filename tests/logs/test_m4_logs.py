"""m4's lines."""

from reading import DATA, read_file, read_in_pieces


def test_every_iteration_is_a_step():
    parser, steps, _ = read_file("m4.log")
    assert parser.format == "m4"
    assert [step.step for step in steps] == [120, 145, 170]
    assert steps[0].values["loss"] == 4.1
    assert steps[0].values["lr"] == 2.4e-6
    assert steps[0].values["tokens"] == 37_800_000
    assert "elapsed_time" not in steps[0].values


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "m4.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
