"""What the Hugging Face Trainer and the trainers built on it print, made up in the shape of each."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.huggingface import HuggingFace
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    return parser, [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


def entry(n, *, every=10, per_epoch=100, loss=None, norm=0.5):
    loss = 3.0 - n / 100 if loss is None else loss
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm + n / 1e5!r}, 'learning_rate': {1e-4 / 3 + n * 1e-9!r}, 'epoch': {round(n * every / per_epoch, 2)}}}\n"


def test_llama_factory_prints_each_entry_twice_and_gives_one_step_with_the_time_of_its_logger():
    parser, steps, _ = parse((DATA / "huggingface_llamafactory.log").read_text())
    assert parser.format == "huggingface"
    assert [s.step for s in steps] == [5, 10, 15, 20]
    assert steps[0].values == {
        "loss": 1.4229, "grad_norm": 0.7704815864562988, "lr": 4.997807075247146e-05, "epoch": 0.17, "tokens": 49104.0,
        "tokens_per_s": 1828.21,
    }  # fmt: skip
    assert steps[0].time_ns == 1_767_323_757_000_000_000


def test_the_shortened_lines_alone_are_steps_too():
    text = "".join(
        f"[INFO|2026-01-02 03:15:{n:02}] llamafactory.train.callbacks:143 >> {{'loss': {2 - n / 100:.4f}, 'learning_rate': 4.9978e-05, 'epoch': {n / 10:.2f}, 'throughput': 1800.25}}\n"
        for n in range(1, 6)
    )
    _, steps, _ = parse(text)
    assert [s.values["loss"] for s in steps] == [1.99, 1.98, 1.97, 1.96, 1.95]
    assert [s.step for s in steps] == [1, 2, 3, 4, 5]


def test_numbers_as_text_and_keys_with_slashes_are_read():
    _, steps, _ = parse(
        "  4%|4  | 9/200 [03:00<1:04:17, 20.20s/it]{'loss': '-0.007415', 'grad_norm': '0.2584', 'learning_rate': '9.6e-07', 'num_tokens': '4.996e+04', "
        "'completions/mean_length': '8.938', 'rewards/reward_fn/mean': '0.9688', 'kl': '0.01', 'entropy': '0.02511', 'epoch': '0.045'}\n"
        "\r  5%|5  | 10/200 [03:20<1:04:17, 20.20s/it]"
    )
    assert [s.step for s in steps] == [10]
    assert steps[0].values == {
        "loss": -0.007415, "grad_norm": 0.2584, "lr": 9.6e-07, "tokens": 49960.0, "completions_mean_length": 8.938,
        "rewards_reward_fn_mean": 0.9688, "kl": 0.01, "entropy": 0.02511, "epoch": 0.045,
    }  # fmt: skip


@pytest.mark.parametrize("key", ["'global_step/max_steps': '{}/500'", "'step': {}", "'global_step': {}"])
def test_a_step_that_the_line_says_is_taken(key):
    text = "".join(
        f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1, {key.format(n)}, 'elapsed_time': '1m 2s'}}\n" for n in (10, 20, 30)
    )
    _, steps, _ = parse(text)
    assert [s.step for s in steps] == [10, 20, 30]


def test_nodes_that_all_print_are_one_step_each():
    text = "".join(entry(n) * 4 for n in range(1, 6)) + entry(6) + entry(7) + entry(6) + entry(7)
    parser, steps, _ = parse(text)
    assert [s.step for s in steps] == list(range(1, 8))
    assert parser.counters["repeated_steps"] == 17


def test_repeated_lines_in_a_log_with_bars_are_one_step_each():
    bar = "\r {}%|#  | {}/500 [00:10<1:00, 1.00it/s]\n"
    text = bar.format(0, 0) + "".join(entry(n) * 2 + bar.format(2 * n, 10 * n) for n in range(1, 6))
    parser, steps, _ = parse(text)
    assert [s.step for s in steps] == [10, 20, 30, 40, 50]
    assert parser.counters["repeated_steps"] == 5


def test_a_loss_that_stays_zero_and_lines_that_are_rounded_are_no_repetitions():
    _, steps, _ = parse("{'loss': 0.0, 'grad_norm': 0.05, 'learning_rate': 1e-6, 'epoch': 0.1}\n" * 5)
    assert len(steps) == 5
    _, steps, _ = parse("{'loss': 0.6931, 'learning_rate': 1e-6, 'epoch': 0.1}\n" * 5)
    assert len(steps) == 5


def test_a_start_that_only_the_epoch_tells_of_is_a_new_attempt_from_its_step():
    first = "".join(entry(n) for n in range(1, 13))
    second = "".join(entry(n, norm=0.6) for n in range(8, 15))
    _, steps, events = parse("{'logging_steps': 1}\n logging_steps=10,\n" + first + second, format="huggingface")
    assert [(s.step, s.attempt) for s in steps] == [*((10 * n, 1) for n in range(1, 13)), *((10 * n, 2) for n in range(8, 15))]
    assert [(e.kind, e.step) for e in events if e.kind == "resume"] == [("resume", 70)]


def test_a_node_that_is_late_is_no_new_start():
    text = "".join(entry(n) for n in (1, 2, 3, 4, 5, 6)) + entry(4, norm=0.7) + entry(7)
    _, steps, _ = parse(text)
    assert {s.attempt for s in steps} == {1}


def test_wrapped_numbers_and_a_second_dict_in_the_line_are_read():
    text = "{'mode': 'train'} {'loss': tensor(2.5, device='cuda:0'), 'grad_norm': np.float64(0.25), 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    _, steps, _ = parse(text)
    assert steps[0].values == {"loss": 2.5, "grad_norm": 0.25, "lr": 1e-5, "epoch": 0.1}


def test_every_evaluation_is_a_message_whatever_the_name_of_its_data_set():
    text = (
        entry(1)
        + "{'eval_loss': 2.5, 'eval_runtime': 1.5, 'epoch': 0.1}\n{'eval_code_loss': '1.25', 'eval_code_runtime': '1.5', 'epoch': '0.1'}\n"
    )
    _, steps, events = parse(text + entry(2))
    assert [s.step for s in steps] == [1, 2]
    assert [e.data["validation_loss"] for e in events if e.kind == "message"] == [2.5, 1.25]


def test_the_end_of_a_training_is_a_phase():
    text = entry(1) + "{'train_runtime': 12.5, 'train_samples_per_second': 80.0, 'train_loss': 2.5, 'epoch': 3.0}\n"
    _, steps, events = parse(text)
    assert [s.step for s in steps] == [1]
    assert [(e.data["phase"], e.data["train_loss"]) for e in events if e.kind == "phase"] == [("finished", 2.5)]


def test_the_training_arguments_are_metadata_without_secrets():
    text = (
        "01/02/2026 03:04:05 - INFO - __main__ - Training/evaluation parameters TrainingArguments(\n_n_gpu=1,\nbf16=True,\n"
        "a line of another rank\nhub_token=<HUB_TOKEN>,\nlearning_rate=5e-05,\nlr_scheduler_type=SchedulerType.LINEAR,\noutput_dir='out',\n"
        "fsdp_config={'min_num_params': 0, 'xla': False},\nresume_from_checkpoint=None,\n)\n"
    )
    parser, steps, events = parse(text + entry(1))
    assert parser.format == "huggingface"
    assert [s.step for s in steps] == [1]
    assert [e.kind for e in events] == ["phase", "metadata", "attempt_start"]
    assert events[1].data == {
        "section": "config", "part": 0, "parts": 1,
        "values": {
            "_n_gpu": 1, "bf16": True, "hub_token": "***", "learning_rate": 5e-05, "lr_scheduler_type": "SchedulerType.LINEAR",
            "output_dir": "out", "fsdp_config": "{'min_num_params': 0, 'xla': False}", "resume_from_checkpoint": None,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "training_args = TrainingArguments(",
        "    args=SFTConfig(",
        "class X(TrainingArguments(",
        "TrainingArguments(output_dir='x')",
    ],
)
def test_source_code_is_no_beginning_of_arguments(line):
    assert not HuggingFace.claims(line)


def test_a_second_training_in_the_same_script_is_a_second_attempt():
    end = "{'train_runtime': 12.5, 'train_loss': 2.5, 'epoch': 3.0}\n"
    folds = ["".join(entry(n, every=1, per_epoch=1, norm=norm) for n in (1, 2, 3)) + end for norm in (0.5, 0.6)]
    _, steps, _ = parse("".join(folds))
    assert [(s.step, s.attempt) for s in steps] == [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)]


def test_an_end_that_overtakes_the_last_entry_is_no_second_attempt():
    text = entry(1) + entry(2) + "{'train_runtime': 12.5, 'train_loss': 2.5, 'epoch': 0.3}\n" + entry(3)
    _, steps, _ = parse(text)
    assert [(s.step, s.attempt) for s in steps] == [(1, 1), (2, 1), (3, 1)]


def test_arguments_that_never_end_are_counted_and_hide_no_step():
    parser, steps, _ = parse("TrainingArguments(\nbf16=True,\n" + "noise\n" * 30 + entry(1) + entry(2), format="huggingface")
    assert [s.step for s in steps] == [1, 2]
    assert parser.counters["bad_records"] == 1


def test_an_entry_glued_to_a_bar_and_a_logger_behind_it_are_all_read():
    text = (
        "\r  2%|#    | 10/500 [00:10<08:00, 1.00it/s]{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.02}                \r"
        "  2%|#    | 10/500 [00:10<08:00, 1.00it/s][2026-01-02 03:04:05,018] [INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! "
        "Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32\n"
    )
    _, steps, events = parse(text)
    assert [(s.step, s.values["loss"]) for s in steps] == [(10, 2.5)]
    assert any(e.data.get("overflow") for e in events)


ENTRY = "{{'loss': {}, 'learning_rate': 1e-05, 'epoch': 0.1}}"


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("\r 14%|#4   | {n}/690 [10:55<1:11:19, 72.53s/it]", "\n"),  # line ends lost, only the bar before is left
        ("  4% {n}/690 [1:49:59<42:08:58, 70.97s/it]", "\n  5% {next}/690 [1:51:00<40:18:00, 67.89s/it]\n"),  # narrow
        ("  5%|#\n            | {n}/690 [05:56<1:52:59, 6.80s/it]", "\n"),  # a line that the terminal broke in two
        ("\r 14%|#4   | {n}/690 [10:55<1:11:19]", "\nINFO: x\nINFO: y\r 20%|#4   | {far}/690 [10:55<1:11:19]\r"),
        ("\r 14%|#4   | {lag}/690 [10:55<1:11:19]", "  14%|#4   | {n}/690 [10:55<1:11:19]\n"),  # it lags, the one behind is exact
        ("\r 14%|#4   | {lag}/690 [10:55<1:11:19]\r          \r", "\n\r 14%|#4   | {n}/690 [10:55<1:11:19]"),  # as tqdm writes it
    ],
)
@pytest.mark.parametrize("every", [1, 5, 8, 10, 50])
def test_the_bar_around_an_entry_tells_its_step(before, behind, every):
    if every == 1 and "{lag}" in before:
        return  # a bar cannot lag behind entries of each step
    text = ""
    for n in range(every, 6 * every, every):
        places = {"n": n, "next": n + 1, "far": n + every, "lag": n - 1}
        text += before.format(**places) + ENTRY.format(3.0 - n / 1000) + behind.format(**places)
    _, steps, _ = parse(text)
    assert [(s.step, s.values["loss"]) for s in steps] == [
        (n, pytest.approx(3.0 - n / 1000)) for n in range(every, 6 * every, every)
    ]


def held_back(every, total, *, size=8192, keep_ends=True):
    """What a file holds when Python keeps its output back while tqdm writes its bar at once."""
    text, held = "", ""
    for n in range(1, total + 1):
        text += f"\r 14%|#4   | {n}/{total} [10:55<1:11:19,  1.67s/it]"
        if n % every == 0:
            held += ENTRY.format(f"{3.0 - n / 1e5:.5f}") + "\n"
            if len(held) >= size:
                text, held = text + "\r      \r" + held[:size], held[size:]
    text += "\n" + held
    return text if keep_ends else text.replace("\r", " ")


@pytest.mark.parametrize("keep_ends", [True, False])
@pytest.mark.parametrize(("every", "total"), [(10, 4000), (1, 700), (7, 2100), (25, 500), (50, 30_000)])
def test_entries_that_python_held_back_are_counted_from_the_bar_that_was_not(every, total, keep_ends):
    _, steps, _ = parse(held_back(every, total, keep_ends=keep_ends))
    assert [(s.step, s.values["loss"]) for s in steps] == [
        (n, pytest.approx(3.0 - n / 1e5)) for n in range(every, total + 1, every)
    ]
    assert {s.attempt for s in steps} == {1}


def test_entries_that_came_at_once_do_not_wait_for_ever():
    parser = Parser()
    text = " 14%|#4   | 40/690 [10:55<1:11:19]\n" + "".join(ENTRY.format(3.0 - n / 10) + "\n" for n in (1, 2, 3, 4))
    assert not [r for r in parser.feed(text.encode()) if isinstance(r, Step)]
    assert [r.step for r in parser.idle() if isinstance(r, Step)] == [10, 20, 30, 40]


def test_an_older_llama_factory_prints_twice_too():
    text = "".join(
        f"02/15/2026 23:31:4{n} - INFO - llmtuner.extras.callbacks - {{'loss': 1.{n}183, 'learning_rate': 1.9995e-04, 'epoch': 0.0{n}}}\n"
        f"{{'loss': 1.{n}183, 'learning_rate': 0.000199945782761061{n}, 'epoch': 0.0{n}}}\n"
        for n in range(1, 5)
    )
    _, steps, _ = parse(text)
    assert [(s.step, s.values["lr"]) for s in steps] == [(n, pytest.approx(1.99945782761061e-4, rel=1e-12)) for n in range(1, 5)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("rows", [3, 2000])
def test_a_trainer_state_of_any_length_is_read_pretty_or_on_one_line(tmp_path, capsys, indent, rows):
    from trainvitals.cli.parse import read_log

    history = [
        {"epoch": n / 100, "grad_norm": 0.5, "learning_rate": 1e-5, "loss": 3.0 - n / 1e4, "step": n} for n in range(1, rows + 1)
    ]
    history.append({"epoch": 1.0, "eval_loss": 2.5, "step": rows})
    path = tmp_path / "trainer_state.json"
    path.write_text(
        json.dumps({"best_metric": None, "epoch": 1.0, "is_hyper_param_search": False, "log_history": history}, indent=indent)
    )
    records = [record for _, found in read_log(str(path)) for record in found]
    steps = [r for r in records if isinstance(r, Step)]
    assert [s.step for s in steps] == list(range(1, rows + 1))
    assert [r.data["validation_loss"] for r in records if isinstance(r, Event) and r.kind == "message"] == [2.5]


def test_a_state_on_one_line_that_begins_with_another_key_is_found():
    text = '{"epoch": 1.0, "global_step": 20, "log_history": [{"loss": 2.5, "step": 10}, {"loss": 2.4, "step": 20}], "max_steps": 20}'
    parser, steps, _ = parse(text)
    assert parser.format == "huggingface_state"
    assert [s.step for s in steps] == [10, 20]


LINES = st.one_of(
    st.text(max_size=60),
    st.builds(
        "{}{{'loss': {}, 'grad_norm': {}, 'learning_rate': 1.23456789e-05, 'epoch': {}{}}}".format,
        st.sampled_from(["", "x >> ", "\r 2%|#| 3/9 [0", "{'a': 1} "]), st.sampled_from(["2.5", "nan", "0.0", "'1e3'", "tensor(1.5)", "x"]),
        st.sampled_from(["0.5", "nan", "0"]), st.sampled_from(["0.1", "0.02", "inf", "-1", "3"]),
        st.sampled_from(["", ", 'throughput': 5.5", ", 'step': 7", ", 'step': 1e300", ", 'global_step/max_steps': '3/9'"]),
    ),
    st.builds(
        "x >> {{'loss': {}, 'learning_rate': 1e-05, 'epoch': 0.1, 'throughput': {}}}".format,
        st.sampled_from(["2.5", "nan"]), st.sampled_from(["5.5", "nan"]),
    ),
    st.builds(" {}%|##| {}/{} [00:01<00:02".format, st.integers(0, 100), st.integers(0, 20), st.sampled_from([9, 500])),
    st.sampled_from([
        "***** Running training *****", "  Num Epochs = 3", "  Total optimization steps = 9", "logging_steps=5,", "TrainingArguments(", ")",
        "bf16=True,", "  Continuing training from global step 4", "{'eval_loss': 2.0, 'epoch': 1.0}", "{'train_runtime': 2.0}",
    ]),
)  # fmt: skip


@given(st.lists(LINES, max_size=30), st.integers(0, 30))
def test_no_line_makes_the_grammar_raise_and_its_state_goes_through_json_anywhere(lines, cut):
    whole, first, second = HuggingFace(LineTimes()), HuggingFace(LineTimes()), HuggingFace(LineTimes())
    expected = [record for line in lines for record in whole.feed(line)] + whole.finish()
    found = [record for line in lines[:cut] for record in first.feed(line)]
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    found += [record for line in lines[cut:] for record in second.feed(line)] + second.finish()
    assert found == expected
