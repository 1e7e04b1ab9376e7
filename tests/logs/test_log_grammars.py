"""What each trainer's lines mean, on made-up logs in the real shape."""

from pathlib import Path

import pytest

from trainvitals.errors import InputError
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step
from trainvitals.schema import EXTRA_METRIC_NAME, MAX_EXTRA_METRICS, TRAIN_METRICS

DATA = Path(__file__).parent / "data"


def parse(data, format="auto", **options):
    parser = Parser(format, **options)
    raw = data.encode() if isinstance(data, str) else data
    records = parser.feed(raw) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def parse_file(name, **options):
    return parse((DATA / name).read_bytes(), **options)


def of_kind(events, kind):
    return [event for event in events if event.kind == kind]


@pytest.mark.parametrize(
    ("name", "format", "steps"),
    [
        ("megatron.log", "megatron", [*range(201, 214), 201, 202, 203]),
        ("megatron_deepspeed.log", "megatron", [1, 2, 3, 4, 5]),
        ("huggingface_bar.log", "huggingface", [5, 10, 15, 20, 25, 30, 35, 40]),
        ("huggingface_plan.log", "huggingface", [50, 100, 150, 200, 250, 300]),
        ("huggingface_counted.log", "huggingface", [25, 50, 75, 100, 125, 150]),
        ("nanogpt.log", "nanogpt", list(range(13))),
        ("build_nanogpt.log", "nanogpt", [0, 1]),
        ("modded_nanogpt.log", "nanogpt", [1, 2]),
        ("llmc.log", "nanogpt", [0, 1]),
        ("hook.jsonl", "hook_jsonl", [1, 2, 3, 4, 5, 6, 4, 5, 6, 2]),
        ("curve.csv", "curve_csv", [1, 2, 3, 4]),
        ("curve_attempts.csv", "curve_csv", [210, 211, 212, 201, 202]),
        ("trainer_state.json", "huggingface_state", [10, 20, 30]),
    ],
)
def test_the_format_is_found_and_every_step_is_read_once(name, format, steps):
    parser, found, _ = parse_file(name)
    assert parser.format == format
    assert [step.step for step in found] == steps


def test_ten_thousand_lines_of_launcher_noise_hide_nothing_and_invent_nothing():
    noise = b"".join(
        b"node-r7i4n5:46161:46359 [3] NCCL INFO Channel 01 : %d[8a000] -> 3[8a000]\n+ iteration %d\n" % (n, n)
        for n in range(5000)
    )
    parser, steps, _ = parse(noise)
    assert (parser.format, steps) == (None, [])
    parser, steps, _ = parse(noise + (DATA / "megatron.log").read_bytes())
    assert parser.format == "megatron"
    assert len(steps) == 16


def test_a_megatron_line_gives_the_names_of_the_schema():
    _, steps, _ = parse_file("megatron.log")
    assert steps[0].values == {
        "samples": 6432.0, "step_time_s": pytest.approx(0.9005), "tflops_per_gpu": 150.5, "lr": 3e-5, "global_batch_size": 32.0,
        "loss": 2.299, "loss_scale": 1.0, "grad_norm": 0.75, "skipped": 0.0, "nan_iterations": 0.0,
    }  # fmt: skip
    assert steps[0].time_ns == 1_767_323_241_123_456_000


def test_an_absent_loss_with_no_skipped_iteration_is_a_nan():
    _, steps, _ = parse_file("megatron.log")
    nan = steps[12]
    assert (nan.step, nan.nonfinite) == (213, {"loss": "nan", "grad_norm": "nan"})
    assert "loss" not in nan.values


def test_skipped_iterations_explain_an_absent_loss():
    _, steps, events = parse_file("megatron.log")
    assert steps[-1].nonfinite == {}
    assert steps[-1].values["skipped"] == 1
    assert of_kind(events, "message")[-1].data == {"skipped": 1.0, "loss_scale": 1.0}


def test_an_auxiliary_loss_does_not_stand_in_for_the_lost_one():
    line = " iteration {}/ 9 | {}load_balancing_loss: 1.0E+00 | grad norm: 1.0 | number of skipped iterations: 0 |\n"
    _, steps, _ = parse(line.format(1, "lm loss: 2.0E+00 | ") + line.format(2, ""))
    assert steps[0].values["loss"] == 2.0
    assert steps[1].nonfinite == {"loss": "nan"}
    assert steps[1].values["load_balancing_loss"] == 1.0


def test_a_torn_megatron_line_gives_neither_a_cut_number_nor_a_nan():
    _, steps, _ = parse(" iteration 1/ 9 | learning rate: 1.0E-05 | lm loss: 4.5")
    assert steps[0].values == {"lr": 1e-5}
    assert steps[0].nonfinite == {}


def test_values_are_taken_before_averages_and_text_of_other_processes_is_left_out():
    _, steps, _ = parse(
        " iteration 1/ 9 | elapsed time per iteration (ms): 2700.0/2710.0 | lm loss: 2.0E+00 | number of skipped iterations: 0 |"
        "[Rank 3] memory (MB) | allocated: 12.5 |\n"
    )
    assert steps[0].values == {"step_time_s": 2.7, "loss": 2.0, "skipped": 0.0}


def test_three_deepspeed_lines_of_one_iteration_are_one_record():
    _, steps, _ = parse_file("megatron_deepspeed.log")
    assert steps[0].values["samples_per_s"] == 5.785
    assert steps[0].values["loss"] == 9.1234
    assert steps[0].time_ns == 1_767_323_041_386_000_000


def test_megatron_side_lines_are_events_and_no_steps():
    _, _, events = parse_file("megatron.log")
    assert of_kind(events, "message")[1].data == {"validation_loss": 2.31, "validation_ppl": 10.07442}
    phases = [(e.data["phase"], e.data["state"], e.step) for e in of_kind(events, "phase")]
    assert phases == [("start", "begin", None), ("checkpoint", "begin", 212), ("checkpoint", "end", 212)]
    assert [(e.step, e.data["path"]) for e in of_kind(events, "resume")] == [(200, "/ckpt")]


def test_a_load_line_before_the_first_iteration_is_a_resume():
    line = " iteration 201/ 900 | lm loss: 2.0E+00 | number of skipped iterations: 0 |\n"
    _, _, events = parse("  successfully loaded checkpoint from /c [ t 0 ] at iteration 200\nnoise\n" + line)
    assert [(event.kind, event.step) for event in events] == [("resume", 200), ("attempt_start", 201)]


def test_hugging_face_masks_a_nan_as_zero():
    _, steps, _ = parse_file("huggingface_bar.log")
    assert [step.nonfinite for step in steps[5:]] == [{}, *[{"grad_norm": "nan", "loss": "nan"}] * 2]
    assert "loss" not in steps[-1].values


def test_a_zero_loss_with_a_finite_grad_norm_is_a_loss():
    _, steps, _ = parse("".join("{'loss': 0.0, 'grad_norm': 0.05, 'learning_rate': 1e-6, 'epoch': 0.1}\n" for _ in range(5)))
    assert all(step.values["loss"] == 0.0 and not step.nonfinite for step in steps)


def test_without_a_grad_norm_a_loss_that_falls_to_zero_and_stays_is_a_nan():
    _, steps, _ = parse("".join(f"{{'loss': {loss}, 'epoch': 0.1}}\n" for loss in ("1.9", "0.0", "0.0", "0.0")))
    assert [step.nonfinite for step in steps] == [{}, {}, {}, {"loss": "nan"}]


def test_keys_with_slashes_become_metric_names():
    _, steps, _ = parse("{'loss': 1.0, 'epoch': 0.1, 'rewards/chosen': 0.25, 'step': 7, 'loss_nf': 1, '9x': 2}\n")
    assert steps[0].values == {"loss": 1.0, "epoch": 0.1, "rewards_chosen": 0.25, "x_step": 7.0, "x_loss": 1.0, "x_9x": 2.0}


def test_an_evaluation_is_a_message():
    _, _, events = parse_file("huggingface_bar.log")
    assert [(e.step, e.data["validation_loss"]) for e in of_kind(events, "message")] == [(15, 3.7), (30, 3.7)]


def test_an_unknown_mfu_of_nanogpt_is_left_out_and_a_nan_loss_is_kept():
    _, steps, events = parse_file("nanogpt.log")
    assert "mfu" not in steps[0].values
    assert steps[5].values == {"loss": 10.4, "step_time_s": 0.50525, "mfu": 30.0}
    assert steps[12].nonfinite == {"loss": "nan"}
    assert [e.data["validation_loss"] for e in of_kind(events, "message")] == [10.91, 9.9]


def test_the_source_of_the_trainer_and_nan_timings_are_no_metrics():
    _, steps, _ = parse_file("modded_nanogpt.log")
    assert steps[0].values == {"loss": 11.0}
    assert steps[0].nonfinite == {}


def test_the_hook_counts_its_losses_in_a_watch_event():
    _, steps, events = parse_file("hook.jsonl")
    assert [event.data for event in of_kind(events, "watch")] == [{"lost": 3, "errors": 1}]
    assert steps[5].nonfinite == {"loss": "nan"}
    assert steps[0].values["router_entropy"] == 0.5
    assert all(event.source == "hook" for event in events)


def test_a_broken_hook_record_is_counted_and_the_next_one_read():
    parser, steps, _ = parse('{"type":"step","step":1,"values":{"loss":1}}\n{"type":"st\n[1]\n{"type":"step","step":-1}\n'
                             '{"type":"step","step":2,"values":{"loss":NaN,"x":"7"}}\n')  # fmt: skip
    assert [step.step for step in steps] == [1, 2]
    assert steps[1].nonfinite == {"loss": "nan"}
    assert parser.counters["bad_records"] == 3


def test_an_empty_cell_is_not_logged_and_nan_is_nonfinite():
    _, steps, _ = parse_file("curve.csv")
    assert steps[0].values["tokens_per_s"] == 1000.0
    assert "loss" not in steps[1].values
    assert steps[1].nonfinite == {}
    assert steps[2].nonfinite == {"loss": "nan", "grad_norm": "inf"}


def test_a_trainer_state_with_bare_nan_is_read_also_on_one_line():
    _, steps, events = parse('{"log_history":[{"step":10,"loss":NaN,"grad_norm":Infinity,"learning_rate":0.0001}]}')
    assert steps[0].nonfinite == {"loss": "nan", "grad_norm": "inf"}
    assert steps[0].values == {"lr": 0.0001}
    _, steps, events = parse_file("trainer_state.json")
    assert steps[1].nonfinite == {"grad_norm": "nan", "loss": "nan"}
    assert [e.data["validation_loss"] for e in of_kind(events, "message")] == [1.9]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("slurmstepd: error: *** STEP 77.0 ON node17 CANCELLED AT 2026-01-02T03:04:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", "node_failure"),
        ("slurmstepd: error: *** JOB 78 ON node17 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***", "time_limit"),
        ("slurmstepd: error: *** STEP 79.0 ON node17 CANCELLED AT 2026-01-02T03:04:05 ***", "cancelled"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/x'", "disk_full"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
        ("[rank0]:[E102 03:04:05.123456789 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(", "nccl_timeout"),
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "numerics"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "process_failed"),
    ],
)  # fmt: skip
def test_a_fault_is_told_once_in_a_burst_whatever_the_format(line, kind):
    _, _, events = parse(f"{line}\n" * 64)
    assert [(event.kind, event.data["class"]) for event in events] == [("fault", kind)]


def test_a_launchers_complaint_after_the_cause_is_no_second_fault_but_a_new_burst_is():
    oom = "torch.OutOfMemoryError: CUDA out of memory.\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    step = "iter {}: loss 3.0, time 1.0ms, mfu 1.0%\n"
    _, _, events = parse(step.format(1) + oom + step.format(2) + oom)
    assert [event.data["class"] for event in of_kind(events, "fault")] == ["out_of_memory"] * 2
    assert len({event.id for event in events}) == len(events)


def test_an_overflow_glued_to_a_bar_is_a_message_and_hysteresis_is_none():
    text = (
        "\r  8%|#    | 38/500 [1:10:00<14:11:00, 110.50s/it][2026-01-02 03:04:05,018] [INFO] [loss_scaler.py:181:update_scale] "
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32\n"
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4, but hysteresis is 2. Reducing hysteresis to 1\n"
    )
    _, _, events = parse(text)
    assert [event.data for event in events] == [{"overflow": True, "loss_scale": 64.0, "loss_scale_next": 32.0}]
    assert events[0].time_ns == 1_767_323_045_018_000_000


def test_naive_times_use_the_time_zone_and_a_missing_year_comes_from_the_file():
    line = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    _, _, events = parse(line, timezone="Asia/Shanghai")
    assert events[0].time_ns == 1_767_294_245_000_000_000
    watchdog = "[rank0]:[E1231 23:04:05.5 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout: x\n"
    _, _, events = parse(watchdog, mtime_ns=1_767_323_045_000_000_000)  # 2 January 2026
    assert events[0].time_ns == 1_767_222_245_500_000_000
    _, _, events = parse(watchdog)
    assert events[0].time_ns is None


def test_an_unknown_zone_or_format_is_a_sentence():
    with pytest.raises(InputError, match="Asia/Shanghai"):
        Parser(timezone="Mars/Olympus")
    with pytest.raises(InputError, match="megatron"):
        Parser("mosaic")


def test_no_more_extra_metrics_are_kept_than_the_schema_allows():
    pairs = ", ".join(f"'m{n}': 1.0" for n in range(150))
    parser, steps, _ = parse(f"{{'loss': 1.0, 'epoch': 0.1, {pairs}}}\n")
    extras = [name for name in steps[0].values if name not in TRAIN_METRICS]
    assert len(extras) == MAX_EXTRA_METRICS
    assert all(EXTRA_METRIC_NAME.match(name) for name in extras)
    assert parser.counters["dropped_metrics"] == 51


def test_a_warning_between_a_hugging_face_line_and_its_bar_does_not_hide_the_step():
    text = (
        "\r  0%|          | 0/48 [00:00<?, ?it/s]\r{'loss': '3.8', 'learning_rate': '1e-4', 'epoch': '0.3'}\nsome warning\n"
        "\r 10%|#         | 5/48 [00:05<00:40,  1.00it/s]\r{'loss': '3.7', 'learning_rate': '1e-4', 'epoch': '0.6'}\n"
    )
    _, steps, _ = parse(text)
    assert [step.step for step in steps] == [5, 10]
