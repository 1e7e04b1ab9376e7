"""The Trainer's own plan in the log says which step a line is of, also where ``max_steps`` cuts the last epoch short."""

import pytest

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

OLD = """***** Running training *****
  Num examples = 6,400
  Num Epochs = 3
  Total train batch size (w. parallel, distributed & accumulation) = 4
  Total optimization steps = 4,000
"""
NEW = OLD.replace("  Total train", "  Num update steps per epoch = 1600\n  Total train")


def _read(text):
    parser = Parser()
    records = parser.feed(text.encode()) + parser.finish()
    return [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]


@pytest.mark.parametrize("plan", [OLD, NEW, OLD.replace("6,400", "6,397")])
def test_a_last_epoch_that_is_cut_short_does_not_shift_the_steps(plan):
    text = plan
    for number, step in enumerate(range(500, 4001, 500)):
        if number == 3:
            text += "***** Running Evaluation *****\n  Num examples = 16\n  Batch size = 8\n{'eval_loss': 2.0, 'epoch': 0.9375}\n"
        text += f"{{'loss': '2.5', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '{step / 1600:.4g}'}}\n"
    steps, _ = _read(text)
    assert [step.step for step in steps] == list(range(500, 4001, 500))


@pytest.mark.parametrize(
    "line",
    ["  Continuing training from global step 2000", "  Resuming training from checkpoint with epoch 1 and global step 2000"],
)
def test_a_resumed_start_is_told_in_the_words_of_each_version(line):
    text = NEW + line + "\n{'loss': '2.5', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '1.5'}\n"
    steps, events = _read(text)
    assert [(event.kind, event.step) for event in events if event.kind == "resume"] == [("resume", 2000)]
    assert [step.step for step in steps] == [2400]


@pytest.mark.parametrize("prefix", ["Jan 02 03:04:05 node7 python[12]: ", "INFO:root:"])
def test_what_stands_before_a_training_bar_is_no_name_of_it(prefix):
    from trainvitals.logs.grammars.huggingface_plan import last_bar

    assert last_bar(prefix + "  2%|#  | 10/500 [00:10<08:00, 1.00it/s]", 0) == (10, 500)
    assert last_bar("Map (num_proc=4):  2%|#  | 10/500 [00:10<08:00, 1.00it/s]", 0) is None
