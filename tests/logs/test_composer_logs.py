"""Composer's and LLM Foundry's records over several lines."""

import pytest
from reading import DATA, read, read_file, read_in_pieces

from trainvitals.logs.grammars.composer import Composer
from trainvitals.logs.times import LineTimes


def test_the_header_counts_the_steps_and_its_lines_fill_the_record():
    parser, steps, _ = read_file("composer.log")
    assert parser.format == "composer"
    assert [step.step for step in steps] == [10, 20, 30, 40]
    values = dict(steps[0].values)
    assert values["loss"] == 9.025
    assert values["grad_norm"] == 1.25
    assert values["lr"] == 1e-4
    assert values["mfu"] == pytest.approx(41.25)
    assert values["tokens_per_s"] == 20082.5
    assert steps[2].nonfinite == {"loss": "nan"}


def test_with_epochs_the_step_goes_through():
    _, steps, _ = read_file("composer_epochs.log")
    assert [(step.step, step.values["loss"]) for step in steps] == [(4, 8.1), (5, 8.0), (6, 7.9), (7, 7.8), (11, 7.4)]


def test_a_header_in_tokens_takes_the_step_from_the_batch():
    _, steps, _ = read("[token=1048576/9000000]:\n\t Train time/batch: 41\n\t Train loss/train/total: 3.5\n")
    assert [(step.step, step.values["loss"]) for step in steps] == [(42, 3.5)]


def test_a_record_whose_step_nobody_tells_counts_as_bad():
    parser, steps, _ = read(
        "[batch=1/9]:\n\t Train loss/train/total: 3.6\n[token=1048576/9000000]:\n\t Train loss/train/total: 3.5\n"
    )
    assert [step.step for step in steps] == [1]
    assert parser.counters["bad_records"] == 1


def test_the_configuration_that_every_node_prints_is_one_start():
    config = "*" * 30 + "\nConfig:\nnum_nodes: 2\n" + "*" * 30 + "\n"
    step = "[batch={}/9]:\n\t Train loss/train/total: 3.5\n"
    steps_1_to_6 = "".join(map(step.format, range(1, 7)))
    _, steps, events = read(config * 2 + step.format(0) + config + steps_1_to_6 + config * 2 + step.format(7))
    assert [step.attempt for step in steps] == [1] * 7 + [2]
    assert [event.kind for event in events] == ["phase"]


def test_two_ranks_between_each_others_lines_are_one_record():
    log = "0: [batch=7/90]:\n1: [batch=7/90]:\n0: \t Train loss/train/total: 3.5\n1: \t Train loss/train/total: 3.6\n0: \t Train time/token: 64\n"
    _, steps, _ = read(log + "0: [batch=8/90]:\n0: \t Train loss/train/total: 3.4\n")
    assert [(step.step, dict(step.values)) for step in steps] == [(7, {"loss": 3.5, "tokens": 64.0}), (8, {"loss": 3.4})]


def test_an_evaluation_is_an_event_and_no_step():
    _, _, events = read_file("composer.log")
    assert [(event.step, event.data) for event in events] == [
        (20, {"validation_loss": 8.9, "validation_set": "metrics_eval_languagecrossentropy"})
    ]


def test_the_last_record_waits_for_silence_or_the_end():
    grammar = Composer(LineTimes())
    assert grammar.feed("[batch=12/9000]:") == []
    assert grammar.feed("\t Train loss/train/total: 9.1250") == []
    assert [record.values for record in grammar.idle()] == [{"loss": 9.125}]
    assert grammar.idle() == []


@pytest.mark.parametrize("name", ["composer.log", "composer_epochs.log"])
def test_a_torn_log_reads_the_same_in_any_pieces(name):
    raw = (DATA / name).read_bytes()
    assert read_in_pieces(raw, 37) == read_in_pieces(raw, 100_000)


@pytest.mark.parametrize(
    "prefix", ["2026-01-02T03:04:{:02}.123Z ", "trainer-1  | ", "Jan 02 03:04:{:02} node7 python[12]: ", "> "]
)
def test_what_a_log_service_puts_before_each_line_hides_no_value(prefix):
    lines = ["[batch=7/9]:", "\t Train time/batch: 6", "\t Train loss/train/total: 3.5", "other Train loss/train/total: 9.5"]
    _, steps, _ = read("".join(prefix.format(second) + line + "\n" for second, line in enumerate(lines)))
    assert [(step.step, step.values) for step in steps] == [(7, {"loss": 3.5})]
