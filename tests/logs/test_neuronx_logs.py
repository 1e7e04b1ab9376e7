"""Lines of AWS Neuron's training examples."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_every_line_is_a_step_with_its_time():
    parser, steps, _ = read_file("neuronx.log")
    assert parser.format == "neuronx"
    assert [step.step for step in steps] == [14, 15, 16]
    assert steps[0].values == {"loss": 11.25, "lr": 2.8e-6, "samples_per_s": 6497.86, "grad_norm": 1.5}
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == [14, 15, 16]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "neuronx.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
