"""torchtune's log lines and bars."""

import pytest
from reading import DATA, read, read_file, read_in_pieces


def test_log_lines_are_steps():
    parser, steps, _ = read_file("torchtune.log")
    assert parser.format == "torchtune"
    assert [(step.step, step.values["loss"]) for step in steps] == [(1, 1.89), (2, 1.88), (3, 1.87)]
    assert steps[0].values["tokens_per_s"] == 512.3
    assert steps[2].nonfinite == {"grad_norm": "nan"}


def test_without_log_lines_the_bar_tells_step_and_loss():
    parser, steps, _ = read_file("torchtune_bar.log")
    assert parser.format == "torchtune"
    assert [(step.step, step.values) for step in steps] == [(1, {"loss": 1.91}), (2, {"loss": 1.9}), (3, {"loss": 1.89})]


def test_beside_log_lines_the_bar_is_not_counted():
    _, steps, _ = read(
        "Step 1 | loss:1.9 lr:2e-05 \n1|2|Loss: 1.8:  2%|# | 2/100 [00:01<00:10, 1.0it/s]\rStep 2 | loss:1.8 lr:1e-05 \n"
    )
    assert [(step.step, step.values["lr"]) for step in steps] == [(1, 2e-05), (2, 1e-05)]


@pytest.mark.parametrize("name", ["torchtune.log", "torchtune_bar.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
