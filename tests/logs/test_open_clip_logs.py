"""OpenCLIP's lines, which count samples."""

import json

from hypothesis import given
from hypothesis import strategies as st
from reading import read

from trainvitals.logs.grammars.open_clip import OpenClip
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step


def line(samples, epoch=0, total=1024 * 250, loss=8.25, rate=512.0):
    return (
        f"2026-01-02,03:04:05 | INFO | Train Epoch: {epoch} [{samples:>7}/{total} ({100 * samples // total}%)] Data (t): 0.020 "
        f"Batch (t): 2.000, {rate:#g}/s, 64.0/s/gpu LR: 0.000100 Logit Scale: 14.286 "
        f"Contrastive_loss: {loss:#.5g} (8.9000) Loss: {loss:#.5g} (8.9000)\n"
    )


def test_the_first_line_of_an_epoch_tells_the_size_of_a_step():
    text = "".join(line(1024 * count, epoch, loss=8.25 - count / 200) for epoch in (0, 1) for count in (1, 101, 201, 250))
    parser, steps, _ = read(text)
    assert parser.format == "open_clip"
    assert [step.step for step in steps] == [1, 101, 201, 250, 251, 351, 451, 500]
    assert steps[1].values["loss"] == 7.745
    assert steps[0].values["lr"] == 1e-4
    assert steps[0].values["step_time_s"] == 2.0
    assert steps[0].values["samples_per_s"] == 512.0
    assert steps[0].time_ns is not None


def test_a_log_that_begins_later_takes_it_from_the_rate():
    _, steps, _ = read(line(1024 * 101, rate=500.0) + line(1024 * 201))
    assert [step.step for step in steps] == [101, 201]


def test_an_evaluation_is_an_event_and_other_programs_lines_are_no_steps():
    text = (
        line(1024) + "2026-01-02,03:05:05 | INFO | Eval Epoch: 1 image_to_text_mean_rank: 3.5\tclip_val_loss: 2.5\tepoch: 1.0\n"
    )
    text += "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039\n"
    _, steps, events = read(text)
    assert [step.step for step in steps] == [1]
    assert [event.data for event in events if event.kind == "message"] == [{"validation_loss": 2.5}]
    assert not OpenClip.claims("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039")


LINES = st.one_of(st.text(max_size=80), st.builds(line, st.integers(0, 10**15), st.integers(0, 9), st.integers(1, 10**15)))


@given(st.lists(LINES, max_size=12), st.integers(0, 12))
def test_no_line_makes_it_raise_and_its_state_goes_on_anywhere(lines, cut):
    whole, first, second = OpenClip(LineTimes()), OpenClip(LineTimes()), OpenClip(LineTimes())
    expected = [record for text in lines for record in whole.feed(text)]
    found = [record for text in lines[:cut] for record in first.feed(text)]
    second.restore(json.loads(json.dumps(first.to_state())))
    found += [record for text in lines[cut:] for record in second.feed(text)]
    assert found == expected
    assert all(isinstance(record, Step | Event) for record in found)
