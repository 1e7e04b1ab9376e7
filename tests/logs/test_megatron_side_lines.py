"""What Megatron-LM and its forks print beside their steps: validations, checkpoints, begin and end."""

import pytest
from megatron_lines import FULL, events, read


@pytest.mark.parametrize(
    ("line", "step", "data"),
    [
        (" validation loss at iteration 1000 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 | ", 1000, {"validation_loss": 2.5, "validation_ppl": 12.0}),
        (" validation loss at iteration 1000 on validation set | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |", 1000, {"validation_loss": 2.5, "validation_ppl": 12.0}),
        (" validation loss at iteration 1000 on test set | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |", 1000, {"test_loss": 2.5, "test_ppl": 12.0}),
        (" valid loss at iteration 50 | lm loss value: 2.5E+00 |", 50, {"validation_loss": 2.5}),
        (" validation loss at the end of training for val data | lm loss value: 2.5E+00 |", None, {"validation_loss": 2.5}),
        (" validation loss at the end of training for test data | lm loss value: 2.5E+00 |", None, {"test_loss": 2.5}),
        (" validation loss at iteration 238 [english] | lm loss value: 1.5 | mtp_1 loss value: 1.75 |", 238, {"validation_loss": 1.5, "validation_mtp_1_loss": 1.75}),
        (" validation results at iteration 10 | lm_loss value: 3.5E+00 | lm_loss_ppl value: 3.3E+01 |", 10, {"validation_loss": 3.5, "validation_ppl": 33.0}),
        (" validation loss at iteration 10 | lm loss value: NAN | lm loss PPL: 1.0E+00 |", 10, {"validation_loss": "nan", "validation_ppl": 1.0}),
        (" validation loss at iteration 10 | lm loss value: 2.5E+00 | lm loss PPL: 1.", 10, {"validation_loss": 2.5}),
    ],
)  # fmt: skip
def test_a_validation_in_every_spelling_is_a_message(line, step, data):
    (event,) = read([line])
    assert (event.kind, event.step, event.data) == ("message", step, data)


def test_a_save_is_two_phases_and_its_time_a_message():
    found = events(
        [
            "saving checkpoint at iteration    4000 to /ckpt in torch_dist format",
            "  successfully saved checkpoint from iteration    4000 to /ckpt [ t 1/2, p 1/4 ]",
            "(min, max) time across ranks (ms):",
            "    save-checkpoint ................................: (41000.25, 41001.50)",
        ]
    )
    assert [(event.kind, event.step, dict(event.data)) for event in found] == [
        ("phase", 4000, {"phase": "checkpoint", "state": "begin", "path": "/ckpt"}),
        ("phase", 4000, {"phase": "checkpoint", "state": "end", "path": "/ckpt"}),
        ("message", 4000, {"checkpoint_seconds": 41.0015}),
    ]
    older = events(["  successfully saved checkpoint at iteration 400 to /c", "time (ms) | save-checkpoint: 41000.25"])
    assert older[-1].data == {"checkpoint_seconds": 41.00025}


@pytest.mark.parametrize(
    ("line", "step", "path"),
    [
        ("  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/4 ] at iteration 4000", 4000, "/ckpt"),
        ("  successfully loaded checkpoint from /ckpt at iteration 4000", 4000, "/ckpt"),
        ("  successfully loaded checkpoint (version 3.0) from /ckpt [ t 0, p 0 ] at iteration 4000", 4000, "/ckpt"),
        (
            "  successfully loaded /ckpt/iter_0004000/mp_rank_00/model_optim_rng.pt",
            4000,
            "/ckpt/iter_0004000/mp_rank_00/model_optim_rng.pt",
        ),
        (
            "  successfully loaded /ckpt/global_step4000/mp_rank_00_model_states.pt",
            4000,
            "/ckpt/global_step4000/mp_rank_00_model_states.pt",
        ),
    ],
)
def test_a_loaded_checkpoint_is_one_resume_although_all_ranks_say_it(line, step, path):
    (event,) = read([line] * 4)
    assert (event.kind, event.step, event.data["path"]) == ("resume", step, path)


def test_begin_and_end_of_the_program_are_phases_with_their_own_time():
    found = events(
        [
            "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt ",
            "[before the start of training step] datetime: 2026-01-02 03:04:05 ",
            FULL,
            "[exiting program after 700.55 minutes] datetime: 2026-01-02 03:04:05 ",
            "[after training is done] datetime: 2026-01-02 03:04:05 ",
        ]
    )
    assert [(event.kind, event.data.get("phase"), event.step) for event in found] == [
        ("message", None, None), ("phase", "train", None), ("phase", "finished", 30), ("phase", "finished", 30),
    ]  # fmt: skip
    assert {event.time_ns for event in found[1:]} == {1_767_323_045_000_000_000}
    assert found[0].data == {"fresh_start": True, "path": "/ckpt/latest_checkpointed_iteration.txt"}
