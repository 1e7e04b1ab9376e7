"""Steps of Hugging Face logs of which only the epoch in two digits is known: the first logged step is a usual number, and the others its multiples."""

import pytest
from reading import read

PLAN = (
    "***** Running training *****\n  Num examples = 1,090\n  Num Epochs = 3\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = 2\n  Total optimization steps = 1,635\n"
)


@pytest.mark.parametrize("every", [5, 10, 20, 25, 50, 100])
def test_steps_are_multiples_of_the_first_one(every):
    expected = range(every, 40 * every, every)
    text = PLAN + "".join(
        f"{{'loss': {3 - step / 10000}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {round(step / 545, 2)}}}\n"
        for step in expected
        if step <= 1635
    )
    _, steps, _ = read(text)
    assert [step.step for step in steps] == [step for step in expected if step <= 1635]


def test_lines_that_were_cut_out_do_not_shift_the_others():
    text = PLAN + "".join(
        f"{{'loss': {3 - step / 10000}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {round(step / 545, 2)}}}\n"
        for step in (10, 20, 30, 500, 510, 1000)
    )
    _, steps, _ = read(text)
    assert [step.step for step in steps] == [10, 20, 30, 500, 510, 1000]
