"""Megatron-LM, its generations and forks, on made-up lines in the real shape."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron_lines import FULL, parse, read, steps, values

from trainvitals.logs.grammars.megatron import Megatron
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"


class CarefulMegatron(Megatron):
    """Never learns a layout, so that each line is read with care."""

    def _learn(self, text, names, factors):
        pass


# --- the learnt layout --------------------------------------------------------------------------------------------------------


def mutated(draw):
    line = draw(
        st.sampled_from(
            (FULL, FULL.replace(" mtp_1 loss: 5.100000E+00 |", ""), FULL.replace("iterations:   0", "iterations:   2"))
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        end = min(len(line), at + draw(st.integers(0, 12)))
        piece = draw(
            st.sampled_from(
                (
                    "",
                    "0",
                    "nan",
                    "inf",
                    ":",
                    "|",
                    " |",
                    "1_0",
                    "e400",
                    " iteration 31/ 5000 |",
                    "٣",
                    "\x1c",
                    "x",
                    FULL[at:end] * 2,
                )
            )
        )
        line = line[:at] + piece + line[end:]
    return line


@settings(max_examples=400, deadline=None)
@given(st.lists(st.composite(mutated)(), min_size=1, max_size=8))
def test_a_line_of_a_learnt_layout_gives_what_the_careful_way_gives(lines):
    lines = [FULL, *lines, FULL]
    fast, careful = read(lines), read(lines, CarefulMegatron)
    assert fast == careful
    assert [list(record.values) for record in fast if isinstance(record, Step)] == [
        list(record.values) for record in careful if isinstance(record, Step)
    ]


def test_the_second_line_is_read_by_the_learnt_layout(monkeypatch):
    reader = Megatron(LineTimes())
    reader.feed(FULL)
    monkeypatch.setattr(reader, "_iteration", None)
    (step,) = reader.feed(FULL.replace("      30/", "      31/"))
    assert (step.step, step.time_ns, step.values["loss"], step.values["step_time_s"]) == (
        31,
        1_767_323_045_123_456_000,
        4.5,
        0.9005,
    )


def test_two_layouts_that_take_turns_are_both_learnt(monkeypatch):
    other = FULL.replace(" num zeros: 0.0 |", "")
    reader = Megatron(LineTimes())
    reader.feed(FULL)
    reader.feed(other)
    monkeypatch.setattr(reader, "_iteration", None)
    assert [len(reader.feed(line)[0].values) for line in (FULL, other, FULL)] == [14, 13, 14]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.composite(mutated)(), min_size=2, max_size=6), st.data())
def test_a_state_that_went_through_json_continues_the_same(lines, data):
    at = data.draw(st.integers(0, len(lines)))
    whole, first, second = Megatron(LineTimes()), Megatron(LineTimes()), Megatron(LineTimes())
    expected = [record for line in lines for record in whole.feed(line)]
    got = [record for line in lines[:at] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state())))
    got += [record for line in lines[at:] for record in second.feed(line)]
    assert got == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=200), st.composite(mutated)()), max_size=5))
def test_no_line_makes_it_raise(lines):
    reader = Megatron(LineTimes())
    for line in lines:
        reader.claims(line)
        reader.feed(line)


# --- generations and forks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            " iteration      100/  320000 | elapsed time per iteration (ms): 410.5 | learning rate 1.500E-04 | lm loss 7.250000E+00 | "
            "loss scale 65536.0 |",
            {"step_time_s": 0.4105, "lr": 1.5e-4, "loss": 7.25, "loss_scale": 65536.0},
            id="2019, no colons",
        ),
        pytest.param(
            " iteration       50/   20000 | elapsed time per iteration (ms): 4105.0 | learning rate 1.000E-04 | total loss 2.500000E-01 | "
            "diffusion loss 2.400000E-01 |loss scale 2048.0 |speed 12.50 samples/(min*GPU)",
            {"step_time_s": 4.105, "lr": 1e-4, "loss": 0.25, "diffusion_loss": 0.24, "loss_scale": 2048.0},
            id="SwissArmyTransformer",
        ),
        pytest.param(
            " iteration       10/    1000 | elapsed time per iteration (ms): 410.5 | learning rate: 1.500E-04 | lm loss: 7.2500E+00 | "
            "sop loss: 6.9E-01 | loss scale: 4096.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            {"step_time_s": 0.4105, "lr": 1.5e-4, "loss": 7.25, "sop_loss": 0.69, "loss_scale": 4096.0, "skipped": 0.0, "nan_iterations": 0.0},
            id="2020, two losses",
        ),
        pytest.param(
            " iteration        3/   50000 | consumed samples:          768 | consumed tokens:      1572864 | elapsed time per iteration (ms): "
            "3381.0 | learning rate: 1.406E-07 | gloabl batch size:   256 | lm loss: 1.2E+01 | loss scale: 1.0 | grad norm: 9.216 | actual seqlen:"
            "  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 7.570 | TFLOPs: 107.09 |",
            {
                "samples": 768.0, "tokens": 1572864.0, "step_time_s": 3.381, "lr": 1.406e-7, "global_batch_size": 256.0, "loss": 12.0,
                "loss_scale": 1.0, "grad_norm": 9.216, "actual_seqlen": 2048.0, "skipped": 0.0, "nan_iterations": 0.0,
                "samples_per_s": 7.57, "tflops_per_gpu": 107.09,
            },
            id="Megatron-DeepSpeed, AscendSpeed",
        ),
        pytest.param(
            "[20260102 03:04:05][rank-7/8][INFO ] [--------trainer.py:2560] :  iteration      126/   5000 | consumed samples:        16128 | "
            "elapsed time per iteration (ms): 13372.5/13364.7 | hip mem usage/free/total/usage_ratio: 153.50GB/102.25GB/255.75GB/60.00% | "
            "throughput per GPU (TFLOP/s/GPU): 567.5/568.0 | tokens per GPU (tokens/s/GPU): 9801.5/9807.3 | lm loss: 6.5E-03 | "
            "rank-1 rocm max mem usage/usage_ratio: 63.50GB/22.00% | number of skipped iterations:   0 |",
            {
                "samples": 16128.0, "step_time_s": 13.3725, "hip_mem_usage": 153.5, "hip_mem_free": 102.25, "hip_mem_total": 255.75,
                "hip_mem_usage_ratio": 60.0, "tflops_per_gpu": 567.5, "tokens_per_s_per_gpu": 9801.5, "loss": 0.0065,
                "rocm_max_mem_usage": 63.5, "rocm_max_mem_usage_ratio": 22.0, "skipped": 0.0,
            },
            id="AMD Primus",
        ),
        pytest.param(
            " [2026-01-02 03:04:05] iteration 9/ 50 | elapsed time per iteration (s): 2.5 | compute per GPU (TFLOP/s/GPU): 400.5 (avg 399.0) | "
            "tokens/s/GPU inst/harmonic mean: 8000.5/7900.0 | lm loss: 2.0E+00 | router/entropy: 0.5 | energy per GPU (J/iter/GPU): 1990.5 |",
            {
                "step_time_s": 2.5, "tflops_per_gpu": 400.5, "tokens_per_s_per_gpu": 8000.5, "loss": 2.0, "router_entropy": 0.5,
                "energy_per_gpu_j_iter_gpu": 1990.5,
            },
            id="newer Primus, energy, keys with slashes",
        ),
        pytest.param(
            " samples/sec: 3.456 | iteration       10/  320000 | elapsed time per iteration (ms): 9259.2 | learning rate: 1.2E-05 | "
            "approx flops per GPU: 45.2TFLOPS | lm_loss: 1.05E+01 | loss scale: 4096.0 | number of skipped iterations:   0 |",
            {
                "step_time_s": 9.2592, "lr": 1.2e-5, "tflops_per_gpu": 45.2, "loss": 10.5, "loss_scale": 4096.0, "skipped": 0.0,
                "samples_per_s": 3.456,
            },
            id="GPT-NeoX",
        ),
        pytest.param(
            " [2026-01-02 03:04:05] iteration 9/ 50 | throughput (token/sec/GPU): 900.5 | flop throughput (TFLOP/sec/GPU): 99.5 | lm loss: 2.0 | "
            "mem-allocated-bytes-avg(MB): 1000.25 |",
            {"tokens_per_s_per_gpu": 900.5, "tflops_per_gpu": 99.5, "loss": 2.0, "mem_allocated_bytes_avg_mb": 1000.25},
            id="throughput in tokens",
        ),
        pytest.param(
            "[2026-01-02 03:04:05.123456][INFO][training_log:661] -  iteration=       9/   50 | consumed_samples=         768 | "
            "elapsed_time_per_iteration_ms=29570.0 | learning_rate=9.4372e-09 | global_batch_size=768 | lm loss=11.16725 | loss_scale=1.0 | "
            "grad_norm=6.363 | actual_seqlen= 4096 | number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | "
            "samples_per_second=25.972 | tokens_per_gpu_per_second_tgs=4432.5 | [LM]TFLOPs=20.25 | [DS]TFLOPs=26.25 |",
            {
                "samples": 768.0, "step_time_s": 29.57, "lr": 9.4372e-9, "global_batch_size": 768.0, "loss": 11.16725, "loss_scale": 1.0,
                "grad_norm": 6.363, "actual_seqlen": 4096.0, "skipped": 0.0, "nan_iterations": 0.0, "samples_per_s": 25.972,
                "tokens_per_s_per_gpu": 4432.5, "tflops_per_gpu": 20.25, "ds_tflops": 26.25,
            },
            id="Argonne, equals signs",
        ),
        pytest.param(
            " [2026-01-02 03:04:05] iteration 9/ 50 | memory(GiB): 40.5 | elapsed time: 34s | remaining time: 2h 5m | lm loss: 2.0E+00 |",
            {"memory_gib": 40.5, "loss": 2.0},
            id="ms-swift",
        ),
        pytest.param(
            " iteration 9/ 50 | lm loss: 2.0E+00 | grad norm: 1.5 | number of nan iterations:   0 | TFLOPs: 89.5 | ETA Time: 2 days, 3:04:05",
            {"loss": 2.0, "grad_norm": 1.5, "nan_iterations": 0.0, "tflops_per_gpu": 89.5},
            id="an end without a bar",
        ),
    ],
)  # fmt: skip
def test_every_generation_gives_the_names_of_the_schema(line, expected):
    assert Megatron.claims(line)
    assert values(line) == pytest.approx(expected)


def test_ms_swifts_dictionaries_name_the_iteration():
    line = "{{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 1e-05, 'iteration': '{}/100', 'elapsed_time': '34s', 'train_speed(s/it)': 2.5}}\n"
    found, _ = parse("".join(line.format(step) for step in (5, 10, 15)))
    assert [(step.step, step.values["loss"]) for step in found] == [(5, 2.5), (10, 2.5), (15, 2.5)]


def test_a_date_without_dashes_is_a_time():
    (step,) = steps(["[20260102 03:04:05][rank-7/8][INFO ] [trainer.py:2560] :  iteration 1/ 5 | lm loss: 2.0E+00 |"])
    assert step.time_ns == 1_767_323_045_000_000_000


def test_seconds_since_1970_in_a_cell_are_the_time_where_no_date_is():
    line = " iteration 1/ 5 | current time: 1767323045.25 | lm loss: 2.0E+00 | number of skipped iterations: 0 |"
    first, second = steps([line, line.replace("1/ 5", "2/ 5").replace("045.25", "046.25")])
    assert (first.time_ns, second.time_ns) == (1_767_323_045_250_000_000, 1_767_323_046_250_000_000)
    assert first.values == {"loss": 2.0, "skipped": 0.0}


def test_a_second_number_in_brackets_behind_the_step_is_no_step():
    (step,) = steps([" samples/sec: 51.25 | iteration      100 [ 7 ]/    5000 | lm_loss: 2.0E+00 |"])
    assert (step.step, step.values) == (100, {"loss": 2.0, "samples_per_s": 51.25})


def test_a_line_of_nemo_2_is_not_megatrons():
    line = "Training epoch 0, iteration 40/500 | lr: 2e-05 | global_step: 40 | reduced_train_loss: 1.9 | train_step_timing in s: 0.05"
    assert not Megatron.claims(line)
    assert read([line]) == []


@pytest.mark.parametrize(
    "line",
    [
        "        log_string = ' iteration {:8d}/{:8d} |'.format(iteration, args.train_iters)",
        "iteration:   120/9000   1% | elapsed time: 01:02:03 | per_token_loss: 4.1 |",
        "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0]: iteration: 1200 / 9000 | lm_loss: 2.61 | lr: 2e-05 |",
        "eval iter:3 | forward backward done",
        "setting training data start iteration to 0",
    ],
)
def test_lines_of_others_and_source_code_are_not_claimed(line):
    assert not Megatron.claims(line)
    assert read([line]) == []


def test_a_line_wrapped_at_its_end_keeps_its_loss_and_invents_no_nan():
    found = read(
        [
            " iteration 3/ 50 | lm loss: 1.5E+00 | actual seqlen: 2048 | number of skipped",
            "iterations: 0 | number of nan iterations: 0 |",
        ]
    )
    assert [(record.values, record.nonfinite) for record in found] == [({"loss": 1.5, "actual_seqlen": 2048.0}, {})]


def test_two_processes_in_one_line_are_two_records():
    found = steps([" iteration 3/ 50 | lm loss: 1.5E+00 | grad norm: 0. iteration 4/ 50 | lm loss: 1.25E+00 |"])
    assert [(step.step, step.values) for step in found] == [(3, {"loss": 1.5}), (4, {"loss": 1.25})]


def test_what_another_rank_writes_behind_the_last_bar_is_left_out():
    assert values(" iteration 3/ 50 | lm loss: 1.5E+00 |[rank3]: grad norm: 9.0 | loss: 7.0 |") == {"loss": 1.5}


def test_a_line_into_which_another_process_wrote_has_no_nan():
    whole = " iteration 2/ 50 | consumed samples: 64 | lm loss: 1.5E+00 |"
    found = steps([whole, " iteration 3/ 50 | consumed samples: 96 |time (ms) | forward-compute: 61.5 |"])
    assert (found[1].values, found[1].nonfinite) == ({"samples": 96.0}, {})


@pytest.mark.parametrize(
    "before",
    [
        "",
        " ",
        "INFO [2026-01-02 03:04:05] >>  ",
        "[2026-01-02 03:04:05.5][INFO][training_log:661] -  ",
        "(rank 3) ",
        "a, ",
        "x",
        "samples/sec: 2.5 | ",
    ],
)
def test_whatever_stands_before_the_marker_both_ways_read_the_same(before):
    lines = [before + FULL.partition("] ")[2]] * 3
    assert read(lines) == read(lines, CarefulMegatron)


def test_metrics_about_other_losses_do_not_take_the_place_of_the_loss():
    line = " iteration {}/ 50 | mtp_1 loss: 5.0 | load_balancing_loss: 1.0 | {}number of skipped iterations: 0 |"
    first, second = steps([line.format(1, "lm loss: 2.0 | "), line.format(2, "")])
    assert first.values["loss"] == 2.0
    assert second.nonfinite == {"loss": "nan"}
    assert second.values["mtp_1_loss"] == 5.0


# --- what is not there --------------------------------------------------------------------------------------------------------


def test_an_absent_loss_is_a_nan_also_after_a_layout_was_learnt():
    gone = FULL.replace(" lm loss: 4.500000E+00 |", "").replace("grad norm: 1.750", "grad norm: nan")
    last = steps([FULL, FULL, gone])[-1]
    assert last.nonfinite == {"loss": "nan", "grad_norm": "nan"}


def test_a_log_that_never_tells_a_loss_has_no_nan():
    line = " [2026-01-02 03:04:05] iteration {}/ 6 | elapsed time per iteration (ms): 291.5 | throughput per GPU (TFLOP/s/GPU): 50.5 |"
    assert [step.nonfinite for step in steps([line.format(1), line.format(2)])] == [{}, {}]
    told = " iteration 3/ 6 | elapsed time per iteration (ms): 291.5 | lm loss: 2.0 |"
    assert steps([told, line.format(4)])[1].nonfinite == {"loss": "nan"}


def test_skipped_iterations_explain_an_absent_loss_and_are_told_once_although_all_ranks_print():
    line = " iteration 10/ 1000 | loss scale: 8388608.0 | number of skipped iterations:  10 | number of nan iterations:   0 |"
    found = read([line] * 8)
    assert all(not record.nonfinite for record in found if isinstance(record, Step))
    assert [record.data for record in found if isinstance(record, Event)] == [{"skipped": 10.0, "loss_scale": 8388608.0}]


def test_a_loss_of_zero_on_a_line_with_skipped_iterations_is_no_loss():
    line = " iteration {}/ 9 | lm_loss: {} | loss scale: 1.0 | number of skipped iterations: {} |"
    first, second, third = steps([line.format(1, "9.0", 0), line.format(2, "0.000000E+00", 1), line.format(3, "8.0", 1)])
    assert (first.values["loss"], third.values["loss"]) == (9.0, 8.0)
    assert "loss" not in second.values
    assert second.nonfinite == {}


def test_a_grad_norm_that_repeats_on_a_skipped_iteration_is_stale():
    line = " iteration {}/ 9 | lm loss: 9.0 | grad norm: {} | number of skipped iterations: {} |"
    found = steps(
        [
            line.format(1, "4644.887", 0),
            *(line.format(n, "4644.887", 1) for n in (2, 3, 4)),
            line.format(5, "4644.887", 0),
            line.format(6, "3.5", 1),
        ]
    )
    assert [step.values.get("grad_norm") for step in found] == [4644.887, None, None, None, 4644.887, 3.5]


def test_a_constant_grad_norm_of_zero_stays():
    line = " iteration {}/ 9 | lm loss: 9.0 | grad norm: 0.000 | number of skipped iterations: 1 |"
    assert [step.values["grad_norm"] for step in steps([line.format(1), line.format(2)])] == [0.0, 0.0]
