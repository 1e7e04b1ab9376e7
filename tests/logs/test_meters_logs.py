"""Lines of torchvision's meters (DeiT, BEiT, MAE, DINO)."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds


def test_the_value_counts_and_its_running_mean_does_not():
    parser, steps, _ = read_file("meters.log")
    assert parser.format == "meters"
    assert [(step.step, step.values["loss"], step.values["grad_norm"]) for step in steps] == [
        (1500, 6.9, 0.5), (1520, 6.7, 0.5), (1540, 6.5, 0.5),
    ]  # fmt: skip
    assert all(step.nonfinite == {} for step in steps)
    assert steps[0].values["step_time_s"] == 0.62


def test_a_test_loop_is_no_training_and_its_end_is_an_event():
    _, _, events = read_file("meters.log")
    assert [(event.kind, event.data) for event in events] == [
        ("resume", {"path": "./ckpt/checkpoint-2.pth"}), ("message", {"validation_loss": 1.3}),
    ]  # fmt: skip


def test_dinov2_counts_through_and_dates_with_a_year():
    _, steps, _ = read_file("meters_dinov2.log")
    assert [(step.step, step.values["loss"]) for step in steps] == [(0, 11.25), (10, 11.25), (20, 11.25)]
    assert [seconds(step) for step in steps] == [0, 1, 2]


@pytest.mark.parametrize("name", ["meters.log", "meters_dinov2.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
