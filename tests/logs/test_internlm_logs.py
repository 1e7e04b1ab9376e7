"""InternLM's and InternEvo's lines."""

from reading import DATA, read, read_file, read_in_pieces, seconds


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


def test_the_start_that_every_rank_prints_is_one():
    start = "===========New Run Jan02_03-04-05 on host:node-1,tp:0,pp=0,dp={}===========\n"
    step = "INFO train.py:1 in record_current_batch_training_metrics -- step={},loss=3.5,lr=1e-6\n"
    starts = start.format(0) + start.format(1)
    _, steps, events = read(starts + step.format(0) + step.format(1) + starts + step.format(2))
    assert [(step.step, step.attempt) for step in steps] == [(0, 1), (1, 1), (2, 2)]
    assert [event.kind for event in events] == ["phase", "phase"]


def test_resuming_and_saving_are_events():
    _, _, events = read(
        "INFO train.py:1 in main -- ===========Resume training from `ckpt/40` Jan02_03-04-05 on host:node-1===========\n"
        "INFO train.py:1 in record_current_batch_training_metrics -- step=40,loss=3.5,lr=1e-6\n"
        "INFO x.py:1 in save -- Saving checkpoint to `ckpt/41` at batch count:41...\n"
        "INFO x.py:1 in save -- Step: 41, rank 0 save ckpt use 12.345 s\n"
    )
    assert [(event.kind, event.step) for event in events] == [("resume", None), ("phase", 41), ("phase", 41)]


def test_a_torn_log_reads_the_same_in_any_pieces():
    raw = (DATA / "internlm.log").read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
