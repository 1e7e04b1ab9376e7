"""mmengine's and mmcv's lines."""

import pytest
from reading import DATA, read_file, read_in_pieces, seconds

from trainvitals.logs.grammars.mmengine import MMEngine


def test_with_epochs_the_step_is_counted_through():
    parser, steps, _ = read_file("mmengine_epochs.log")
    assert parser.format == "mmengine"
    assert [step.step for step in steps] == [40, 80, 140]
    assert steps[0].values["loss"] == 2.9
    assert steps[0].values["lr"] == 1.5e-5
    assert steps[0].values["step_time_s"] == 2.1
    assert "eta" not in steps[0].values
    assert [seconds(step) for step in steps] == [11, 12, 21]


def test_a_nan_grad_norm_beside_a_finite_loss_stays_what_it_is():
    _, steps, _ = read_file("mmengine_epochs.log")
    assert steps[1].nonfinite == {"grad_norm": "nan"}
    assert steps[1].values["loss"] == 2.9


def test_an_evaluation_is_an_event_and_its_progress_is_nothing():
    _, _, events = read_file("mmengine_epochs.log")
    assert [event.data for event in events if event.kind == "message"] == [{"validation_loss": 2.8, "coco_bbox_map": 0.321}]


def test_by_iteration_the_line_tells_the_step():
    _, steps, events = read_file("mmengine_iterations.log")
    assert [step.step for step in steps] == [730, 740, 750]
    assert steps[0].values["tokens_per_s"] == 1012.8326
    assert steps[0].values["tflops_per_gpu"] == 34.3366
    assert [(event.kind, event.step) for event in events] == [("resume", 720), ("phase", 750), ("message", None)]
    assert seconds(steps[0]) == 10


def test_the_older_mmcv_is_read_too():
    parser, steps, _ = read_file("mmcv.log")
    assert parser.format == "mmengine"
    assert [(step.step, step.values["loss"]) for step in steps] == [(50, 5.4), (100, 5.4), (150, 1.6)]


def test_a_line_without_a_logger_in_front_is_somebody_elses():
    assert not MMEngine.claims("Epoch [1][40/500]\tlr: 1.5e-04, loss: 2.9")
    assert not MMEngine.claims("Epoch: [1][40/500]\tTime 0.5 (0.6)\tLoss 2.9 (3.0)")


@pytest.mark.parametrize("name", ["mmengine_epochs.log", "mmengine_iterations.log", "mmcv.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
