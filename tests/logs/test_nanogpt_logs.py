"""nanoGPT's relatives, each line made up in the shape of its source."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.nanogpt import NanoGPT
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("iter 120: loss 3.9000, time 500.25ms, mfu 30.00%", 120, {"loss": 3.9, "step_time_s": 0.50025, "mfu": 30.0}),
        ("iter 0: loss 10.9000, time 9500.25ms, mfu -100.00%", 0, {"loss": 10.9, "step_time_s": 9.50025}),
        ("iter 5: loss 3.9000, time 2.50s, mfu 31.20%, tps 1234.50", 5, {"loss": 3.9, "step_time_s": 2.5, "mfu": 31.2, "tokens_per_s": 1234.5}),
        ("iter 5: loss 3.9000, lr 0.000600, time 500.00ms", 5, {"loss": 3.9, "lr": 6e-4, "step_time_s": 0.5}),
        ("iter 5: loss 3.9000 (ce=3.8000, ce=0.1 w=0.500), time 500.00ms, lr 6.00e-04", 5, {"loss": 3.9, "lr": 6e-4, "step_time_s": 0.5}),
        ("Iter 5: loss 3.9000, time 500.00, MFU = 12.50%", 5, {"loss": 3.9, "step_time_s": 0.5, "mfu": 12.5}),
        ("iter 5: loss 3.9000", 5, {"loss": 3.9}),
        ("step    12 | loss: 9.700000 | lr 1.1000e-05 | norm: 3.1000 | dt: 420.00ms | tok/sec: 1248304.76", 12, {"loss": 9.7, "lr": 1.1e-5, "grad_norm": 3.1, "step_time_s": 0.42, "tokens_per_s": 1248304.76}),
        ("step    12 | loss: 9.700000 |, lr 1.1000e-05 | norm: None | dt: 420.00ms", 12, {"loss": 9.7, "lr": 1.1e-5, "step_time_s": 0.42}),
        ("step   12/19560 | loss 4.123456 (+0.12z)| norm 0.5000 (-0.10z)| lr 6.00e-04 | 300.12 ms | 45.1% bf16 MFU | 1748000 tok/s", 12, {"loss": 4.123456, "grad_norm": 0.5, "lr": 6e-4, "step_time_s": 0.30012, "mfu": 45.1, "tokens_per_s": 1748000.0}),
        ("step    1/20 | loss 11.009094 (+nanz)| norm 15.3700 (+nanz)| lr 1.00e-06 | 2500.10 ms | -100.0% bf16 MFU | 20971 tok/s", 1, {"loss": 11.009094, "grad_norm": 15.37, "lr": 1e-6, "step_time_s": 2.5001, "tokens_per_s": 20971.0}),
        ("step    3/10 | train loss 5.270007 | norm 30.4000 | lr 1.00e-04 | (80.10 ms | 3254 tok/s)", 3, {"loss": 5.270007, "grad_norm": 30.4, "lr": 1e-4, "step_time_s": 0.0801, "tokens_per_s": 3254.0}),
        ("step    1/74: train loss 4.367631 (acc 4.367631) (80.639749 ms, 12345.0 tok/s)", 1, {"loss": 4.367631, "accuracy": 4.367631, "step_time_s": 0.080639749}),
        ("step 3: train loss 4.367631 (took 1880.639749 ms)", 3, {"loss": 4.367631, "step_time_s": 1.880639749}),
        ("s:150 trl:5.4321 lr:0.000210 norm:0.55", 150, {"loss": 5.4321, "lr": 2.1e-4, "grad_norm": 0.55}),
        ("s:150 trl:5.4321", 150, {"loss": 5.4321}),
        ("step:500/9000 train_loss:3.9000 train_time:850000ms step_avg:1700.00ms", 500, {"loss": 3.9, "step_avg_s": 1.7}),
        ("step:5/9000 train_loss:3.9000 train_time:850ms step_avg:nanms tok_s:52000", 5, {"loss": 3.9, "tokens_per_s": 52000.0}),
        ("step:501/9000 train_time:123.456s step_avg:246.42ms", 501, {"step_avg_s": 0.24642}),
        ("step 00012/21400 (0.06%) | loss: 4.123456 | lrm: 1.00 | dt: 500.12ms | tok/sec: 1,000,000 | mfu: 48.10 | total time: 1.20m", 12, {"loss": 4.123456, "lrm": 1.0, "step_time_s": 0.50012, "tokens_per_s": 1e6, "mfu": 48.1}),
        ("step 00012/21400 ( 0.06%) | loss: 4.123456 | grad_norm: 0.5000 | lrm: 1.00 | dt: 500.12ms | data_wait: 1.50ms | tok/sec: 1,000,000 | bf16_mfu: 48.10 | epoch: 1 | total time: 1.20m | eta: 9.1m", 12, {"loss": 4.123456, "grad_norm": 0.5, "lrm": 1.0, "step_time_s": 0.50012, "data_wait_s": 0.0015, "tokens_per_s": 1e6, "mfu": 48.1, "epoch": 1.0}),
        ("Step 00010/00500 | Training loss: 1.234567| lrm: 0.900000| num_tokens: 12,345", 10, {"loss": 1.234567, "lrm": 0.9, "num_tokens": 12345.0}),
        ("12 train 9.700000", 12, {"loss": 9.7}),
        ("Step 7 | Time: 12.34s | Loss: 0.1234 | Entropy: 0.5000 | Mismatch KL: 0.0010 | Grad. Norm: 0.2500 | LR: 1.00e-06 | Throughput: 12345 tokens/s | MFU: 31.5% | Peak Mem.: 60.1/79.2 GiB (75.9%)", 7, {"step_time_s": 12.34, "loss": 0.1234, "entropy": 0.5, "mismatch_kl": 0.001, "grad_norm": 0.25, "lr": 1e-6, "tokens_per_s": 12345.0, "mfu": 31.5}),
    ],
)  # fmt: skip
def test_each_relative_is_read(line, step, values):
    for noise in ("", "0: ", "2026-01-02 03:04:05,678 - INFO - ") if not line[0].isdigit() else ("",):
        _, steps, _ = parse(f"{noise}{line}\n")
        assert [s.step for s in steps] == [step]
        assert steps[0].values == pytest.approx(values)
        assert steps[0].nonfinite == {}


@pytest.mark.parametrize("loss", ["nan", "-nan", "inf"])
def test_a_loss_that_is_no_number_is_nonfinite(loss):
    _, steps, _ = parse(
        f"step   12/60 | loss {loss} (+nanz)| norm nan (+nanz)| lr 6.00e-04 | 300.12 ms\niter 5: loss {loss}, time 1.00ms\n"
    )
    assert all(s.nonfinite["loss"] in ("nan", "inf") and "loss" not in s.values for s in steps)
    assert len(steps) == 2


@pytest.mark.parametrize(
    ("line", "step", "data"),
    [
        ("step 250: train loss 3.2000, val loss 3.3000", 250, {"validation_loss": 3.3}),
        ("step:0/9000 val_loss:10.8258 train_time:0.012s step_avg:nanms", 0, {"validation_loss": 10.8258}),
        ("step:5/100 val_bpb:1.2345 val_time:2.50s train_time:0ms step_avg:0.00ms", 5, {"validation_bpb": 1.2345}),
        ("s:250 tel:6.1710", 250, {"validation_loss": 6.171}),
        ("s:250 eval:0.2456", 250, {"validation_accuracy": 0.2456}),
        ("Step 00250 | Validation bpb: 1.0234", 250, {"validation_bpb": 1.0234}),
        ("Step 00250 | Validation loss: 1.0234", 250, {"validation_loss": 1.0234}),
        ("250 val 6.1000", 250, {"validation_loss": 6.1}),
        ("250 hella 0.2500", 250, {"validation_accuracy": 0.25}),
        ("validation loss: 6.1000", None, {"validation_loss": 6.1}),
    ],
)
def test_a_validation_is_a_message_and_no_step(line, step, data):
    assert not NanoGPT.claims(line)
    _, steps, events = parse(line + "\n", format="nanogpt")
    assert steps == []
    assert [(e.kind, e.step, e.data) for e in events] == [("message", step, data)]


def test_a_step_line_without_a_loss_is_a_step_with_timings_and_no_nan():
    text = "".join(f"step:{n}/9000 train_time:{100 + 250 * n}ms step_avg:{250}.00ms\n" for n in range(1, 6))
    parser, steps, _ = parse(text)
    assert parser.format == "nanogpt"
    assert [(s.step, s.nonfinite) for s in steps] == [(n, {}) for n in range(1, 6)]
    assert steps[0].values == {"step_avg_s": 0.25}
    assert all(s.values == {"step_avg_s": 0.25, "step_time_s": 0.25} for s in steps[1:])


def test_a_clock_that_is_set_back_gives_no_negative_time():
    text = "step:9/90 train_time:9000ms step_avg:nanms\nstep:10/90 train_time:50ms step_avg:nanms\nstep:11/90 train_time:300ms step_avg:250.00ms\n"
    _, steps, _ = parse(text)
    assert [s.values.get("step_time_s") for s in steps] == [None, None, 0.25]


@pytest.mark.parametrize(
    "line",
    [
        'print(f"step {step:5d} | loss: {loss_accum.item():.6f} | lr {lr:.4e} | norm: {norm:.4f}")',
        'print(f"iter {iter_num}: loss {lossf:.4f}, time {dt*1000:.2f}ms")',
        'print0(f"step:{step+1}/{args.num_iterations} train_time:{approx_time:.0f}ms step_avg:{approx_time/timed_steps:.2f}ms")',
        "step 12 | some text | more",
        "step 12 | loss: 3.0 | accuracy: 0.5",
        "Step 1 | loss:1.9 lr:2e-5 tokens_per_second_per_gpu:1000",
        "Step 7 | Time: 12.34s | Reward: 0.5000 | Throughput: 12345 tokens/s",
        "step 12 | val loss: 3.0 | lr 1e-5",
        "12 train 9.7",
        "epoch 12 train 9.700000",
        "100 train images",
        "gradient step 5 of 9, loss goes down",
    ],
)
def test_source_code_and_lines_of_others_are_not_claimed(line):
    assert not NanoGPT.claims(line)


def test_a_second_start_is_told():
    line = "iter {}: loss 3.0, time 1.00ms, mfu 1.00%\n"
    _, steps, _ = parse(line.format(10) + "Resuming training from out\n" + line.format(9) + line.format(10))
    assert [(s.step, s.attempt) for s in steps] == [(10, 1), (9, 2), (10, 2)]


PIECES = st.sampled_from([
    "step", "Step ", "12", "/90", " | ", "loss", ": ", "3.5", "nan", "(+0.1z)", "| norm 0.5", "| lr 1e-4", " ms", "step:5/9 ", "train_time:",
    "train_loss:", "1e999", "ms ", "step_avg:", "iter 5: loss ", ", time ", "s:5 trl:", " lr:", "12 train ", "9.700000", "val_loss:", "-", "%",
])  # fmt: skip


@given(st.lists(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=40)), max_size=12), st.integers(0, 12))
def test_no_line_makes_the_grammar_raise_and_its_state_goes_through_json_anywhere(lines, cut):
    whole, first, second = NanoGPT(LineTimes()), NanoGPT(LineTimes()), NanoGPT(LineTimes())
    expected = [record for line in lines for record in whole.feed(line)]
    found = [record for line in lines[:cut] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    found += [record for line in lines[cut:] for record in second.feed(line)]
    assert found == expected
    assert all(NanoGPT.claims(line) <= bool(NanoGPT(LineTimes()).feed(line)) for line in lines)


def test_a_hostile_line_costs_no_more_than_its_length():
    for line in (
        "step 1 | loss: " + "1" * 60_000,
        "iter 1: loss 1 (" + "(" * 60_000,
        "step 1 |" + " |" * 30_000 + "loss",
        "step:1/2 train_time:" + "a:1 " * 15_000,
    ):
        NanoGPT.claims(line)
        NanoGPT(LineTimes()).feed(line)


def test_a_step_that_is_padded_behind_and_large_units_are_read():
    from trainvitals.logs.grammars.step_cells import cell_line

    found = cell_line(
        "[rank 0] Step: 7     | Loss: 8.5000 | Global batch size: 512.0K | Tokens/s: 100.5K | MFU: 40.10% | Memory usage: 10.10GB"
    )
    assert found is not None
    assert found.step == 7
    assert dict(found.metrics.values) == {"loss": 8.5, "global_batch_size": 512_000.0, "tokens_per_s": 100_500.0, "mfu": 40.1}
