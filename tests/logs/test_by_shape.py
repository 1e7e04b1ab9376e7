"""Unknown trainers: their lines are read by shape when several in a row tell a rising step and a loss, and never before."""

import json

import pytest
from reading import read, read_in_pieces

from trainvitals.logs.grammars.shaped import SHAPED
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step


def steps_of(text):
    parser, steps, _ = read(text)
    assert parser.format in ("by_shape", *(grammar.name for grammar in SHAPED))
    assert parser.counters["failed_lines"] == 0
    return [(step.step, step.values.get("loss")) for step in steps]


LINES = {
    "step, loss": "step {step}, loss: {loss}",
    "step | loss": "Step {step} | Loss {loss} | elapsed 0.5m",
    "step=": "step={step} epoch=0 loss={loss} lr=4.50e-04 tok/s=12800 phase=int8",
    "step a/b": "[2026-06-11 00:55:48] [StageA] Step {step}/20000 | LossLM: {loss} | CosSim: 0.1687",
    "iteration": "Epoch 0, Iteration: {step}, Loss: {loss}",
    "iter of": "At iteration {step} of 90000 - training loss = {loss} (avg 9.9)",
    "iter_dt": "iter_dt 77.46ms; iter {step}: train loss {loss}",
    "loss before": "Average loss at step {step} : {loss}",
    "loss first": "loss={loss}, lr=1e-4, step={step}",
    "train tag": "[Train] Iter {step} | Loss {loss} | Grad 2.3456",
    "sentence": "I0102 03:04:05.688264 1400 train.py:570] Finished training step {step}. Batch size: 512, Loss: {loss}, LR: 0.00000",
    "dict": "{{'step': {step}, 'loss': {loss}, 'lr': 1e-4}}",
    "tensor": "Step: {step}, Train Loss: tensor({loss}, device='cuda:0', grad_fn=<NllLossBackward0>), lr: 0.001",
    "array": "update {step} total_loss=Array({loss}, dtype=float32) kl=0.5",
    "is [": "epoch: 0, batch_id: {step}, loss is: [{loss}], acc is: [0.90625]",
    "is": "epoch: 1 step: {step}, loss is {loss}",
    "caffe": "I0102 03:04:05.123456 12345 solver.cpp:228] Iteration {step} (12.3 iter/s, 8.1s/100 iters), loss = {loss}",
    "marian": "[2020-01-01 00:00:00] Ep. 1 : Up. {step} : Sen. 12,345 : Cost {loss} : Time 100.0s : 1234.56 words/s",
    "opennmt": "[2019-01-02 03:04:05,123 INFO] Step {step}/100000; acc:   5.80; ppl: 8034.5; xent: {loss}; lr: 0.00001;     12 sec",
    "mxnet": "INFO:root:Epoch[0] Batch [{step}]\tSpeed: 1234.56 samples/sec\taccuracy=0.1\tcross-entropy={loss}",
    "word lm": "| epoch   1 | {step:5d}/ 2983 batches | lr 20.0000 | ms/batch 11.77 | loss {loss} | ppl  8835.03",
    "clu": "I0102 03:04:05.123456 1234 logging_writer.py:48] [{step}] accuracy=0.5, learning_rate=0.001, loss={loss}",
    "espnet": "[n1] 2021-01-01 00:00:00,123 (trainer:721) INFO: 1epoch:train:1-{step}batch: iter_time=0.1, loss={loss}, train_time=1.5",
    "gan": "[Epoch 1/10] [Batch {step}/6000] [D loss: {loss}] [G loss: 1.2]",
    "bracket": "Epoch: [0][ {step}/5000] loss {loss}",
    "minimind": "2025-01-28 13:28:40,780 __main__ INFO Epoch:[0/20]({step}/41914) loss:{loss} lr:0.0002000 epoch_Time:80.0min:",
    "train beside val": "step {step}: train {loss}, val 9.8",
}


@pytest.mark.parametrize("shape", LINES)
def test_a_line_with_a_step_and_a_loss_is_read_whatever_separates_them(shape):
    told = [(100 + 50 * number, round(7.5 - 0.25 * number, 3)) for number in range(9)]
    text = "some banner of 3 words\n" + "".join(LINES[shape].format(step=step, loss=loss) + "\n" for step, loss in told)
    assert steps_of(text) == told


def test_units_and_names_become_those_of_the_schema():
    line = "it {} loss: 2.5 | learning rate: 3e-4 | gnorm 0.9 | 250 ms/it | 12.5k tok/s | mfu 41.5% | ppl 12.18 | eta 1:02:03\n"
    _, steps, _ = read("".join(line.format(step) for step in range(5)))
    assert steps[-1].values == {
        "loss": 2.5, "lr": 3e-4, "grad_norm": 0.9, "step_time_s": 0.25, "tokens_per_s": 12500.0, "mfu": 41.5, "ppl": 12.18,
    }  # fmt: skip
    _, steps, _ = read("".join(f"it {step} loss: 2.5, 4.0 it/s, 320 samples/s, dt: 250.0ms\n" for step in range(5)))
    assert steps[-1].values == {"loss": 2.5, "step_time_s": 0.25, "samples_per_s": 320.0}


def test_a_loss_that_is_no_number_is_told_and_the_time_of_the_line_is_taken():
    text = "".join(f"2026-01-02 03:04:{step:02d} INFO step {step} loss {'nan' if step > 3 else 2.5}\n" for step in range(6))
    _, steps, _ = read(text)
    assert [dict(step.nonfinite) for step in steps[3:]] == [{}, {"loss": "nan"}, {"loss": "nan"}]
    assert all(step.time_ns == 1_767_323_040_000_000_000 + step.step * 1_000_000_000 for step in steps)


def test_a_person_is_told_what_was_guessed():
    _, _, events = read("".join(f"iter {step} | train_loss={3 - step / 10:.2f}\n" for step in range(5)))
    assert events[0].kind == "message"
    assert events[0].text.startswith("read by shape: step from 'iter', loss from 'train_loss'.")
    assert events[0].data == {"format": "by_shape", "step_from": "iter", "loss_from": "train_loss", "kind": "step"}


def test_lines_of_a_validation_a_checkpoint_and_a_summary_are_no_steps():
    text = ""
    for step in range(100, 1000, 100):
        text += f"step {step} loss 2.5\n"
        text += f"[eval] step {step} loss 2.9\nvalidation at step {step + 7}: loss 2.8\nTest: [{step}/900] loss 2.7\n"
        text += f"Saved checkpoint at step {step + 3} with loss 2.4\nbest loss so far 2.2 at step {step + 4}\n"
    _, steps, events = read(text)
    assert [(step.step, step.values["loss"]) for step in steps] == [(step, 2.5) for step in range(100, 1000, 100)]
    assert {event.data["validation_loss"] for event in events if "validation_loss" in event.data} == {2.9, 2.8, 2.7}


EPOCHS = {
    "total": ("Epoch {epoch} | batch {at}/300 | loss {loss}", 1, 300),
    "from 0": ("Epoch: [{epoch0}][{at}/300] loss {loss}", 0, 300),
    "no total": ("epoch: {epoch} step: {at}, loss is {loss}", 1, 300),
    "CIFAR": ("[{epoch}, {at:5d}] loss: {loss}", 1, 300),
    "a bar": ("Epoch {epoch} of 3:  10%|#   | {at}/300 [00:01<00:09, 9.0it/s, my_loss={loss}]", 1, 300),
}


@pytest.mark.parametrize("shape", EPOCHS)
def test_positions_in_an_epoch_are_numbered_on_over_the_training(shape):
    line, _, length = EPOCHS[shape]
    text, expected = "", []
    for epoch in (1, 2, 3):
        for at in range(100, 301, 100):
            text += line.format(epoch=epoch, epoch0=epoch - 1, at=at, loss=9 - epoch - at / 1000) + "\n"
            expected.append(((epoch - 1) * length + at, 9 - epoch - at / 1000))
    assert steps_of(text) == expected


def test_a_counter_of_the_whole_training_beside_an_epoch_is_left_as_it_is():
    text = "".join(f"epoch {1 + step // 300}/4 step {step}/1200 loss 2.5\n" for step in range(100, 1200, 100))
    assert [step for step, _ in steps_of(text)] == list(range(100, 1200, 100))
    text = "".join(f"epoch {1 + step // 300}/4 step {step}/1200 loss 2.5\n" for step in range(700, 1200, 100))
    assert [step for step, _ in steps_of(text)] == list(range(700, 1200, 100))


def test_the_epoch_may_stand_on_a_line_of_its_own_as_keras_writes_it():
    text = ""
    for epoch in (1, 2, 3):
        text += f"Epoch {epoch}/3\n"
        text += "".join(
            "\b" * 60 + f"\r{at}/5 [==>...] - ETA: 3s - loss: {9 - epoch - at / 10:.1f} - acc: 0.5" for at in range(1, 6)
        )
        text += f"\b\b\b\r5/5 [=====] - 6s 3ms/step - loss: {9 - epoch - 0.5:.1f} - acc: 0.9 - val_loss: 0.25\n"
    parser, steps, events = read(text)
    assert [step.step for step in steps] == list(range(1, 16))
    assert [event.data["validation_loss"] for event in events if "validation_loss" in event.data] == [0.25] * 3
    assert parser.format == "by_shape"


def test_a_bar_that_reached_its_end_and_begins_again_is_in_the_next_epoch():
    def bar(at):
        return f"\r{at // 2:3d}%|#    | {at}/200 [00:10<01:30, 10.00it/s, loss={9 - at / 100:.2f}]"

    text = "".join(bar(at) for at in range(201)) + "\n" + "".join(bar(at) for at in range(101)) + "\n"
    assert [step for step, _ in steps_of(text)] == list(range(1, 301))


def test_lines_that_name_their_step_are_preferred_to_a_bar():
    text = ""
    for step in range(1, 300):
        text += f"\r{step // 3:3d}%|#    | {step}/300 [00:10<01:30, 10.00it/s, loss={9 - step / 100:.2f}]"
        text += f"\nglobal_step {step // 4} loss {9 - step / 100:.3f}\n" if step % 8 == 0 else ""
    _, steps, _ = read(text)
    assert [step.step for step in steps] == [step // 4 for step in range(8, 300, 8)]


TABLES = {
    "chainer": (
        "epoch       iteration   main/loss   validation/main/loss  elapsed_time",
        "\x1b[J0           {step:<10d}  {loss:<10.4f}                        1.5",
    ),
    "spacy": ("E    #       LOSS TOK2VEC  SCORE ", "  0     {step:4d}        {loss:.4f}    0.10"),
    "pipes": ("| Step | Training Loss | LR |", "|  {step} |   {loss:.4f} | 0.1 |"),
    "blanks": ("  step     loss     lr     time", "{step:6d} {loss:.4f} 1.0e-3   00:12"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_by_its_line_of_names(name):
    header, row = TABLES[name]
    told = [(step, 5 - step / 1000) for step in range(100, 900, 100)]
    text = f"\n{header}\n" + "".join(row.format(step=step, loss=loss) + "\n" for step, loss in told)
    assert steps_of("a first line\n" * 25 + text) == told


def test_a_step_that_is_printed_in_thousands_is_counted_on_by_its_interval():
    printed = ["600", "800", "1K", "1K", "1K", "2K", "2K", "2K"]
    text = "".join(f"INFO step:{step} smpl:13K ep:40 loss:2.215 lr:1.0e-05\n" for step in printed)
    assert [step for step, _ in steps_of(text)] == list(range(600, 2001, 200))


def test_a_step_on_a_line_of_its_own_belongs_to_the_loss_below_it():
    text = ""
    for step in range(100, 900, 100):
        text += f"2026-01-02 03:04:{step // 100:02d} - INFO - Step {step} -- Training Metrics\n"
        text += f"2026-01-02 03:04:{step // 100:02d} - INFO - |-- Loss: {9 - step / 1000}\n2026-01-02 03:04:05 - INFO - |-- Learning Rate: 3e-06\n"
        text += f"2026-01-02 03:04:06 - INFO - Step {step} -- Evaluation Results\n2026-01-02 03:04:06 - INFO - |-- loss: 7.125\n"
    assert steps_of(text) == [(step, 9 - step / 1000) for step in range(100, 900, 100)]


def test_steps_of_a_manual_above_some_losses_are_none():
    _, steps, _ = read("Step 1: install\nStep 2: run\nloss 3.0\nStep 3: look\nloss 2.0\nStep 4: stop\n" * 3)
    assert steps == []


def test_a_dictionary_over_several_lines_is_one():
    text = "".join(
        f"{{'accuracy': 0.1,\n 'gradient_norm': 1.25,\n 'learning_rate': 1e-05,\n 'loss': {9 - step / 100},\n 'step': {step}}}\n\n"
        for step in range(0, 60, 10)
    )
    _, steps, _ = read(text)
    assert [(step.step, step.values) for step in steps] == [
        (step, {"loss": 9 - step / 100, "grad_norm": 1.25, "lr": 1e-05}) for step in range(0, 60, 10)
    ]


def test_a_dictionary_that_was_torn_swallows_no_steps():
    text = "".join(f"step {step} loss 2.5\n" for step in range(5)) + "{'a': 1,\n'b': 2,\n"
    text += "".join(f"step {step} loss 2.5\n" for step in range(5, 90))
    assert [step for step, _ in steps_of(text)] == list(range(90))


def test_a_bar_whose_description_tells_the_step_is_read():
    text = "".join(
        f"\rTraining ({step} / 5000 Steps) (loss={3 - step / 100:.2f}):   2%|#   | {step}/500 [00:10<01:30, 10.00it/s]"
        for step in range(1, 60)
    )
    assert [step for step, _ in steps_of(text)] == list(range(1, 60))


def test_two_numbers_in_front_are_epoch_and_batch():
    text = "".join(f"{epoch} {batch} Loss={9 - epoch - batch / 100} Time=0.044\n" for epoch in (3, 4) for batch in range(1, 9))
    assert [step for step, _ in steps_of(text)] == list(range(1, 17))


def test_what_follows_the_loss_is_not_its_subject():
    text = "".join(
        f"ep={epoch:02d} tr=['all'] loss={5 - epoch} err=0.5 valid=dev loss={6 - epoch} lr=0.1\n" for epoch in range(4)
    )
    _, steps, events = read(text)
    assert [(step.step, step.values["loss"]) for step in steps] == [(epoch, 5.0 - epoch) for epoch in range(4)]
    assert [event.data["validation_loss"] for event in events if "validation_loss" in event.data] == [6, 5, 4, 3]


def test_lines_of_all_ranks_are_one_step_each():
    text = "".join(f"[rank{rank}]: it {step} loss {3 - step / 100:.3f}\n" for step in range(40) for rank in range(64))
    parser, steps, _ = read(text)
    assert [step.step for step in steps] == list(range(40))
    assert parser.ranks_seen >= 60


def test_a_restart_from_an_earlier_step_is_a_new_attempt():
    _, steps, _ = read("".join(f"it {step} loss 2.5\n" for step in [*range(1, 100), *range(50, 80)]))
    assert [step.step for step in steps if step.attempt == 2] == list(range(50, 80))


def test_a_trainer_that_says_from_where_it_goes_on_begins_an_attempt():
    text = "".join(f"it {step}, loss 2.5\n" for step in range(1, 100))
    again = "[rank{}]: [Checkpoint] resumed from ./ckpt/latest.pt at step 97\n"
    text += again.format(0) + again.format(1) + "it 98, loss 2.5\n" + again.format(2) + again.format(3)
    text += "".join(f"it {step}, loss 2.5\n" for step in range(99, 140))
    _, steps, events = read(text)
    assert [event.step for event in events if event.kind == "resume"] == [97]
    assert [step.step for step in steps if step.attempt == 2] == list(range(98, 140))


def test_a_setting_that_speaks_of_resuming_begins_none():
    text = "resume=True, max step 500, resume_from: null, save step: 100\n" + "".join(
        f"it {step}, loss 2.5\n" for step in range(1, 50)
    )
    _, _, events = read(text)
    assert not [event for event in events if event.kind == "resume"]


@pytest.mark.parametrize("lines", [1, 2])
def test_too_few_lines_prove_nothing(lines):
    parser, steps, events = read("".join(f"step {step} loss 2.5\n" for step in range(lines)))
    assert (parser.format, steps, events) == (None, [], [])


NO_LOGS = {
    "a document": "# A project\n\n" + "".join(f"step {step} loss {9 - step}\n" for step in range(5)),
    "a program": "import os\n" + "".join(f"step {step} loss {9 - step}\n" for step in range(5)),
    "text of a program": "".join(f'    "step {step} loss {9 - step}",\n' for step in range(9)),
    "quoted": "".join(f"* it prints `step {step} loss {9 - step}`\n" for step in range(9)),
    "commands": "".join(f"+ python train.py --step {step} --loss {9 - step}\n" for step in range(9)),
    "a configuration": "steps: 100\nloss: mse\nloss_weight: 0.5\nwarmup_steps: 20 loss_scale 128\n" * 9,
    "losses that do not rise": "step 7 loss 2.5\n" * 50,
    "packets": "".join(f"step {step}: 0.0% packet loss\n" for step in range(9)),
    "validation only": "".join(f"validation step {step} loss 2.5\n" for step in range(9)),
    "steps of another kind": "".join(f"warmup steps {step} loss 2.5\n" for step in range(9)),
    "times that are called cost": "".join(f"step {step}: avg_reader_cost: 0.5 s, batch_cost: 2.5 s\n" for step in range(9)),
    "no loss": "".join(f"step {step} reward 2.5\n" for step in range(9)),
    "a table of a document": "| step | loss |\n|------|------|\n" + "".join(f"| {step} | 2.5 |\n" for step in range(9)),
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_only_looks_like_a_trainers_lines_is_read_as_nothing(name):
    parser, steps, _ = read(NO_LOGS[name])
    assert steps == []
    assert parser.format != "by_shape"


def test_a_known_trainers_line_ends_the_guessing():
    shape = "".join(f"step {step} loss 2.5\n" for step in range(1, 9))
    megatron = "".join(
        f" iteration {step:8d}/ 900 | lm loss: 2.0E+00 | number of skipped iterations: 0 |\n" for step in range(9, 15)
    )
    parser, steps, _ = read(shape + megatron)
    assert parser.format == "megatron"
    assert [step.step for step in steps] == list(range(1, 15))
    parser, steps, _ = read(shape[:18] + megatron)
    assert parser.format == "megatron"
    assert [step.step for step in steps] == list(range(9, 15))


def test_beside_deepspeeds_lines_that_tell_no_loss_the_trainers_own_are_read():
    text = ""
    for step in range(1, 101):
        text += f"step: {step} loss: {3 - step / 100:.3f}\n" if step > 5 else ""
        if step % 2 == 0:
            text += (
                "[2026-01-02 03:04:05,386] [INFO] [logging.py:96:log_dist] [Rank 0] "
                f"step={step}, skipped=0, lr=[2.5e-05], mom=[(0.9, 0.999)]\n"
            )
    parser, steps, _ = read(text)
    assert parser.format == "by_shape"
    assert sum("loss" in step.values for step in steps) >= 93
    assert len({step.step for step in steps}) == len(steps)


def test_a_trainer_that_goes_on_in_another_shape_is_followed():
    text = "".join(f"step {step} loss 2.5\n" for step in range(1, 30))
    text += "".join(f"Iteration {step}: total loss = 2.4\n" for step in range(30, 60))
    assert [step for step, _ in steps_of(text)] == list(range(1, 60))


def test_the_reading_goes_on_exactly_at_any_byte():
    text = "banner\n" + "".join(
        f"Epoch {epoch}/2\n" + "".join(f"{at}/4 - loss: {9 - at / 10} - val_loss: 0.5\nstep 9{at} loss 2\n" for at in range(1, 5))
        for epoch in (1, 2)
    ) + "".join(f"\r{at}%|#  | {at}/99 [00:10<01:30, 9.0it/s, loss=2]" for at in range(40))  # fmt: skip
    data = text.encode()
    whole = Parser(mtime_ns=1_767_400_000_000_000_000)
    expected = whole.feed(data) + whole.finish()
    assert any(isinstance(record, Step) for record in expected)
    for width in (1, 7, 64):
        assert read_in_pieces(data, width) == expected


def test_what_is_kept_is_bounded():
    parser = Parser()
    for number in range(3000):
        parser.feed(f"step {number % 3} of shape {'abcdefghij'[number % 10] * (number % 97)} loss {'x' * 900} loss 2\n".encode())
    assert len(json.dumps(parser.to_state())) < 400_000


def test_the_shape_can_be_asked_for_by_name():
    parser, steps, events = read("".join(f"step {step} loss 2.5\n" for step in range(5)), "by_shape")
    assert len(steps) == 5
    assert isinstance(events[0], Event)
    assert parser.format == "by_shape"
