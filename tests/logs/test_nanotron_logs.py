"""nanotron's lines."""

import pytest
from reading import DATA, read, read_file, read_in_pieces, seconds


def test_every_iteration_is_a_step_in_both_generations_of_numbers():
    parser, steps, _ = read_file("nanotron.log")
    assert parser.format == "nanotron"
    assert [step.step for step in steps] == list(range(1201, 1208))
    assert steps[0].values["loss"] == 2.61
    assert steps[0].values["tokens"] == 2.52e9
    assert steps[0].values["step_time_s"] == pytest.approx(9.8)
    assert steps[0].values["tokens_per_s"] == 214_000
    assert steps[0].values["tflops_per_gpu"] == 190
    assert steps[-1].values["loss"] == 2.601234
    assert steps[-1].values["grad_norm"] == 0.905


def test_dates_with_slashes_are_read_month_first():
    _, steps, _ = read_file("nanotron.log")
    assert [seconds(step) for step in steps] == [11, 12, 13, 14, 15, 16, 65]


def test_a_number_beyond_the_largest_unit_is_infinite():
    _, steps, _ = read_file("nanotron.log")
    assert steps[3].nonfinite == {"loss": "nan", "grad_norm": "inf"}


def test_the_start_tells_from_which_step_and_saving_is_an_event():
    _, _, events = read_file("nanotron.log")
    assert [(event.kind, event.step) for event in events] == [("resume", 1200), ("phase", 1206)]
    assert events[0].data == {"path": "/ckpt/1200"}


def test_a_start_from_nothing_is_no_resume():
    line = "01/02/2026 03:04:05 [INFO]: iteration: {} / 90 | consumed_tokens: 1K | lm_loss: 2.5\n"
    start = "01/02/2026 03:04:09 [INFO]: [Start training] datetime: 2026-01-02 03:04:09 | mbs: 2 | start_iteration_step: 0 | consumed_train_samples: 0\n"
    _, steps, events = read(line.format(8) + start + line.format(9))
    assert [event.data["phase"] for event in events] == ["start"]
    assert [step.attempt for step in steps] == [1, 2]


def test_a_line_with_a_validation_loss_only_is_no_step():
    line = "01/02/2026 03:04:05 [INFO]: iteration: {} / 90 | consumed_tokens: 1K | {}: 2.5\n"
    _, steps, events = read(line.format(1, "lm_loss") + line.format(1, "validation_loss"))
    assert [step.step for step in steps] == [1]
    assert events[0].data["validation_loss"] == 2.5


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "nanotron.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
