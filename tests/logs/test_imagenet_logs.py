"""Lines of PyTorch's ImageNet example and its heirs."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_the_value_counts_and_its_running_mean_does_not():
    parser, steps, events = read_file("imagenet.log")
    assert parser.format == "imagenet"
    assert [step.step for step in steps] == [100, 110, 120]
    assert steps[0].values == {"step_time_s": 0.512, "data": 0.01, "loss": 6.9, "acc_1": 1.56, "acc_5": 3.12}
    assert steps[2].nonfinite == {"loss": "nan"}
    assert events == []


def test_an_heir_with_a_logger_is_read_with_its_time():
    parser, steps, _ = read_file("imagenet_heir.log")
    assert parser.format == "imagenet"
    assert [(step.step, step.values["loss"], step.values["lr"]) for step in steps] == [
        (4804, 5.198, 2.291e-05), (4904, 5.198, 2.291e-05), (5004, 5.198, 2.291e-05),
    ]  # fmt: skip
    assert [seconds(step) for step in steps] == pytest.approx([7.788, 8.788, 9.788])


@pytest.mark.parametrize("name", ["imagenet.log", "imagenet_heir.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
