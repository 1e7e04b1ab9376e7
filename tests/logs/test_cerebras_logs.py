"""Lines of Cerebras Model Zoo."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_every_training_line_is_a_step():
    parser, steps, _ = read_file("cerebras.log")
    assert parser.format == "cerebras"
    assert [step.step for step in steps] == [100, 200, 300]
    assert steps[0].values == {"loss": 7.67126, "samples_per_s": 31.97, "global_rate": 31.98}
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == [10.385, 20.385, 30.385]


def test_checkpoints_and_evaluations_are_events():
    _, _, events = read_file("cerebras.log")
    assert [(event.kind, event.step) for event in events] == [("phase", 300), ("phase", 300), ("message", None)]
    assert events[-1].data == {"validation_loss": 7.2}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "cerebras.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
