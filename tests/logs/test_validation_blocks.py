"""Lines of a validation that do not say it themselves, samples and checks in between: they are no steps, and training goes on being read."""

import json

import pytest
from reading import read

from trainvitals.logs.parser import Parser
from trainvitals.records import Step

INNER = {
    "batches": "   batch {j}/24 | loss 3.5\n",
    "iterations": "   iter {j} | loss 3.5\n",
    "the same shape": "step {j} loss 3.5\n",
}
HEADERS = (
    "Evaluating...",
    "--- Test ---",
    "Running validation at step {step}",
    "2026-01-02 03:04:05 INFO eval.py:31 Validating",
    "",
)


def log(header, inner, every=200, last=1500):
    text = ""
    for step in range(10, last, 10):
        text += f"step {step} loss {6 - step / 1000:.3f}\n"
        if step % every == 0:
            text += header.format(step=step) + "\n" if header else ""
            text += "".join(inner.format(j=j) for j in range(1, 25))
    return text


#: Without a header nothing tells a validation in the same shape from a start.
CASES = [(header, inner) for header in HEADERS for inner in INNER if header or inner != "the same shape"]


@pytest.mark.parametrize(("header", "inner"), CASES)
def test_a_validation_between_the_steps_makes_none_and_no_start(header, inner):
    _, steps, _ = read(log(header, INNER[inner]))
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(10, 1500, 10)]


def test_batches_of_an_epochs_validation_are_none():
    text = ""
    for epoch in (1, 2, 3):
        text += f"Epoch {epoch}\n" + "".join(f"  batch {at}/300 loss {5 - epoch}\n" for at in range(50, 301, 50))
        text += "Validation\n" + "".join(f"  batch {at}/60 loss 4.5\n" for at in range(10, 61, 10))
    _, steps, _ = read(text)
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(50, 901, 50)]


def test_an_evaluation_alone_is_no_training():
    for header in ("Evaluating wikitext", "Computing perplexity on c4", "Test"):
        parser, steps, _ = read(header + "\n" + "".join(f"step {step}, loss 2.5\n" for step in range(1, 140)))
        assert (parser.format, steps) == (None, [])


@pytest.mark.parametrize(
    "between",
    [
        "Initial validation loss 10.9\n",
        "Training starts\n",
        "Epoch 1/3\n",
        "".join(f"chunk {n} loss 9\niter {n} loss 9\n" for n in range(9)),
    ],
)
def test_a_training_behind_a_first_evaluation_is_read(between):
    _, steps, _ = read("Evaluating the model\n" + between + "".join(f"step {step} loss 2.5\n" for step in range(100, 200)))
    assert {*range(100, 200)} <= {step.step for step in steps}


def test_a_line_with_a_learning_rate_is_of_the_training():
    _, steps, _ = read("Evaluating\n" + "".join(f"step {step} loss 2.5 lr 1e-4\n" for step in range(50)))
    assert [step.step for step in steps] == list(range(50))


def test_that_an_evaluation_told_nothing_hides_no_training_for_long():
    _, steps, _ = read("Evaluating\n" + "".join(f"step {step} loss 2.5\n" for step in range(1000)))
    assert [step.step for step in steps] == list(range(200, 1000))


@pytest.mark.parametrize("sign", ["Traceback (most recent call last):\n", "Resuming\n", "Loading checkpoint\n", ""])
def test_a_start_that_follows_on_a_validation_that_broke_off_is_seen(sign):
    text = "".join(f"step {step} loss 2.5\n" for step in range(10, 1000, 10)) + "Validating\n" + "step 1 loss 2.5\n" * bool(sign)
    text += sign + "".join(f"step {step} loss 2.5\n" for step in range(800, 1100, 10))
    _, steps, _ = read(text)
    assert [step.step for step in steps if step.attempt == 2] == list(range(800, 1100, 10))


def test_a_validation_of_as_many_lines_as_steps_hides_no_training():
    text = "".join(f"step {step} loss 2.5\n" for step in range(1, 101)) + "Evaluating\n"
    text += "".join(f"step {step} loss 2.5\n" for step in range(1, 101)) + "".join(
        f"step {step} loss 2.5\n" for step in range(101, 150)
    )
    _, steps, _ = read(text)
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(1, 150)]


def test_samples_by_another_name_are_none_and_a_start_in_another_way_of_writing_is_read():
    text = "".join(
        f"step {step} loss 2.5\n" + "".join(f"sample update {j}: cross entropy 3.1\n" for j in range(1, 18)) * (step % 200 == 0)
        for step in range(10, 2000, 10)
    )
    _, steps, _ = read(text)
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(10, 2000, 10)]
    text = "".join(f"step {step} loss 2.5\n" for step in range(10, 2000, 10)) + "".join(
        f"it {n}: total loss 2\n" for n in range(1, 200)
    )
    _, steps, _ = read(text)
    assert [step.step for step in steps if step.attempt == 2] == list(range(1, 200))


SETTINGS = "curriculum:\n" + "".join(f"  step: {n}000\n  loss: {n}.0\n" for n in range(1, 6))


def test_settings_above_a_training_are_no_steps():
    _, steps, _ = read(SETTINGS + "".join(f"step {step} loss 2.5\n" for step in range(10, 500, 10)))
    assert [(step.attempt, step.step) for step in steps] == [(1, step) for step in range(10, 500, 10)]
    hugging_face = "".join(
        f"{{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {n / 100}}}\n" for n in range(1, 9)
    )
    assert {step.attempt for step in read(SETTINGS + hugging_face)[1]} == {1}


@pytest.mark.parametrize("above", ["Expected output:\n\n", "usage: fit.py [-h]\n\nExample:\n", "Notes\n-----\n"])
def test_an_example_in_a_document_is_no_training(above):
    item = "- At" if above.startswith("Notes") else "   "
    assert read("A project\n" + above + "".join(f"{item} step {n}0: loss {5 - n / 10}, lr 3e-4\n" for n in range(9)))[1] == []


def test_a_sample_that_a_trainer_prints_above_its_lines_makes_no_document_of_them():
    _, steps, _ = read(
        "Sample of the data:\n  step 1: to be or not to be\n" + "".join(f"step {step} loss 2.5\n" for step in range(5))
    )
    assert [step.step for step in steps] == list(range(5))


def test_a_start_from_the_beginning_without_any_sign_is_not_taken_for_a_validation_for_ever():
    text = "".join(f"step {step} loss 2.5\n" for step in range(10, 9000, 10)) + "Validating\n"
    _, steps, _ = read(text + "".join(f"step {step} loss 2.5\n" for step in range(10, 5000, 10)))
    assert [step.step for step in steps if step.attempt == 2] == list(range(3010, 5000, 10))


def test_a_block_goes_on_exactly_at_any_byte():
    data = log("Evaluating", INNER["the same shape"], 100, 400).encode()
    whole = Parser()
    expected = whole.feed(data) + whole.finish()
    parser, records = Parser(), []
    for start in range(0, len(data), 11):
        records += parser.feed(data[start : start + 11])
        state = json.loads(json.dumps(parser.to_state()))
        parser = Parser()
        parser.restore(state)
    assert records + parser.finish() == expected
    assert sum(isinstance(record, Step) for record in expected) == 39
