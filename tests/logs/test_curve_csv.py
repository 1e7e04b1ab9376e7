"""Tables with a header: curves, and what loggers and trackers export."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.grammars.curve_csv import CurveCsv
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step


def parse(text, format="auto"):
    parser = Parser(format)
    records = parser.feed(text.encode()) + parser.finish()
    steps = [r for r in records if isinstance(r, Step)]
    return parser, steps, [r for r in records if isinstance(r, Event) and r.kind == "message"]


def losses(steps):
    return {step.step: step.values.get("loss", step.nonfinite.get("loss")) for step in steps}


def test_lightning_rows_of_one_step_are_joined_and_epoch_and_validation_rows_are_no_steps():
    _, steps, events = parse(
        "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss\n"
        ",0.001,49,,,\n0,,49,,3.5,\n,0.0009,99,,,\n0,,99,,3.2,\n0,,123,,,3.4\n0,,123,3.35,,\n1,,149,,3.1,\n"
    )
    assert losses(steps) == {49: 3.5, 99: 3.2, 149: 3.1}
    assert [step.values.get("lr") for step in steps] == [0.001, 0.0009, None]
    assert [(event.step, event.data["validation_loss"]) for event in events] == [(123, 3.4)]


@pytest.mark.parametrize(
    "name", ["train_loss", "train_loss_step", "train/loss", "train/loss_step", "loss", "training_loss", "Train Loss"]
)
def test_every_usual_name_of_the_training_loss_is_the_loss(name):
    parser, steps, _ = parse(f"epoch,step,{name}\n0,9,2.5\n0,19,2.25\n")
    assert parser.format == "curve_csv"
    assert losses(steps) == {9: 2.5, 19: 2.25}


def test_a_header_that_comes_again_with_moved_columns_is_followed():
    _, steps, _ = parse("epoch,step,train_loss\n0,9,2.5\nlr-Adam,train_loss,epoch,step,train_acc\n0.1,2.4,0,19,0.5\n,2.3,0,29,\n")
    assert losses(steps) == {9: 2.5, 19: 2.4, 29: 2.3}
    assert steps[1].values["lr"] == 0.1


def test_keras_rows_count_by_their_epoch_and_give_the_validation_as_an_event():
    _, steps, events = parse("epoch,accuracy,loss,val_accuracy,val_loss\n0,0.5,1.5,0.4,1.6\n1,0.6,1.2,0.5,1.4\n")
    assert losses(steps) == {0: 1.5, 1: 1.2}
    assert [event.data["validation_loss"] for event in events] == [1.6, 1.4]


def test_an_export_of_weights_and_biases_is_read_without_its_bounds_and_other_runs():
    _, steps, _ = parse(
        '"Step","run-a - train/loss","run-a - train/loss__MIN","run-a - train/loss__MAX","run-b - train/loss"\n'
        '"10","2.5","2.5","2.5","9.5"\n"20","2.4","2.4","2.4",""\n"30","","","","9.3"\n'
    )
    assert losses(steps) == {10: 2.5, 20: 2.4}
    assert steps[0].values["run_b_train_loss"] == 9.5


def test_the_trainers_own_step_wins_over_the_loggers_count_of_calls():
    _, steps, _ = parse("_step,_timestamp,train/global_step,train/loss\n0,1770000000.5,10,2.5\n1,1770000001.5,20,2.4\n")
    assert losses(steps) == {10: 2.5, 20: 2.4}
    assert steps[0].time_ns == 1_770_000_000_500_000_000


@pytest.mark.parametrize(
    "text",
    [
        "Wall time,Step,Value\n1770000000.25,5,2.5\n1770000009.25,10,2.25\n",
        "step,value,timestamp\n5,2.5,1770000000250\n10,2.25,1770000009250\n",
    ],
)
def test_a_download_of_one_tag_is_read_as_the_loss_with_its_times(text):
    _, steps, _ = parse(text)
    assert losses(steps) == {5: 2.5, 10: 2.25}
    assert steps[1].time_ns == 1_770_000_009_250_000_000


@pytest.mark.parametrize(
    "text",
    [
        "step;loss\n1;2,5\n2;2,25\n",
        "step\tloss\n1\t2.5\n2\t2.25\n",
        ",step,loss\n0,1,2.5\n1,2,2.25\n",
        '\ufeff"step","loss"\n"1","2.5"\n"2","2.25"\n',
    ],
)
def test_separators_index_columns_quotes_and_a_byte_order_mark_do_not_matter(text):
    assert losses(parse(text)[1]) == {1: 2.5, 2: 2.25}


def test_a_table_of_names_and_values_is_joined_by_step():
    _, steps, _ = parse(
        "run,tag,step,value,wall_time\na,train/loss,1,2.5,1770000000\na,train/lr,1,0.1,1770000000\na,train/loss,2,2.4,1770000001\n"
    )
    assert losses(steps) == {1: 2.5, 2: 2.4}
    assert steps[0].values["lr"] == 0.1


def test_nan_in_a_curve_of_the_contract_is_always_nonfinite():
    _, steps, _ = parse("step,loss,grad_norm,lr\n1,nan,0.5,0.1\n2,2.5,nan,0.1\n3,nan,nan,0.1\n")
    assert [step.nonfinite for step in steps] == [{"loss": "nan"}, {"grad_norm": "nan"}, {"loss": "nan", "grad_norm": "nan"}]


def test_nan_that_pads_the_rows_of_another_writer_is_not_logged():
    _, steps, events = parse("step,train_loss,grad_norm,val_loss\n1,2.5,0.5,nan\n1,nan,nan,2.7\n2,2.4,0.5,nan\n2,nan,nan,2.6\n")
    assert losses(steps) == {1: 2.5, 2: 2.4}
    assert not any(step.nonfinite for step in steps)
    assert [event.data["validation_loss"] for event in events if event.data["validation_loss"] != "nan"] == [2.7, 2.6]


def test_a_loss_that_turns_nan_beside_a_learning_rate_is_nonfinite():
    _, steps, _ = parse("step,train_loss,lr,accuracy\n1,2.5,0.1,0.2\n2,nan,0.1,0.1\n3,nan,0.1,0.1\n")
    assert losses(steps) == {1: 2.5, 2: "nan", 3: "nan"}


def test_a_loss_that_is_logged_every_few_rows_is_padded_from_the_first_row_on():
    rows = "".join(f"{n},{'nan' if n % 5 else 3.0 - n / 100},0.5\n" for n in range(1, 31))
    _, steps, _ = parse("step,lm loss,iteration-time\n" + rows)
    assert not any(step.nonfinite for step in steps)
    assert [step.step for step in steps if "loss" in step.values] == [5, 10, 15, 20, 25, 30]
    gone = "".join(f"{n},nan,0.5\n" for n in range(31, 71))
    _, steps, _ = parse("step,lm loss,iteration-time\n" + rows + gone)
    assert any(step.nonfinite for step in steps)


def test_a_loss_that_never_was_a_number_is_nonfinite_in_every_row():
    _, steps, _ = parse("step,train_loss,lr,accuracy\n" + "".join(f"{n},nan,0.1,0\n" for n in range(1, 500)))
    assert len(steps) == 499
    assert all(step.nonfinite == {"loss": "nan"} for step in steps)


@pytest.mark.parametrize(
    "line",
    [
        "name,step",
        "step,accuracy",
        "timestep of the loss, or epoch",
        "loss: 3, step: 4",
        "1,2,3",
        "step",
        "iteration time (ms), loss scale",
    ],
)
def test_a_line_that_is_no_header_of_a_curve_is_not_claimed(line):
    assert not CurveCsv.claims(line)


@given(
    st.lists(
        st.sampled_from(
            [
                "1,2.5,nan,0.1\n",
                "2,nan,1,\n",
                "3,,,0.3\n",
                "step,lr,x,train_loss\n",
                "x\n",
                '"4",1,2\n',
                ",,\n",
                "4,nan,nan,nan\n",
                "#\n",
            ]
        ),
        max_size=30,
    ),
    st.data(),
)
def test_any_cut_with_state_saved_and_restored_gives_the_same_records(lines, data):
    text = ("step,train_loss,val_loss,x\n" + "".join(lines)).encode()
    whole = Parser("csv")
    expected = whole.feed(text) + whole.finish()
    at = data.draw(st.integers(0, len(text)))
    first = Parser("csv")
    found = first.feed(text[:at])
    second = Parser("csv")
    second.restore(first.to_state())
    assert found + second.feed(text[at:]) + second.finish() == expected
    assert second.counters == whole.counters


def test_a_missing_step_is_counted():
    grammar = CurveCsv(LineTimes())
    for line in ("step,loss", "x,1", "1.5,1", "-1,2", "7"):
        grammar.feed(line)
    assert grammar.bad_records == 4


def test_steps_that_are_counted_in_each_epoch_are_numbered_on():
    _, steps, _ = parse("epoch,step,train_loss\n1,10,2.5\n1,20,2.4\n2,10,2.3\n2,20,2.2\n")
    assert [(step.step, step.attempt) for step in steps] == [(10, 1), (20, 1), (30, 1), (40, 1)]


@pytest.mark.parametrize(
    "name",
    [
        "val_loss",
        "val/loss",
        "eval_loss",
        "Loss/val",
        "valid_loss",
        "validation loss",
        "val_loss_epoch",
        "test_loss",
        "val_loss/dataloader_idx_0",
        "valLoss",
    ],
)
def test_every_usual_name_of_a_validation_loss_is_an_event_and_no_step(name):
    _, steps, events = parse(f"epoch,step,train_loss,{name}\n0,9,2.5,\n0,19,,2.75\n")
    assert losses(steps) == {9: 2.5}
    assert [(event.step, event.data["validation_loss"]) for event in events] == [(19, 2.75)]


def test_where_only_means_of_epochs_are_logged_they_are_the_training_loss():
    text = "epoch,step,train_loss_epoch,val_loss_epoch\n0,99,,2.75\n0,99,2.5,\n1,199,,2.5\n1,199,2.25,\n"
    steps, events = parse(text)[-2:]
    assert losses(steps) == {99: 2.5, 199: 2.25}
    assert [event.data["validation_loss"] for event in events if event.kind == "message"] == [2.75, 2.5]
