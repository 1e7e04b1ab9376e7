"""What looks like the line of an unknown trainer and is none, or tells less than it seems to: a wrong step is worse than an unread log."""

import time

import pytest
from reading import read


def lines(line, numbers=range(1, 41)):
    return "".join(line.format(n=number, loss=f"{6 - number / 50:.4f}") + "\n" for number in numbers)


NO_LOSSES = {
    "times": "iter {n} softmax_loss: 0.{n} ms",
    "a share": "pass step {n}: kept 98.5%, loss 0.0{n}%",
    "files": "runs/net-step={n}00-loss={loss}.ckpt",
    "files of a directory": "-rw-rw-r-- 1 me us 9911 Jan  2 03:04 net-step={n}00-loss={loss}.dat",
    "a patch": "+step {n}: loss {loss}",
    "a history": "commit {n}: repair step {n}, loss 0.{n} in tests",
    "configurations": " config {n}: batch {n} loss {loss}",
    "quantizing": "Quantizing block {n}/40: step {n}, loss: {loss}",
    "of a link": "update {n}, loss_of_signal: {n}",
    "of money": "step {n} profit/loss: {loss}, stop_loss={loss}",
}


@pytest.mark.parametrize("name", NO_LOSSES)
def test_what_is_no_training_loss_makes_no_step(name):
    parser, steps, _ = read(lines(NO_LOSSES[name]))
    assert (parser.format, steps) == (None, [])


def test_a_saved_file_on_the_line_of_a_step_hides_neither_its_step_nor_its_loss():
    _, steps, _ = read(lines("step {n} loss {loss} -> out/net-step=9-loss=0.5.safetensors"))
    assert [(step.step, step.values["loss"]) for step in steps[:2]] == [(1, 5.98), (2, 5.96)]


def test_a_loss_of_a_commitment_and_a_loss_with_a_rate_behind_it_are_losses():
    _, steps, _ = read(lines("commit_loss 0.25 step {n} loss {loss} 12.5ms/step"))
    assert steps[0].values == {"loss": 5.98, "commit_loss": 0.25, "step_time_s": 0.0125}


@pytest.mark.parametrize("value", ["5,9409", "5,940", "12,5"])
def test_a_decimal_comma_is_no_loss_of_five(value):
    parser, steps, _ = read("".join(f"step {step} loss {value}\n" for step in range(9)) + "step 9 loss 5,")
    assert (steps, parser.counters["failed_lines"]) == ([], 0)


def test_a_decimal_comma_elsewhere_is_left_out():
    _, steps, _ = read("".join(f"step {step}, loss 5.94, lr 0,0003, tokens 1,234,567\n" for step in range(9)))
    assert steps[0].values == {"loss": 5.94, "tokens": 1234567.0}


def test_times_are_seconds_whatever_they_are_printed_in():
    _, steps, _ = read(lines("step {n} loss {loss} data_time 12us copy_time 3ms host_time 5µs wait_time 2s"))
    assert {name: value for name, value in steps[0].values.items() if name != "loss"} == pytest.approx(
        {"data_time": 12e-6, "copy_time": 3e-3, "host_time": 5e-6, "wait_time": 2.0}
    )


def test_a_critics_loss_without_a_total_stays_under_its_own_name():
    _, steps, _ = read(lines("iter={n} reward=1.5 loss_critic=90{n}.5 loss_policy=0.25"))
    assert steps[0].values == {"reward": 1.5, "loss_critic": 901.5, "loss_policy": 0.25}
    _, steps, _ = read(lines("iter={n} loss_critic=nan loss_policy=0.25"))
    assert dict(steps[0].nonfinite) == {"loss": "nan"}
    _, steps, _ = read(lines("iter={n} loss_critic=901.5 loss={loss}"))
    assert steps[0].values["loss"] == 5.98


def test_a_person_is_told_that_a_position_may_count_samples():
    _, _, events = read(lines("Train Epoch: 1 [{n}600/60000 ({n}%)]\tLoss: {loss}"))
    assert "samples" in events[0].text


def test_names_of_files_take_no_long_time():
    began = time.process_time()
    read((("a" * 1990) + ".pt\n") * 20 + ("loss.pt" * 280 + "\n") * 20 + "%|" + "loss.pt" * 100_000 + "\n")
    assert time.process_time() - began < 10
