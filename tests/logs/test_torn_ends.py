"""Files that end in the middle of a line: the trainer was killed, or they were copied while it wrote."""

import pytest

from trainvitals.logs.parser import Parser
from trainvitals.records import Step


def steps(text):
    parser = Parser()
    return [record for record in parser.feed(text.encode()) + parser.finish() if isinstance(record, Step)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("iter 10: loss 2.5, time 1.0ms\niter 20: loss 9.", None),
        ("step,loss\n10,2.5\n20,2.", None),
        ("step,loss\n10,2.5\n20,2.25e-0", None),
        (
            "Step 10 | loss:2.5 lr:7e-05 grad_norm:0.5\nStep 20 | loss:2.25 lr:7.333e-0",
            {"loss": 2.25},
        ),
    ],
)
def test_a_number_that_surely_lacks_digits_is_no_value(text, values):
    assert [dict(step.values) for step in steps(text)][1:] == ([values] if values is not None else [])


@pytest.mark.parametrize("end", ["2.25", "2.25e-05", "2", "nan"])
def test_a_number_that_may_be_whole_is_taken(end):
    assert [step.step for step in steps("step,loss\n10,2.5\n20," + end)] == [10, 20]
