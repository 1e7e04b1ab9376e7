"""Trainers that are known by what only they write, and read by shape: ESPnet, icefall, Paddle's tools, MindSpore, LeRobot, Marian, OpenNMT, CLU."""

import pytest
from reading import read, read_in_pieces

from trainvitals.logs.grammars.shaped import SHAPED
from trainvitals.logs.parser import Parser


def test_espnets_batches_are_numbered_on_over_the_epochs_and_its_results_are_no_steps():
    text = ""
    for epoch in (1, 2):
        text += f"[n] 2026-01-02 03:0{epoch}:00,123 (trainer:298) INFO: {epoch}/30epoch started. Estimated time to finish: 7 minutes\n"
        for end in (50, 100, 150):
            text += (
                f"[n] 2026-01-02 03:0{epoch}:{end // 5},123 (trainer:753) INFO: {epoch}epoch:train:{end - 49}-{end}batch: iter_time=0.1, "
                f"loss_att=35.8, loss=5{epoch}.{end}, grad_norm=1.5, optim_step_time=0.006, optim0_lr0=1.0e-05, train_time=0.25\n"
            )
        text += (
            f"[n] 2026-01-02 03:0{epoch}:50,1 (trainer:352) INFO: {epoch}epoch results: [train] iter_time=0.1, loss=9.5, train_time=0.2, "
            "time=1 minute, total_count=150, [valid] loss=8.5, acc=0.471, time=2.1 seconds, total_count=15\n"
        )
    parser, steps, _ = read(text)
    assert parser.format == "espnet"
    assert [step.step for step in steps] == [50, 100, 150, 200, 250, 300]
    assert steps[3].values == {
        "loss": 52.5, "data_time": 0.1, "loss_att": 35.8, "grad_norm": 1.5, "optimizer_time": 0.006, "lr": 1e-05, "step_time_s": 0.25,
    }  # fmt: skip


def test_icefalls_ranks_are_one_step_each_and_its_validation_is_none():
    text = ""
    for batch in (0, 50, 100):
        for rank in range(8):
            text += (
                f"2026-01-02 03:04:{batch // 2:02d},352 INFO [train.py:907] ({rank}/8) Epoch 1, batch {batch}, loss[loss=1.{rank}, "
                "simple_loss=0.2, over 493.00 frames. ], tot_loss[loss=0.5, over 17.05 frames. ], batch size: 9, lr: 3.41e-04\n"
            )
        text += f"2026-01-02 03:04:{batch // 2:02d},691 INFO [train.py:939] (0/8) Epoch 1, validation: loss=0.9002, over 18067.00 frames.\n"
    parser, steps, _ = read(text)
    assert (parser.format, [(step.step, step.values["loss"]) for step in steps]) == ("icefall", [(0, 1.0), (50, 1.0), (100, 1.0)])
    assert steps[0].values["tot_loss"] == 0.5
    assert parser.ranks_seen == 8


def test_paddle_fills_up_what_is_no_number():
    text = (
        "[2026/01/02 03:04:05] ppocr INFO: epoch: [1/400], global_step: 50, lr: 0.001, CTCLoss: nanxxx, loss: nanxxx, "
        "avg_reader_cost: 0.00013 s, avg_batch_cost: 0.47813 s, ips: 200.7 samples/s\n"
        "[2026/01/02 03:04:09] ppocr INFO: epoch: [1/400], global_step: 60, lr: 0.001, CTCLoss: 1.5, loss: 2.5, "
        "avg_reader_cost: Nanxxx s, avg_batch_cost: 0.47813 s, ips: 200.7 samples/s\n"
    )
    parser, steps, _ = read(text)
    assert parser.format == "paddle"
    assert [(step.step, step.values.get("loss"), step.nonfinite.get("loss")) for step in steps] == [
        (50, None, "nan"),
        (60, 2.5, None),
    ]
    assert steps[0].values["step_time_s"] == 0.47813
    assert steps[0].values["samples_per_s"] == 200.7


def test_paddle_detection_counts_in_epochs():
    line = (
        "[08/05 19:22:17] ppdet.engine INFO: Epoch: [{}] [{:3d}/200] learning_rate: 0.021984 loss: 1.673549 loss_cls: 0.792350 "
        "eta: 3 days, 23:59:59 batch_cost: 1.5877 data_cost: 0.2152 ips: 11.9668 images/s\n"
    )
    _, steps, _ = read("".join(line.format(epoch, at) for epoch in (0, 1) for at in (0, 100)))
    assert [step.step for step in steps] == [0, 100, 200, 300]
    assert steps[0].values["lr"] == 0.021984


def test_mindspores_steps_are_numbered_on_over_the_epochs():
    parser, steps, _ = read("".join(f"epoch: {epoch} step: {at}, loss is 2.5\n" for epoch in (1, 2, 3) for at in (5, 10, 15)))
    assert (parser.format, [step.step for step in steps]) == ("mindspore", list(range(5, 46, 5)))


def test_lerobot_rounds_its_steps():
    line = "INFO 2026-01-02 03:04:{:02d} ot_train.py:357 step:{} smpl:13K ep:40 epch:1.01 loss:2.215 grdn:49.836 lr:1.0e-05 updt_s:0.5 data_s:0.1\n"
    printed = ["600", "800", "1K", "1K", "1K", "2K", "2K", "2K", "2K", "2K", "3K"]
    parser, steps, _ = read("".join(line.format(at, step) for at, step in enumerate(printed)))
    assert (parser.format, [step.step for step in steps]) == ("lerobot", list(range(600, 2601, 200)))


def test_levanters_counts_are_read_as_they_are_rounded():
    printed = {"19.0it": 19, "500it": 500, "1.00kit": 1000, "1.48kit": 1480, "12.3kit": 12300}
    line = "I 2026-01-02 03:04:05 Progress on:train {}/18.0kit rate:{} remaining:2:04:01 elapsed:17:46 postfix:loss=3.45\n"
    parser, steps, _ = read("".join(line.format(count, "2.0it/s") for count in printed) + line.format("12.4kit", "4.0s/it"))
    assert (parser.format, [step.step for step in steps]) == ("levanter", [*printed.values(), 12400])
    assert [step.values["step_time_s"] for step in steps[-2:]] == [0.5, 4.0]


@pytest.mark.parametrize("grammar", SHAPED, ids=lambda grammar: grammar.name)
def test_each_goes_on_at_any_byte(grammar):
    data = ((grammar.example + "\n") * 3).encode()
    whole = Parser(mtime_ns=1_767_400_000_000_000_000)
    expected = whole.feed(data) + whole.finish()
    assert whole.format == grammar.name
    for width in (5, 61):
        assert read_in_pieces(data, width) == expected
