"""verl's console lines."""

import pytest
from reading import DATA, read, read_file, read_in_pieces


def test_the_loss_is_the_policys():
    parser, steps, _ = read_file("verl.log")
    assert parser.format == "verl"
    assert [step.step for step in steps] == [1, 2, 3]
    assert [step.values.get("loss") for step in steps] == [-0.0171, -0.0171, None]
    assert steps[2].nonfinite == {"loss": "nan"}
    assert steps[0].values["grad_norm"] == 0.25
    assert steps[0].values["mfu"] == 31
    assert steps[0].values["tokens_per_s"] == 2150.5
    assert steps[0].values["step_time_s"] == 104.7


def test_validation_scores_alone_are_an_event():
    _, _, events = read_file("verl.log")
    assert [(event.step, event.data) for event in events] == [(3, {"val_core_gsm8k_reward_mean_1": 0.61})]


def test_an_older_line_that_ray_tore_is_read_as_far_as_it_goes():
    line = "(TaskRunner pid=1) step:4 - global_seqlen/min:210047.000 - actor/pg_loss:0.010 - actor/grad_norm:nan - mfu/actor:0.018 - prompt_length\n"
    _, steps, _ = read(line + "/mean:173.630 - timing_s/step:1630.262\n")
    assert [(step.step, step.nonfinite) for step in steps] == [(4, {"grad_norm": "nan"})]
    assert (steps[0].values["loss"], steps[0].values["mfu"]) == (0.01, pytest.approx(1.8))


def test_in_supervised_fine_tuning_it_is_the_training_loss():
    _, steps, events = read_file("verl_sft.log")
    assert [(step.step, step.values["loss"]) for step in steps] == [(1, 2.4), (2, 2.3)]
    assert steps[0].values["lr"] == pytest.approx(1e-5)
    assert [(event.step, event.data) for event in events] == [(2, {"validation_loss": 2.25})]


@pytest.mark.parametrize("name", ["verl.log", "verl_sft.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
