"""Which checkpoint to go back to: every reason against one, what going back costs, and what a hostile path can do (nothing)."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_suspect import SECOND_NS, Start, finding, incident

from trainvitals.incidents.data_to_skip import data_to_skip
from trainvitals.incidents.resume_command import resume_command, template_problem
from trainvitals.incidents.rollback import RollbackInputs, recommend
from trainvitals.incidents.rollback_words import safe_sentence
from trainvitals.records import CheckpointReport, CheckpointState, Event, Severity, VerificationLevel

CONTENT, STRUCTURE = VerificationLevel.CONTENT, VerificationLevel.STRUCTURE


def saved(step: int, path: str = "", **changes: object) -> CheckpointReport:
    made = CheckpointReport(
        path or f"/c/checkpoint-{step}",
        step,
        "hf",
        CheckpointState.VERIFIED,
        CONTENT,
        True,
        4,
        1,
        modified_at_ns=step * SECOND_NS,
    )
    return replace(made, **changes)


SICK = replace(finding(1860), data={"rise_from": 1860})
OPEN = incident(SICK)
FIRST = Start(1, 0, 1, 1930)


def chosen(*checkpoints: CheckpointReport, **inputs: object) -> tuple[str | None, dict[str, str]]:
    found = recommend(RollbackInputs(checkpoints, **inputs))
    return (found.checkpoint.path if found.checkpoint else None), dict(found.rejected)


def sick(*checkpoints: CheckpointReport, **inputs: object) -> tuple[str | None, dict[str, str]]:
    return chosen(*checkpoints, **({"incidents": [OPEN], "findings": [SICK], "attempts": [FIRST], "last_step": 1930} | inputs))


def test_the_newest_verified_one_of_a_healthy_run() -> None:
    path, rejected = chosen(saved(100), saved(200), saved(300, state=CheckpointState.COMPLETE))
    assert path == "/c/checkpoint-200"
    assert rejected == {
        "/c/checkpoint-100": "it is older than the recommended one (step 200)",
        "/c/checkpoint-300": "its files are there, but nothing has verified them",
    }


def test_without_any_it_says_why() -> None:
    assert recommend(RollbackInputs([])).why == "No checkpoint is known, so none can be recommended."
    found = recommend(RollbackInputs([saved(100, state=CheckpointState.CORRUPT, reasons=("model.safetensors is cut off",))]))
    assert found.checkpoint is None and "(step 100): it is damaged (model.safetensors is cut off)" in found.why
    assert safe_sentence(found).startswith("no safe checkpoint: none of 1 can be recommended")


def test_one_newer_one_is_told_as_one() -> None:
    found = recommend(RollbackInputs([saved(100), saved(200, state=CheckpointState.COMPLETE)]))
    assert "the only newer one (step 200) is not safe: its files are there" in found.why
    found = recommend(RollbackInputs([saved(100), *(saved(step, state=CheckpointState.COMPLETE) for step in (200, 300))]))
    assert "of 2 newer ones none is safe, the next (step 200): its files are there" in found.why


@pytest.mark.parametrize("state", [state for state in CheckpointState if state is not CheckpointState.VERIFIED])
def test_only_a_verified_one_is_recommended(state: CheckpointState) -> None:
    path, rejected = chosen(saved(100), saved(200, state=state))
    assert path == "/c/checkpoint-100" and rejected["/c/checkpoint-200"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"level": VerificationLevel.PRESENCE}, "presence"),
        ({"level": None}, "presence"),
        ({"loss": float("nan")}, "not a number"),
        ({"has_optimizer": False}, "no optimizer"),
    ],
)
def test_each_reason_against_one_is_told(changes: dict[str, object], reason: str) -> None:
    path, rejected = chosen(saved(100), saved(200, **changes))
    assert path == "/c/checkpoint-100" and reason in rejected["/c/checkpoint-200"]


def test_one_whose_step_is_not_known_is_no_way_back() -> None:
    path, rejected = chosen(saved(100), replace(saved(200), step=None))
    assert path == "/c/checkpoint-100" and rejected["/c/checkpoint-200"] == "its step is not known"


def test_weights_without_optimizer_are_better_than_nothing_and_it_says_so() -> None:
    found = recommend(RollbackInputs([saved(100, has_optimizer=False)]))
    assert found.checkpoint is not None and "expect a rebound" in found.why and "WITHOUT optimizer" in safe_sentence(found)


def test_of_two_copies_of_one_step_the_one_of_which_more_is_proven() -> None:
    path, rejected = chosen(saved(100, "/local/checkpoint-100", level=STRUCTURE), saved(100, "/shared/checkpoint-100"))
    assert path == "/shared/checkpoint-100" and "copy of the recommended step" in rejected["/local/checkpoint-100"]


def test_a_newer_one_of_which_less_is_proven_wins_and_its_content_is_to_be_looked_at_first() -> None:
    found = recommend(RollbackInputs([saved(100), saved(200, level=STRUCTURE)]))
    assert found.checkpoint is not None and found.checkpoint.step == 200 and found.needs_content


def test_what_was_saved_from_the_onset_on_is_rejected_and_what_lies_just_before_it_too() -> None:
    path, rejected = sick(saved(1800), saved(1852), saved(1870))
    assert path == "/c/checkpoint-1800"
    assert "8 steps before an onset (step 1,860), which is too near" in rejected["/c/checkpoint-1852"]
    assert "at or after the onset of an incident, step 1,860" in rejected["/c/checkpoint-1870"]


def test_the_margin_grows_with_the_doubt_about_the_onset() -> None:
    slow = replace(SICK, data={"rise_from": 1700})
    assert sick(saved(1600), saved(1695), findings=[slow])[0] == "/c/checkpoint-1600"
    late = replace(SICK, rule="loss_drift", data={}, detected_step=1960)
    assert sick(saved(1600), saved(1700), findings=[late], incidents=[incident(late)])[0] == "/c/checkpoint-1600"
    assert sick(saved(1600), saved(1800), gap_steps=50)[0] == "/c/checkpoint-1600"


def test_trouble_that_came_with_a_resume_speaks_only_of_what_came_after_it() -> None:
    rebound = finding(1801, attempt=2, rule="resume_rebound")
    starts = [FIRST, Start(2, 2500 * SECOND_NS, 1801, 1850, 1800)]
    assert chosen(saved(1800), incidents=[incident(rebound)], findings=[rebound], attempts=starts)[0] == "/c/checkpoint-1800"


def test_a_spike_that_healed_spoils_what_was_saved_in_it_and_nothing_else() -> None:
    healed = replace(SICK, rule="loss_spike", last_step=1900, is_open=False)
    healed_incident = incident(healed, last_step=1900)
    longer = replace(FIRST, last_step=2400)
    path, rejected = sick(saved(1870), saved(2000), incidents=[healed_incident], findings=[healed], attempts=[longer])
    assert path == "/c/checkpoint-2000" and "at or after the onset" in rejected["/c/checkpoint-1870"]


def test_between_two_spikes_that_people_see_as_one_incident_it_was_healthy() -> None:
    first = replace(
        SICK,
        id="a",
        rule="loss_spike",
        first_step=1500,
        detected_step=1502,
        last_step=1520,
        is_open=False,
        data={"rise_from": 1500},
    )
    second = replace(SICK, id="b")
    both = replace(OPEN, finding_ids=("a", "b"), first_step=1500, rules=("loss_spike", "loss_divergence"))
    assert sick(saved(1400), saved(1510), saved(1700), incidents=[both], findings=[first, second])[0] == "/c/checkpoint-1700"


def test_a_level_that_was_taken_for_usual_is_no_recovery_unless_the_loss_came_back() -> None:
    accepted = replace(SICK, last_step=3860, is_open=False, data={"is_accepted": True, "rise_from": 1860})
    told = {
        "incidents": [incident(accepted, last_step=3860)],
        "findings": [accepted],
        "attempts": [replace(FIRST, last_step=9000)],
    }
    assert chosen(saved(1800), saved(5000), **told)[0] == "/c/checkpoint-1800"
    assert chosen(saved(1800), saved(5000, loss=2.9), **told)[0] == "/c/checkpoint-1800"
    assert chosen(saved(1800), saved(5000, loss=2.1), **told)[0] == "/c/checkpoint-5000"


def test_a_history_that_was_given_up_is_no_way_back() -> None:
    starts = [Start(1, 0, 1, 2000), Start(2, 3000 * SECOND_NS, 1501, 1700, 1500)]
    again = saved(1600, modified_at_ns=3100 * SECOND_NS)
    path, rejected = chosen(saved(1500), again, saved(2000), attempts=starts, last_step=1700)
    assert path == "/c/checkpoint-1600" and "attempt 2 did not go on from it" in rejected["/c/checkpoint-2000"]


def test_a_start_that_went_on_from_an_older_history_brings_it_back() -> None:
    starts = [Start(1, 0, 1, 2000), Start(2, 3000 * SECOND_NS, 1001, 1200, 1000), Start(3, 5000 * SECOND_NS, 2001, 2100, 2000)]
    wrong = saved(1200, modified_at_ns=3500 * SECOND_NS)
    path, rejected = chosen(wrong, saved(2000), attempts=starts, last_step=2100)
    assert path == "/c/checkpoint-2000" and "/c/checkpoint-1200" in rejected
    assert "given up" in chosen(wrong, attempts=starts)[1]["/c/checkpoint-1200"]


def test_a_copy_that_lost_its_time_belongs_to_whoever_can_have_written_it() -> None:
    starts = [Start(1, 0, 1, 2000), Start(2, 3000 * SECOND_NS, 1501, 1700, 1500)]
    copied_later = saved(1400, modified_at_ns=9999 * SECOND_NS)
    unknown = saved(1900, modified_at_ns=None)
    path, rejected = chosen(copied_later, unknown, attempts=starts)
    assert path == "/c/checkpoint-1400" and "given up" in rejected["/c/checkpoint-1900"]


def test_what_going_back_costs_and_the_sentence_that_says_so() -> None:
    inputs = RollbackInputs(
        [saved(48_000)], [replace(OPEN, first_step=48_210)], [replace(SICK, first_step=48_210, detected_step=48_213, data={})],
        [Start(1, 0, 1, 48_310)], 48_310, 1, step_s=6.0, tokens_per_step=4e6, gpus=5120, resume_command="sbatch go.sh {checkpoint}",
        pinned=["/c/checkpoint-48000"],
    )  # fmt: skip
    found = recommend(inputs)
    assert (found.redo_steps, found.redo_tokens, round(found.redo_gpu_hours or 0)) == (310, 1_240_000_000, 2645)
    assert safe_sentence(found) == (
        "safe checkpoint: step 48,000, content verified, before the onset, pinned; "
        "going back redoes 310 steps = 1.24 billion tokens = 2,650 GPU-h"
    )
    assert found.command.text == "sbatch go.sh /c/checkpoint-48000" and found.onset_step == 48_210
    assert found.skip is not None and (found.skip.first_step, found.skip.last_step) == (48_110, 48_310)
    assert "Lies" not in found.why and "210 steps before the onset (step 48,210)" in found.why


# the command


@pytest.mark.parametrize(
    "path",
    [
        "/c/checkpoint-1",
        "/c/a b",
        "/c/$(touch OWNED)",
        "/c/`touch OWNED`",
        "/c/'; touch OWNED; '",
        '/c/"; touch OWNED; "',
        "/c/-rf *?[a]~",
    ],
)
def test_a_path_is_one_argument_whatever_it_is_called(path: str, tmp_path: object) -> None:
    command = resume_command("printf %s {checkpoint}", path, 7)
    done = subprocess.run(["/bin/sh", "-c", command.text], capture_output=True, text=True, cwd=str(tmp_path))
    assert done.stdout == path and not list(__import__("pathlib").Path(str(tmp_path)).iterdir())


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_is_one_word_of_the_command_or_there_is_no_command(path: str) -> None:
    command = resume_command("run --resume {checkpoint} --step {step}", path, 12)
    if command.text:
        assert shlex.split(command.text) == ["run", "--resume", path, "--step", "12"]
    else:
        assert "control characters" in command.problem and not path.isprintable()


@pytest.mark.parametrize(
    "template",
    ['run "{checkpoint}"', "run '{checkpoint}'", "run \\{checkpoint}", "run # {checkpoint}", "run `x {checkpoint}`", "run\n{checkpoint}", "run",
     "bash -c 'run {step}'"],
)  # fmt: skip
def test_a_template_that_would_undo_the_quoting_gives_no_command_but_the_reason(template: str) -> None:
    assert template_problem(template)
    assert resume_command(template, "/c/x", 1).text == ""


def test_placeholders_in_a_path_are_not_filled_in_again() -> None:
    assert resume_command("run {checkpoint} {step}", "/c/{step}", 5).text == "run '/c/{step}' 5"
    assert resume_command("run {checkpoint} {other}", "/c/x", None).text == "run /c/x {other}"
    assert "step" in resume_command("run {step}", "/c/x", None).problem
    assert resume_command("", "/c/x", 1).problem.startswith("not set: write resume_command")


# the data


def told(step: int, first: int, last: int) -> Event:
    return Event("data", 0, step=step, data={"sample_first": first, "sample_last": last})


def test_samples_are_named_where_data_events_stand_on_both_sides() -> None:
    data = [told(1700, 17_000, 17_009), told(2100, 21_000, 21_009)]
    skip = data_to_skip(data, 1500, 1860, 1930)
    assert skip is not None and (skip.first_step, skip.last_step) == (1760, 1959)
    assert (skip.first_sample, skip.last_sample) == (17_600, 19_599)
    assert "samples 17,600 to 19,599" in skip.sentence


def test_no_samples_are_guessed_beyond_what_was_told_or_over_an_epochs_end() -> None:
    assert data_to_skip([told(1700, 1, 2)], 1500, 1860, 1930).first_sample is None  # type: ignore[union-attr]
    turned = data_to_skip([told(1700, 9_000, 9_009), told(2100, 10, 19)], 1500, 1860, 1930)
    assert turned is not None and turned.first_sample is None and "samples" not in turned.sentence
    hostile = Event("data", 0, step=1800, data={"sample_first": "x", "sample_last": True})
    assert data_to_skip([hostile], 1500, 1860, 1930).first_sample is None  # type: ignore[union-attr]
    assert data_to_skip([], None, 1860, 1930) is None and data_to_skip([], 1500, None, 1930) is None


def test_the_range_is_200_to_500_batches_and_begins_after_the_checkpoint() -> None:
    assert data_to_skip([], 1855, 1860, 1861) == replace(data_to_skip([], 1855, 1860, 1861), first_step=1856, last_step=2055)  # type: ignore[type-var]
    long = data_to_skip([], 100, 1860, 9000)
    assert long is not None and long.last_step - long.first_step == 499


def test_an_incident_of_info_changes_nothing() -> None:
    assert sick(saved(1870), incidents=[incident(SICK, severity=Severity.INFO)])[0] == "/c/checkpoint-1870"


# whatever it is given


NUMBERS = st.one_of(st.none(), st.integers(0, 3000))
REPORTS = st.builds(
    CheckpointReport, st.sampled_from([f"/c/{n}" for n in range(12)]), NUMBERS, st.just("hf"), st.sampled_from(CheckpointState),
    st.one_of(st.none(), st.sampled_from(VerificationLevel)), st.sampled_from([True, False, None]), st.just(1), st.just(1),
    modified_at_ns=st.one_of(st.none(), st.integers(0, 3000).map(lambda s: s * SECOND_NS)),
    loss=st.one_of(st.none(), st.floats()),
)  # fmt: skip
STARTS = st.builds(Start, st.integers(1, 5), st.integers(0, 3000).map(lambda s: s * SECOND_NS), NUMBERS, NUMBERS, NUMBERS)
FINDINGS = st.builds(
    lambda first, attempt, rule, last, data: replace(finding(first, attempt, rule), last_step=last, is_open=last is None, data=data),
    st.integers(0, 3000), st.integers(1, 5), st.sampled_from(["loss_spike", "loss_divergence", "loss_drift", "resume_rebound", "run_dead"]),
    NUMBERS, st.sampled_from([{}, {"rise_from": 5}, {"rise_from": "x"}, {"is_accepted": True}]),
)  # fmt: skip


@given(st.lists(REPORTS, max_size=12), st.lists(FINDINGS, max_size=5), st.lists(STARTS, max_size=5), NUMBERS, st.integers(0, 100))
def test_any_history_gives_a_verified_one_or_none_and_a_reason_for_every_other(reports, findings, starts, last, gap) -> None:
    incidents = [incident(one, last_step=one.last_step) for one in findings]
    found = recommend(RollbackInputs(reports, incidents, findings, starts, last, gap, resume_command="x {checkpoint}"))
    assert found.why.endswith(".") and safe_sentence(found)
    if found.checkpoint is not None:
        assert found.checkpoint.state is CheckpointState.VERIFIED and found.checkpoint.step is not None
    assert {one.path for one in reports} <= {*found.rejected, found.checkpoint.path if found.checkpoint else ""}
