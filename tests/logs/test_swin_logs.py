"""Swin Transformer's lines."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_the_value_counts_and_its_running_mean_does_not():
    parser, steps, _ = read_file("swin.log")
    assert parser.format == "swin"
    assert [step.step for step in steps] == [300, 310, 320]
    assert steps[0].values == {
        "lr": 0.000125, "wd": 0.05, "step_time_s": 0.49, "loss": 6.9, "grad_norm": 1.5, "loss_scale": 65536.0,
    }  # fmt: skip
    assert [step.nonfinite for step in steps] == [{}, {}, {"loss": "nan"}]
    assert [seconds(step) for step in steps] == [5, 15, 25]


def test_loading_saving_and_evaluating_are_events():
    _, _, events = read_file("swin.log")
    assert [event.kind for event in events] == ["resume", "phase", "message"]
    assert events[-1].data == {"accuracy_top1": 70.123, "accuracy_top5": 90.456}


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "swin.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
