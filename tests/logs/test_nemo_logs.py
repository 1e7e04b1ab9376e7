"""NeMo's and Lightning's bars and lines, made up in the shape of both generations, drawn as tqdm draws them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import MTIME_NS, read_in_pieces

from trainvitals.logs.grammars.lightning_bar import LightningBar
from trainvitals.logs.grammars.megatron import Megatron
from trainvitals.logs.grammars.nemo import NeMo
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def short(number):
    """As tqdm prints a float, and Lightning after it."""
    text = f"{number:.3g}".replace("e+0", "e+")
    return text if len(text) < len(str(float(number))) else str(float(number))


def bar(position, total, step, loss, extra="", epoch=0):
    return f"\rEpoch {epoch}: :   1%|1         | {position}/{total} [0:20:00<29:00:00, v_num=ab, reduced_train_loss={loss}, global_step={short(step)}{extra}]"


def test_the_smoothed_loss_that_stays_nan_is_not_read():
    _, steps, _ = parse(
        "\rEpoch 0:   1%|#         | 101/9000 [0:20:00<29:00:00, 12.00s/it, loss=nan, v_num=, val_loss_step=10.50, "
        "reduced_train_loss=4.250, gradient_norm=0.950, global_step=100.0, consumed_samples=2.56e+4, throughput=21.00]"
    )
    assert [(s.step, s.nonfinite) for s in steps] == [(100, {})]
    assert steps[0].values == {"loss": 4.25, "grad_norm": 0.95, "samples": 25600.0, "samples_per_s": 21.0}


def test_a_bar_that_is_drawn_before_its_metrics_change_gives_no_step_the_values_of_another():
    text = ""
    for step in range(1, 6):
        text += bar(step + 1, 600, step - 1, 9.0 - (step - 1) / 10) + bar(step + 1, 600, step, 9.0 - step / 10)
    _, steps, _ = parse(text)
    assert [(s.step, s.values["loss"]) for s in steps] == [(0, 9.0), *((n, pytest.approx(9.0 - n / 10)) for n in range(1, 6))]


def test_a_rounded_step_comes_from_the_bar_and_the_last_drawing_counts():
    text = "".join(bar(n + 1, 600_000, n, 3.0) for n in range(99_940, 99_950))
    for n in range(99_950, 100_200):
        text += bar(n + 1, 600_000, n - 1, round(2.0 + (n - 1) / 1e6, 6)) + bar(n + 1, 600_000, n, round(2.0 + n / 1e6, 6))
    _, steps, _ = parse(text)
    assert [s.step for s in steps] == list(range(99_940, 100_200))
    assert all(s.values["loss"] == pytest.approx(2.0 + s.step / 1e6) for s in steps[10:])


def test_a_short_rounded_step_is_made_exact():
    text = "".join(bar(n + 1, 9000, n, 3.0) for n in range(1990, 2011))
    assert "global_step=2e+3" in text
    _, steps, _ = parse(text)
    assert [s.step for s in steps] == list(range(1990, 2011))


def test_a_rounded_step_alone_is_told_by_the_counter():
    _, steps, _ = parse("\rEpoch 0:   2%|..| 12345/600000 [2:00:00<95:00:00, 1.71it/s, loss=2.8, v_num=ab, reduced_train_loss=2.810, "
                        "global_step=1.23e+4, consumed_samples=3.16e+6, train_step_timing in s=0.580]\n")  # fmt: skip
    assert [(s.step, s.values["loss"], s.values["step_time_s"]) for s in steps] == [(12345, 2.81, 0.58)]


def test_a_bar_that_counts_batches_is_not_taken_for_steps():
    text = "".join(bar(4 * n, 40_000, n, 3.0) for n in (100, 101, 102)) + bar(400_000, 900_000, 123_000, 2.5)
    _, steps, _ = parse(text)
    assert [s.step for s in steps] == [100, 101, 102, 123_000]


def test_steps_go_on_in_the_next_epoch():
    text = "".join(bar(n, 1000, 99_000 + n - 1, 3.0, epoch=99) for n in range(995, 1001))
    text += "".join(bar(n, 1000, 100_000 + n - 1, 2.9, epoch=100) for n in range(1, 6))
    _, steps, _ = parse(text)
    assert [s.step for s in steps] == list(range(99_994, 100_005))


def test_a_nan_loss_is_nonfinite_and_a_new_validation_a_message():
    text = (
        bar(2, 9, 1, "nan.0")
        + bar(3, 9, 2, 3.0, ", val_loss=2.800")
        + bar(4, 9, 3, 2.9, ", val_loss=2.800")
        + bar(5, 9, 4, 2.9, ", val_loss=2.700")
    )
    _, steps, events = parse(text)
    assert [(s.step, s.nonfinite) for s in steps] == [(1, {"loss": "nan"}), (2, {}), (3, {}), (4, {})]
    assert [(e.step, e.data) for e in events if e.kind == "message"] == [
        (2, {"validation_loss": 2.8}),
        (4, {"validation_loss": 2.7}),
    ]


def test_a_whole_nemo_2_log_is_read():
    parser, steps, events = parse((DATA / "nemo2.log").read_text())
    assert parser.format == "nemo"
    assert [(s.step, s.attempt) for s in steps] == [*((n, 1) for n in range(6)), *((n, 2) for n in range(4, 8))]
    assert steps[1].values == {
        "loss": 15.07, "lr": 1.961e-07, "global_batch_size": 4.0, "step_time_s": 2.008, "samples": 8.0, "tokens_per_s_per_gpu": 6859.0,
    }  # fmt: skip
    assert steps[3].time_ns == 1_760_671_982_000_000_000
    assert [(e.kind, e.step) for e in events if e.kind != "attempt_start"] == [
        ("phase", 3), ("phase", 3), ("message", 5), ("resume", 3),
    ]  # fmt: skip


def test_a_save_is_one_beginning_and_one_end_whatever_says_so():
    path = "/results/x--val_loss=2.91-epoch=0-step=99-consumed_samples=400.0.ckpt"
    line = "[NeMo I 2026-01-02 03:05:00 nemo_logging:393] "
    text = f"{line}Scheduled async checkpoint save for {path}\n" * 2
    text += f"{line}Successfully saved checkpoint from iteration      99 to {path}\n{line}Async checkpoint save for step 100 ({path}) finalized successfully.\n"
    _, _, events = parse(text, format="nemo")
    assert [(e.data["phase"], e.data["state"], e.step, e.data["path"]) for e in events] == [
        ("checkpoint", "begin", 99, path), ("checkpoint", "end", 99, path),
    ]  # fmt: skip


def test_megatron_does_not_claim_nemos_line_first():
    parser, steps, _ = parse(
        "0: Training epoch 0, iteration 7/99 | lr: 1e-05 | global_step: 7 | reduced_train_loss: 6.2 | val_loss: 3.6\n"
    )
    assert parser.format == "nemo"
    assert steps[0].values == {"loss": 6.2, "lr": 1e-5}


def test_the_global_step_wins_over_the_iteration_and_a_rounded_one_does_not():
    line = "Training epoch 0, iteration {}/99999 | lr: 1e-05 | global_step: {} | reduced_train_loss: 6.2\n"
    _, steps, _ = parse(line.format(0, 1) + line.format(1, 2) + line.format(12_345, "1.234e+04"))
    assert [s.step for s in steps] == [1, 2, 12_345]


@pytest.mark.parametrize(
    "line",
    [
        "Validation DataLoader 0:  10%|#         | 1/10 [00:00<00:00,  9.00it/s, reduced_train_loss=1.0, global_step=5.0]",
        "Sanity Checking DataLoader 0: 100%|#####| 2/2 [00:00<00:00,  9.00it/s]",
        "Epoch 0:   0%|          | 0/95 [00:00<?, ?it/s, reduced_train_loss=1.0, global_step=5.0]",
        "Validation: iteration 1/32",
        "checkpoints/x--reduced_train_loss=0.0801-epoch=3-step=2175-last/hf_adapter",
        " iteration 30/ 5000 | lm loss: 4.5E+00 |",
    ],
)
def test_what_is_no_training_bar_is_not_claimed(line):
    assert not NeMo.claims(line)
    assert not LightningBar.claims(line)


def test_a_plain_lightning_bar_counts_over_its_epochs():
    parser, steps, events = parse((DATA / "lightning_bar.log").read_text())
    assert parser.format == "lightning_bar"
    assert [s.step for s in steps] == list(range(1, 13))
    assert [s.values["loss"] for s in steps] == [pytest.approx(2.0 - n / 10) for n in range(1, 13)]
    assert [(e.step, e.data) for e in events if e.kind == "message"] == [
        (4, {"validation_loss": 1.75}),
        (8, {"validation_loss": 1.5}),
    ]
    assert set(steps[5].values) == {"loss", "train_acc"}


def test_bars_of_home_made_trainers_count_their_epochs_from_one():
    draw = "\rEpoch {}/2:  10%|#  | {}/3 [00:10<00:15,  3.70it/s, loss={}, lr=2e-05]"
    _, steps, _ = parse("".join(draw.format(epoch, n, n) for epoch in (1, 2) for n in range(4)))
    assert [s.step for s in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[0].values == {"loss": 1.0, "lr": 2e-5}


def test_the_bar_of_diffusers_goes_over_all_steps():
    draw = "\rSteps:   0%|          | {}/5000 [00:01<37:10,  2.23it/s, lr=0.0001, step_loss=0.{}]"
    _, steps, _ = parse("".join(draw.format(n, n) for n in range(1, 6)))
    assert [(s.step, s.values) for s in steps] == [(n, {"loss": n / 10, "lr": 0.0001}) for n in range(1, 6)]


def test_a_bar_that_goes_over_the_epochs_gives_a_step_an_epoch():
    draw = "\rEpoch {}/400:  10%|#  | {}/400 [00:10<00:15,  3.70it/s, v_num=1, train_loss_step=827, train_loss_epoch=888]"
    _, steps, _ = parse("".join(draw.format(epoch, position) for epoch in range(1, 6) for position in (epoch - 1, epoch)))
    assert [s.step for s in steps] == [1, 2, 3, 4, 5]


def test_a_bar_without_a_total_counts_on_from_the_epoch_before():
    draw = "\rEpoch {}: : {}it [00:04,  4.36s/it, v_num=d3, train_loss=0.67{}]"
    _, steps, _ = parse("".join(draw.format(epoch, n, n) for epoch in (0, 1) for n in range(1, 6)))
    assert [s.step for s in steps] == list(range(1, 11))


def test_a_running_mean_is_read_only_where_nothing_else_is_there():
    draw = "\rEpoch 0:  10%|#  | {}/95 [00:10<00:15,  3.70it/s, loss={}{}]"
    _, steps, _ = parse(draw.format(1, 2.5, "") + draw.format(2, "nan", ", train_loss=2.4"))
    assert [(s.values["loss"], s.nonfinite) for s in steps] == [(2.5, {}), (2.4, {})]


def test_a_training_bar_that_moves_on_while_validating_gives_no_steps():
    draw = "\rEpoch 0:  10%|#  | {}/95 [00:10<00:15,  3.70it/s, loss={}, v_num=1]"
    text = draw.format(4, 2.5) + "".join(
        f"\nValidating:  50%|##  | {n}/20 [00:00<00:00]\x1b[A" + draw.format(4 + n, 2.5) for n in range(1, 20)
    )
    _, steps, _ = parse(text + draw.format(25, 2.4))
    assert [s.step for s in steps] == [4, 25]


def test_a_torn_bar_gives_no_cut_number():
    _, steps, _ = parse("Epoch 0:  10%|#  | 1/95 [00:10<00:15,  3.70it/s, train_loss=2.5, train_acc=0.9")
    assert steps[0].values == {"loss": 2.5}


@pytest.mark.parametrize(
    "name", ["nemo2.log", "lightning_bar.log", "torchtitan.log", "mllog.log", "huggingface_llamafactory.log"]
)
@pytest.mark.parametrize("width", [1, 7, 1000])
def test_a_log_gives_the_same_records_in_whatever_pieces_it_comes(name, width):
    data = (DATA / name).read_bytes()
    parser = Parser("auto", mtime_ns=MTIME_NS)
    assert read_in_pieces(data, width) == parser.feed(data) + parser.finish()


LINES = st.one_of(
    st.text(max_size=60),
    st.builds(
        "Epoch {}:  10%|#  | {}/95 [00:10<00:15,  3.70it/s, train_loss={}, global_step={}{}".format,
        st.integers(0, 3), st.integers(0, 95), st.sampled_from(["1.5", "nan.0", "x"]),
        st.sampled_from(["5.000", "2e+3", "nan", "-1", "1e+99"]), st.sampled_from(["]", "", ", val_loss=1.5]", "]Restored all states from the checkpoint at /x/step=7.ckpt"]),
    ),
    st.builds(
        "Training epoch 0, iteration {}/99 | lr: {} | global_step: {} | reduced_train_loss: 2.0".format,
        st.integers(0, 99), st.sampled_from(["1", "x", ""]), st.sampled_from(["5", "5e+20", "", "nan"]),
    ),
    st.sampled_from(["Validating: 1", "Restored all states from the checkpoint at /x/step=7.ckpt", "Scheduled async checkpoint save for /x/step=9.ckpt"]),
)  # fmt: skip


@given(st.lists(LINES, max_size=20), st.integers(0, 20), st.sampled_from([NeMo, LightningBar]))
def test_no_line_makes_a_grammar_raise_and_its_state_goes_through_json_anywhere(lines, cut, grammar):
    whole, first, second = grammar(LineTimes()), grammar(LineTimes()), grammar(LineTimes())
    expected = [record for line in lines for record in whole.feed(line)] + whole.finish()
    found = [record for line in lines[:cut] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    found += [record for line in lines[cut:] for record in second.feed(line)] + second.finish()
    assert found == expected
    assert not any(Megatron.claims(line) for line in lines if NeMo.claims(line) and line.startswith("Epoch"))


def test_the_bar_of_kohyas_scripts_is_read():
    draw = "\rsteps:   {}%|          | {}/100 [00:01<37:10,  2.23it/s, avr_loss=0.{}]"
    _, steps, _ = parse("".join(draw.format(n, n, 125 * n) for n in (1, 2, 3)))
    assert [(s.step, s.values["loss"]) for s in steps] == [(1, 0.125), (2, 0.25), (3, 0.375)]


def test_lightnings_rich_bar_is_read():
    draw = "Epoch {}/1  ━━━━━╺━━━━━ {}/3 0:00:1{} • 0:00:15 3.70it/s v_num: 0.000 train_loss: {}.500 val_loss: 2.250\n"
    _, steps, _ = parse("".join(draw.format(epoch, n, n, n) for epoch in (0, 1) for n in (1, 2, 3)))
    assert [(s.step, s.values["loss"]) for s in steps] == [(1, 1.5), (2, 2.5), (3, 3.5), (4, 1.5), (5, 2.5), (6, 3.5)]
