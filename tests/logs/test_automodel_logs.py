"""NeMo AutoModel's lines."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_every_training_line_is_a_step():
    parser, steps, _ = read_file("automodel.log")
    assert parser.format == "automodel"
    assert [step.step for step in steps] == [10, 11, 12]
    assert steps[0].values == {
        "loss": 2.1234, "grad_norm": 1.25, "lr": 1e-5, "mem_gib": 30.12, "tokens_per_s": 9876.0, "num_label_tokens": 4096.0,
    }  # fmt: skip
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == [10, 11, 12]


def test_a_validation_is_an_event_and_no_step():
    _, _, events = read_file("automodel.log")
    assert [(event.step, event.data) for event in events] == [(12, {"validation_loss": 2.01}), (12, {"validation_loss": 2.02})]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "automodel.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
