"""A log that begins as one trainer's and goes on as another's; and two formats that are alive side by side."""

import json

import pytest

from trainvitals.logs.changes import LINES_TO_CHANGE, MAX_LINES, WEAK_LINES_TO_CHANGE
from trainvitals.logs.grammar import LineByLine
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step


def nanogpt(steps):
    return [f"iter {step}: loss 3.0, time 1.0ms, mfu 1.0%" for step in steps]


def megatron(steps):
    return [
        f" [2026-01-02 03:04:05] iteration {step:8d}/ 900 | lm loss: 2.0E+00 | grad norm: 1.0 | number of skipped iterations: 0 |"
        for step in steps
    ]


def deepspeed(steps):
    return [
        f"[2026-01-02 03:04:05,386] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[2.5e-05], mom=[(0.9, 0.999)]"
        for step in steps
    ]


def huggingface(steps):
    return [f"{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {step / 100}}}" for step in steps]


def mllog(steps):
    return [
        f':::MLLOG {{"namespace": "", "time_ms": {1767323045123 + step}, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
        f'"value": {{"train_step_time": 0.7, "reduced_train_loss": 3.5}}, "metadata": {{"step": {step}}}}}'
        for step in steps
    ]


def titan(steps):
    return [
        f"[titan] 2026-01-02 03:04:05,001 - root - INFO - step: {step}  loss:  7.60000  grad_norm:  3.5000  "
        "memory: 40.50GiB(51.20%)  tps: 9,050  tflops: 280.71  mfu: 28.39%"
        for step in steps
    ]


def nemo_bar(step, total=900):
    return (
        f"Epoch 0:  {100 * step // total}%|#    | {step}/{total} [00:10<00:15,  3.70it/s, loss=2.5, v_num=ab, reduced_train_loss=2.500, "
        f"global_step={step}.0, consumed_samples={step * 8}.0, train_step_timing in s=0.580]"
    )


def read(lines, format="auto", **options):
    parser = Parser(format, **options)
    records = parser.feed(("\n".join(lines) + "\n").encode()) + parser.finish()
    steps = [(record.attempt, record.step) for record in records if isinstance(record, Step)]
    starts = [record for record in records if isinstance(record, Event) and record.kind == "attempt_start"]
    return parser, steps, starts


@pytest.mark.parametrize(
    ("before", "behind", "name"),
    [
        (nanogpt, megatron, "megatron"),
        (megatron, nanogpt, "nanogpt"),
        (megatron, titan, "torchtitan"),
        (deepspeed, megatron, "megatron"),
        (titan, huggingface, "huggingface"),
    ],
)
def test_a_log_that_goes_on_as_another_trainers_loses_nothing(before, behind, name):
    noise = ["some banner"] * 30
    parser, steps, starts = read([*before(range(1, 21)), *noise, *behind(range(1, 11))])
    assert parser.format == name
    # What a weak grammar still holds of its last step is dropped: the strong one's line mostly is the same step.
    first = [step for attempt, step in steps if attempt == 1]
    assert first in (list(range(1, 21)), list(range(1, 20)))
    assert [step for attempt, step in steps if attempt == 2] == list(range(1, 11))
    assert len(starts) == 2


def test_a_larger_step_in_another_format_is_the_same_attempt():
    _, steps, starts = read([*nanogpt(range(1, 6)), *megatron(range(6, 12))])
    assert steps == [(1, step) for step in range(1, 12)]
    assert len(starts) == 1


@pytest.mark.parametrize("count", [1, LINES_TO_CHANGE - 1])
def test_a_few_stray_lines_change_nothing(count):
    parser, steps, _ = read([*megatron(range(1, 5)), *nanogpt(range(700, 700 + count)), *megatron(range(5, 8))])
    assert parser.format == "megatron"
    assert steps == [(1, step) for step in range(1, 8)]


def test_a_format_that_was_set_never_changes():
    parser, steps, _ = read([*nanogpt(range(1, 5)), *megatron(range(1, 20))], "nanogpt")
    assert (parser.format, steps) == ("nanogpt", [(1, step) for step in range(1, 5)])


def test_a_weak_format_gives_way_to_the_first_line_of_a_strong_one():
    parser, steps, starts = read([*deepspeed(range(1, 10)), *megatron([10]), *deepspeed([10, 11]), *megatron([20])])
    assert parser.format == "megatron"
    assert steps == [(1, step) for step in [*range(1, 9), 10, 20]]
    assert len(starts) == 1


def interleaved(often, rarely, distance=10, steps=600):
    lines = []
    for step in range(1, steps + 1):
        lines += often([step])
        if step % distance == 0:
            lines += rarely([step])
    return lines


@pytest.mark.parametrize("distance", [1, 2, 5, 10, 100])
@pytest.mark.parametrize(
    ("often", "rarely"), [(megatron, mllog), (mllog, megatron), (deepspeed, megatron), (megatron, deepspeed), (nanogpt, mllog)]
)
def test_two_formats_side_by_side_double_no_step_and_open_no_attempt(often, rarely, distance):
    for lines in (interleaved(often, rarely, distance), interleaved(often, rarely, distance)[1:]):
        _, steps, starts = read(lines)
        assert len(starts) == 1
        assert len({step for _, step in steps}) == len(steps)
        assert steps[-1] == (1, 600)


def test_nemo_beside_its_own_bar_and_mlperf_lines_is_one_run():
    lines = [line for step in range(1, 60) for line in ("\r" + nemo_bar(step), *(mllog([step]) if step % 8 == 0 else []))]
    _, steps, starts = read(lines)
    assert len(starts) == 1
    assert [step for _, step in steps] == sorted({step for _, step in steps})
    assert len(steps) >= 58


def test_hugging_face_beside_deepspeed_is_one_run():
    lines = [line for step in range(1, 400) for line in (*deepspeed([step]), *(huggingface([step]) if step % 10 == 0 else []))]
    parser, steps, starts = read(lines)
    assert parser.format == "huggingface"
    assert len(starts) <= 2  # its lines name no step, so the first one after DeepSpeed's may seem to go back
    assert len(set(steps)) == len(steps)


def test_a_strong_format_that_ended_gives_way_to_a_weak_one_in_the_end():
    count = WEAK_LINES_TO_CHANGE + 20
    parser, steps, _ = read([*megatron(range(1, 50)), *deepspeed(range(1, count))])
    assert parser.format == "deepspeed"
    assert [step for attempt, step in steps if attempt == 2] == list(range(1, count))


def test_noise_between_the_first_claimed_lines_costs_none_of_them():
    noise = [f"node1: NCCL INFO channel {n} {'x' * 400}" for n in range(3 * MAX_LINES)]
    claimed = nanogpt(range(1, 8))
    lines = [*megatron(range(1, 50))]
    for line in claimed:
        lines += [*noise, line]
    parser, steps, _ = read(lines)
    assert parser.format == "nanogpt"
    assert [step for attempt, step in steps if attempt == 2] == list(range(1, 8))
    assert parser.counters["dropped_lines"] == 0


def test_what_the_plan_of_the_second_trainer_says_is_still_known_when_its_steps_begin():
    plan = ["***** Running training *****", "  Num examples = 800", "  Num Epochs = 1", "  Total optimization steps = 100"]
    _, steps, _ = read([*megatron(range(1, 50)), *plan, *huggingface([10, 20, 30, 40])])
    assert [step for attempt, step in steps if attempt == 2] == [10, 20, 30, 40]


def test_the_records_do_not_depend_on_where_the_reader_was_restarted():
    lines = [*nanogpt(range(1, 5)), "noise", *megatron(range(1, 6)), *nanogpt(range(9, 40))]
    data = ("\n".join(lines) + "\n").encode()
    whole = Parser()
    expected = whole.feed(data) + whole.finish()
    for cut in range(0, len(data), 7):
        first, second = Parser(), Parser()
        records = first.feed(data[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert records + second.feed(data[cut:]) + second.finish() == expected
        assert second.counters == whole.counters


def test_bad_records_of_all_formats_are_summed():
    class Counting(LineByLine):
        name, title, example, literals = "counting", "x", "CNT 1", ("CNT",)

        def __init__(self, times):
            super().__init__()

        @staticmethod
        def claims(line):
            return line.startswith("CNT ")

        def feed(self, line):
            if line.startswith("CNT"):
                if line[4:].isdigit():
                    return [Step(int(line[4:]), 0, None, {"loss": 1.0})]
                self.bad_records += 1
            return []

    parser, steps, _ = read(["CNT 1", "CNT x", *megatron(range(2, 9)), "CNT 9"], custom={"counting": Counting})
    assert parser.format == "megatron"
    assert parser.counters["bad_records"] == 1
    assert steps[0] == (1, 1)


def test_a_home_made_format_is_asked_first_and_can_be_named():
    class Iter(LineByLine):
        name, title, example, literals = "iter", "x", "iter 1", ("iter",)

        def __init__(self, times):
            super().__init__()

        @staticmethod
        def claims(line):
            return line.startswith("iter ")

        def feed(self, line):
            return [Step(int(line.split()[1].rstrip(":")), 0, None, {"loss": 9.0})] if self.claims(line) else []

    for format in ("auto", "iter"):
        parser = Parser(format, custom={"iter": Iter})
        records = parser.feed(b"banner\niter 7: loss 3.0, time 1.0ms\n")
        assert parser.format == "iter"
        assert [record.values for record in records if isinstance(record, Step)] == [{"loss": 9.0}]


def test_a_mistake_in_a_format_costs_its_line_and_is_counted():
    class Fragile(LineByLine):
        name, title, example, literals = "fragile", "x", "FRG 1", ("FRG",)

        def __init__(self, times):
            super().__init__()

        @staticmethod
        def claims(line):
            return line.startswith("FRG ")

        def feed(self, line):
            return [Step(int(line[4:]), 0, None, {"loss": 1.0})] if line.startswith("FRG") else []

        def finish(self):
            raise ZeroDivisionError

    parser, steps, _ = read(
        ["FRG 1", "FRG x", "torch.OutOfMemoryError: CUDA out of memory.", "FRG 2"], custom={"fragile": Fragile}
    )
    assert steps == [(1, 1), (1, 2)]
    assert parser.counters["failed_lines"] == 2


def test_what_only_looks_like_a_log_line_is_no_step():
    lines = [
        "+ python train.py --loss-scale 1.0 --log-interval 10 --save-interval 100 --lr 3e-4 --eval-iters 10",
        'print0(f"step:{step}/{args.num_iterations} train_loss:{train_loss:.4f} train_time:{t:.0f}ms step_avg:{t/step:.2f}ms")',
        'print(f"iter {iter_num}: loss {lossf:.4f}, time {dt*1000:.2f}ms, mfu {running_mfu*100:.2f}%")',
        "log_string += ' iteration {:8d}/{:8d} |'.format(iteration, args.train_iters)",
        'logger.info(f"step: {step:2d}  loss: {loss:7.4f}  memory: {mem:5.2f}GiB({pct:.2f}%)  tps: {tps:,}")',
        "  loss ............................................ cross_entropy",
        "Namespace(loss='mse', step=5, epoch=3, lr=0.1)",
        "* nanoGPT prints `iter 120: loss 3.9000, time 500.25ms, mfu 30.00%` at each step",
        "# ``step    12 | loss: 9.700000 | lr 1.1000e-05 | norm: 3.1000 | dt: 420.00ms | tok/sec: 1248304.76``",
    ]
    parser, steps, _ = read(lines)
    assert (parser.format, steps) == (None, [])


@pytest.mark.parametrize(
    "line",
    [
        '        " iteration       1/    10 | lm loss: 1.024681E+01 | grad norm: 0.5 |\\n"',
        "    line = 'iter 120: loss 3.9000, time 500.25ms, mfu 30.00%'",
        'print("s:150 trl:5.4321 lr:0.000210 norm:0.55")',
        "    {'loss': 10.5, 'grad_norm': 0.125, 'learning_rate': 9.8e-06, 'step': 50},",
        "E       assert 'iteration 10/ 100 | lm loss: 1.0 |' == 'x'",
        'assert parse("Epoch 0:  50%|##  | 500/1000 [01:23<01:23, 6.00it/s, loss=0.123]")',
    ],
)
def test_a_trainers_line_as_text_in_a_program_decides_no_format(line):
    parser = Parser()
    assert not parser.feed((line + "\n").encode() * 3) + parser.finish()
    assert parser.format is None
