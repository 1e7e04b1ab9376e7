"""InternLM's and InternEvo's lines."""

from reading import DATA, read_file, read_in_pieces, seconds


def test_both_generations_of_the_line_are_steps_counted_from_zero():
    parser, steps, _ = read_file("internlm.log")
    assert parser.format == "internlm"
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert steps[0].values["loss"] == 11.6344
    assert steps[0].values["grad_norm"] == 63.67
    assert steps[0].values["tokens_per_s"] == 1424.64
    assert steps[0].values["tokens"] == 131072


def test_of_a_grad_norm_per_group_the_first_is_taken():
    _, steps, _ = read_file("internlm.log")
    assert steps[2].values["grad_norm"] == 87.31
    assert steps[2].values["tokens_per_s"] == 246.32


def test_a_data_set_without_samples_is_not_logged_and_a_nan_loss_is():
    _, steps, _ = read_file("internlm.log")
    assert [step.nonfinite for step in steps] == [{}, {}, {}, {"loss": "nan"}]


def test_a_zone_in_the_time_wins():
    _, steps, _ = read_file("internlm.log")
    assert seconds(steps[2]) == 12.409 - 8 * 3600


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "internlm.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
