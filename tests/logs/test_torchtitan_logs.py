"""torchtitan's lines, made up in the shape of each generation's source, with what stands around them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.framing import strip_noise
from trainvitals.logs.grammars.torchtitan import TorchTitan
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"
HEAD = "[rank0]:[titan] 2026-01-02 03:04:05,508 - root - INFO - "
PLAIN = HEAD + "step: {}  loss: {}  grad_norm:  2.2500  memory: 40.50GiB(51.20%)  tps: 9,123  tflops: 1,280.10  mfu: 28.30%\n"


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def test_a_whole_log_gives_steps_phases_and_the_configuration():
    parser, steps, events = parse((DATA / "torchtitan.log").read_text())
    assert parser.format == "torchtitan"
    assert [(step.step, step.attempt) for step in steps] == [(1, 1), (10, 1), (20, 1), (30, 1), (21, 2), (30, 2), (40, 2)]
    kinds = [(e.kind, e.data.get("phase"), e.data.get("state"), e.step) for e in events if e.kind != "attempt_start"]
    assert kinds == [
        ("phase", "start", "begin", None),
        ("metadata", None, None, None),
        ("message", None, None, 20),
        ("phase", "checkpoint", "begin", 20),
        ("phase", "checkpoint", "end", 20),
        ("phase", "start", "begin", None),
        ("metadata", None, None, None),
        ("resume", None, None, 20),
    ]
    assert events[1].data["values"] == {
        "job.config_file": "debug.toml", "job.description": "a debug run", "training.steps": 40, "training.seed": None,
        "optimizer.lr": 0.0008, "metrics.wandb_api_key": "***", "parallelism.degrees": "2, 1", "compile.enable": False,
    }  # fmt: skip
    assert next(e for e in events if e.data.get("state") == "end").data["seconds"] == 4.21
    assert events[-1].kind == "attempt_start" or events[-1].data == {"path": "outputs/checkpoint/step-20", "seconds": 1.5}
    assert parser.counters["bad_records"] == 0


def test_a_line_gives_the_names_of_the_schema_and_the_time_of_its_logger():
    _, steps, _ = parse(PLAIN.format(" 9", " 6.12345"))
    assert steps[0].values == {
        "loss": 6.12345, "grad_norm": 2.25, "memory_gib": 40.5, "memory_percent": 51.2, "tokens_per_s": 9123.0,
        "tflops_per_gpu": 1280.1, "mfu": 28.3,
    }  # fmt: skip
    assert steps[0].time_ns == 1_767_323_045_508_000_000


@pytest.mark.parametrize(
    ("line", "step", "some"),
    [
        ("\x1b[36mstep:  2  \x1b[32mloss: 10.8235  \x1b[33mmemory: 26.73GiB(60.17%)  \x1b[34mwps: 1,176  \x1b[35mmfu: 16.15%\x1b[39m", 2, {"tokens_per_s": 1176.0, "mfu": 16.15}),
        ("step: 10  loss:  9.8821  mmemory: 49.59GiB(35.46%)  tps: 7,026  mfu: 41.15%", 10, {"memory_gib": 49.59}),
        ("step:  1  loss:  8.1  grad_norm:  1.5  memory:  1.21GiB(0.86%)  tps: 5,756  tflops: 0.41  mfu: N/A", 1, {"tflops_per_gpu": 0.41}),
        ("step:  1  loss:  8.1  memory:  1.21GiB(0.86%)  data T:  0.0210s  tps: 12  tflops: 2.00  mfu: 1.00%opt: 0.0500s  loss AR: 0.1000s", 1, {"data_loading_s": 0.021, "opt_s": 0.05, "loss_ar_s": 0.1, "mfu": 1.0}),
        ("step:  1  loss:  8.1  memory:  1.21GiB(0.86%)  tps: 12  est_tflops: -1.00  est_mfu: -1.00%", 1, {"tokens_per_s": 12.0}),
        ("step:    1,000 token:   15,000,000  loss:  7.5000  lr: 1.2000e-05 gnorm:  9.37 memory:  0.39GiB tgs: 1,234 mfu: 12.00% [0:01:00<0:02:00]", 1000, {"tokens": 15e6, "lr": 1.2e-5, "grad_norm": 9.37, "tokens_per_s": 1234.0}),
        ("step: 640/644 = 99.3789%  loss:  6.2116  memory: 87.04GiB(93.48%)  tps: 52,142  mfu: 3.09%", 640, {"loss": 6.2116, "mfu": 3.09}),
        ("step:  3  loss:  8.1  memory: 36.20GiB(81.50%)  GPU time: 12.300ms  CPU wall time: 13.100ms  wps: 1710", 3, {"gpu_time_s": 0.0123, "tokens_per_s": 1710.0}),
    ],
)  # fmt: skip
def test_every_generation_and_fork_is_read(line, step, some):
    _, steps, _ = parse(f"2024-10-03 15:02:11,234 - root - INFO - {line}\n")
    assert [s.step for s in steps] == [step]
    for name, value in some.items():
        assert steps[0].values[name] == pytest.approx(value)
    assert not any(value == -1 for value in steps[0].values.values())


def test_eight_ranks_that_print_are_one_step_of_the_first_ones_rate():
    lines = [PLAIN.format(step, 7.6).replace("9,123", f"9,05{rank}") for step in (4, 5) for rank in range(8)]
    parser, steps, _ = parse("".join(lines))
    assert [(s.step, s.values["tokens_per_s"]) for s in steps] == [(4, 9050.0), (5, 9050.0)]
    assert parser.counters["repeated_steps"] == 14


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 2, 3, 0), (2, 3, 0, 1)])
def test_the_rank_that_has_the_loss_wins_whenever_it_prints(order):
    lines = [PLAIN.format(step, "2.5" if rank == 3 else "-1.00000") for step in range(1, 9) for rank in order]
    _, steps, _ = parse("".join(lines))
    assert sorted(s.step for s in steps) == list(range(1, 9))
    assert all(s.values["loss"] == 2.5 for s in steps)


def test_a_loss_that_comes_two_steps_late_is_not_lost():
    lines = [PLAIN.format(1, 3.0), PLAIN.format(2, "-1.0"), PLAIN.format(3, 2.8), PLAIN.format(2, 2.9), PLAIN.format(4, 2.7)]
    _, steps, _ = parse("".join(lines))
    assert sorted((s.step, s.values["loss"]) for s in steps) == [(1, 3.0), (2, 2.9), (3, 2.8), (4, 2.7)]
    assert {s.attempt for s in steps} == {1}


def test_a_rank_without_any_loss_gives_steps_without_one_and_no_nan():
    _, steps, _ = parse("".join(PLAIN.format(n, "-1.00000") for n in range(1, 20)))
    assert [s.step for s in steps] == list(range(1, 20))
    assert all("loss" not in s.values and s.nonfinite == {} for s in steps)


def test_a_line_that_waits_for_its_loss_is_given_out_when_nothing_more_comes():
    parser = Parser()
    assert not [r for r in parser.feed(PLAIN.format(1, "-1.0").encode()) if isinstance(r, Step)]
    assert [r.step for r in parser.idle() if isinstance(r, Step)] == [1]


def test_a_save_is_one_phase_whichever_ranks_say_so_and_when():
    begin = HEAD + "Saving the checkpoint (or staging if async is enabled).\n"
    end = HEAD + "Finished saving the checkpoint (or staging if async is enabled) in {} seconds.\n"
    text = (
        PLAIN.format(10, 3.0)
        + begin * 2
        + end.format("4.20")
        + begin
        + end.format("4.25")
        + PLAIN.format(11, 3.0)
        + end.format("5.00") * 2
    )
    _, _, events = parse(text)
    found = [(e.data["state"], e.step, e.data.get("seconds")) for e in events if e.kind == "phase"]
    assert found == [("begin", 10, None), ("end", 10, 4.2), ("end", 11, 5.0)]


def test_the_end_of_a_training_is_told_once():
    end = HEAD + "Training completed\n"
    _, steps, events = parse(PLAIN.format(10, "-1.0") + end * 8)
    assert [s.step for s in steps] == [10]
    assert [(e.data["phase"], e.step) for e in events if e.kind == "phase"] == [("finished", 10)]


def test_a_nan_loss_is_nonfinite():
    _, steps, _ = parse(PLAIN.format(1, "    nan"))
    assert steps[0].nonfinite == {"loss": "nan"}


@pytest.mark.parametrize(
    "line",
    [
        HEAD + "validate step: 100  loss:  7.1234  memory: 40.50GiB(51.20%)  tps: 9,050",
        HEAD + "context: val  step: 3  loss:  7.1000  memory: 40.50GiB(51.20%)  wps: 1,050",
        "Epoch:  0 step:  1 loss: 11.76",
        'f"{color.red}step: {step:2}  {color.green}loss: {global_avg_loss:7.4f}  memory: 1.0GiB(1%)"',
        "step: 1 of 5 | loss: 2.0 | memory: 5GiB",
    ],
)
def test_what_is_no_training_step_is_not_claimed(line):
    assert not TorchTitan.claims(line)


def test_a_validation_is_a_message():
    _, steps, events = parse(
        PLAIN.format(99, 7.0) + HEAD + "validate step: 100  loss:  7.1234  memory: 4.50GiB(5.20%)  tps: 9,050\n"
    )
    assert [s.step for s in steps] == [99]
    assert [(e.step, e.data) for e in events if e.kind == "message"] == [(100, {"validation_loss": 7.1234})]


def test_a_rank_that_says_late_that_training_starts_is_no_second_attempt():
    begin = HEAD + "Training starts at step 1.\n"
    _, steps, events = parse(begin + PLAIN.format(1, 7.0) + begin + PLAIN.format(2, 6.9))
    assert [(s.step, s.attempt) for s in steps] == [(1, 1), (2, 1)]
    assert [e.kind for e in events] == ["phase", "attempt_start"]


def test_a_run_that_begins_from_weights_of_another_is_no_resume():
    text = (
        HEAD
        + "Loading the checkpoint from assets/models/dcp/example.\n"
        + HEAD
        + "Finished loading the checkpoint in 14.20 seconds.\n"
    )
    _, _, events = parse(text + HEAD + "Training starts at step 1.\n" + PLAIN.format(1, 7.0))
    assert [(e.kind, e.data.get("phase")) for e in events] == [("phase", "start"), ("attempt_start", None)]


def test_a_configuration_that_another_rank_tears_apart_is_counted():
    text = HEAD + 'Running with args: {\n  "job": {\n' + HEAD + "Training starts at step 1\n" + PLAIN.format(1, 7.0)
    parser, steps, _ = parse(text, format="torchtitan")
    assert [s.step for s in steps] == [1]
    assert parser.counters["bad_records"] == 1


def test_an_older_configuration_on_one_line_is_read_without_being_evaluated():
    text = (
        HEAD + "Running with args: {'job': {'name': 'it\\'s', 'n': 3}, 'lr': 8e-4, 'on': True, 'off': None, 'degrees': [1, -1]}\n"
    )
    _, _, events = parse(text, format="torchtitan")
    assert events[0].data["values"] == {"job.name": "it's", "job.n": 3, "lr": 8e-4, "on": True, "off": None, "degrees": "1, -1"}


LINES = st.one_of(
    st.text(max_size=80),
    st.builds(PLAIN.format, st.integers(-5, 30), st.sampled_from(["7.1", "-1.00000", "nan", "-inf", "x"])),
    st.sampled_from([
        HEAD + "Training starts at step 5", HEAD + "Loading the checkpoint at step 4", HEAD + "Starting job: x", "}", '  "a": 1,',
        HEAD + "Finished loading the checkpoint in 1.5 seconds", HEAD + "Saving the checkpoint (or staging if async is enabled).",
        HEAD + "Finished saving the checkpoint (or staging if async is enabled)in 2.00 seconds.", HEAD + "Running with args: {",
    ]),
)  # fmt: skip


@given(st.lists(LINES, max_size=30), st.integers(0, 30))
def test_no_line_makes_the_grammar_raise_and_its_state_goes_through_json_anywhere(lines, cut):
    pieces = [strip_noise(line.rstrip("\n")) for line in lines]
    whole, first, second = TorchTitan(LineTimes()), TorchTitan(LineTimes()), TorchTitan(LineTimes())
    expected = [record for piece in pieces for record in whole.feed(piece)] + whole.finish()
    found = [record for piece in pieces[:cut] for record in first.feed(piece)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    found += [record for piece in pieces[cut:] for record in second.feed(piece)] + second.finish()
    assert found == expected
