"""fairseq's and metaseq's lines, in three log formats."""

import pytest
from reading import DATA, read, read_file, read_in_pieces, seconds


def test_json_lines_hold_numbers_as_strings():
    parser, steps, _ = read_file("fairseq_json.log")
    assert parser.format == "fairseq"
    assert [step.step for step in steps] == [210, 220, 230]
    assert steps[0].values["loss"] == 7.5
    assert steps[0].values["tokens_per_s"] == 2000.5
    assert steps[0].values["loss_scale"] == 64
    assert steps[2].nonfinite == {"loss": "nan"}
    assert [seconds(step) for step in steps] == [70, 80, 90]


def test_the_mean_over_an_epoch_is_no_step_and_an_evaluation_is_an_event():
    _, _, events = read_file("fairseq_json.log")
    validation = next(event for event in events if "validation_loss" in event.data)
    assert (validation.step, validation.data) == (
        230,
        {"validation_loss": 7.1, "validation_ppl": 128.0, "validation_nll_loss": 7.0},
    )


def test_overflows_and_checkpoints_are_events():
    _, _, events = read_file("fairseq_json.log")
    assert [(event.kind, event.step) for event in events if event.kind != "message"] == [
        ("resume", 200), ("phase", 230), ("phase", 230),
    ]  # fmt: skip
    assert {"overflow": True, "loss_scale_next": 64.0} in [event.data for event in events]


@pytest.mark.parametrize(
    "note", ["NOTE: overflow detected, setting loss scale to: 32.0", "NOTE: gradient overflow detected, ignoring gradient"]
)
def test_both_spellings_of_an_overflow_are_known(note):
    _, _, events = read(f"2026-01-02 03:04:05 | INFO | fairseq.trainer | {note}\n", "fairseq")
    assert events[0].data["overflow"] is True


def test_simple_lines_and_bars_are_read_by_their_updates():
    _, steps, events = read_file("fairseq_simple.log")
    assert [step.step for step in steps] == [100, 200, 300, 500, 501, 988]
    assert steps[0].values["loss"] == 9.4
    assert "tokens_per_s" not in steps[0].values  # the meter has not begun
    assert (events[0].step, events[0].data["validation_loss"]) == (487, 9.001)


def test_the_older_tag_is_read_and_the_mean_over_an_epoch_is_no_step():
    line = '2026-01-02 03:04:05 | INFO | train | {"epoch": 1, %s}\n'
    _, steps, _ = read(line % '"loss": "7.5", "num_updates": "40"' + line % '"train_loss": "7.4", "train_num_updates": "40"')
    assert [(step.step, step.values["loss"]) for step in steps] == [(40, 7.5)]


def test_the_norms_of_a_hundred_layers_before_the_loss_hide_nothing():
    layers = "".join(f'"gnorm_layer{n}": "0.1", "gmax_layer{n}": "0.01", "gnorm_head{n}": "0.2", ' for n in range(120))
    line = '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, %s"loss": "7.5", "num_updates": "40", "gnorm": "1.5"}\n'
    _, steps, _ = read(line % layers)
    assert (steps[0].step, steps[0].values["loss"], steps[0].values["grad_norm"]) == (40, 7.5, 1.5)


def test_an_update_that_was_skipped_is_no_step():
    line = "2026-01-02 03:04:05 | INFO | train_inner | epoch 001:      {} / 78 {}loss_scale=16, train_wall=0, wall=7\n"
    _, steps, _ = read(line.format(3, "") + line.format(4, "loss=1.006, ppl=2.01, num_updates=1, lr=2e-07, gnorm=0.056, "))
    assert [step.step for step in steps] == [1]


def test_hydras_prefix_is_read_too():
    train = '[2026-01-02 03:04:10,500][train_inner][INFO] - {"epoch": 1, "loss": "7.5", "num_updates": "40", "wps": "100"}\n'
    valid = '[2026-01-02 03:04:20,500][valid][INFO] - {"epoch": 1, "valid_loss": "7.1", "valid_num_updates": "40"}\n'
    _, steps, events = read(train + valid)
    assert [(step.step, step.values["loss"], seconds(step)) for step in steps] == [(40, 7.5, 10.5)]
    assert [(event.step, event.data) for event in events] == [(40, {"validation_loss": 7.1})]


def test_a_torn_json_line_counts_as_bad():
    line = '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "loss": "7.5", "num_updates": "400", "lr": "0.0'
    parser, steps, _ = read(line + "\n", "fairseq")
    assert steps == []
    assert parser.counters["bad_records"] == 1


def test_json_nested_beyond_reason_counts_as_bad():
    line = '| train_inner | {"num_updates": "400", "loss": ' + "[" * 20_000
    parser, steps, _ = read(line + "\n", "fairseq")
    assert steps == []
    assert parser.counters["bad_records"] == 1


@pytest.mark.parametrize("name", ["fairseq_json.log", "fairseq_simple.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)
