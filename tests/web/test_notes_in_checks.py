"""An operator's note of a new data mix is the DATA check's evidence, a checkpoint's incident has its own words, and a held breaker says what holds it."""

from __future__ import annotations

from trainvitals.incidents.triage import Check, Evidence, triage
from trainvitals.incidents.verdict import ControlFacts, VerdictInputs, verdict
from trainvitals.records import Event, Finding, Incident, Severity

S = 10**9
NOTE = Event("annotation", 9 * S, step=1_180, id="n", text="40 % code from here", data={"change": "data_mix", "by": "ana"})
FINDING = Finding(
    "f", "loss_divergence", "loss", Severity.CRITICAL, 1_200, 1_210, None, 1, 10 * S, 2.9, 2.0, "loss 2.00 → 2.90", True
)  # fmt: skip
INCIDENT = Incident(
    "i", "r", "loss", Severity.CRITICAL, ("loss_divergence",), ("f",), 1_200, None, 10 * S, 10 * S, None, "loss 2.00 → 2.90", "loss"
)  # fmt: skip


def layer(name: str, rule: str = "loss_divergence", *events: Event) -> Check:
    return next(one for one in triage(rule, Evidence(onset_step=1_200, events=events)) if one.layer == name)


def test_a_note_of_the_data_mix_before_the_onset_is_evidence_with_its_step_its_words_and_who_wrote_it() -> None:
    data = layer("data", "loss_divergence", NOTE)
    assert (data.mark, data.title) == ("!", "ana noted a new data mix from step 1,180 on")
    assert data.evidence.startswith("20 steps before the onset: “40 % code from here”. ")


def test_a_note_is_named_beside_the_new_source_that_the_trainer_told() -> None:
    sources = [
        Event("data", s * S, step=s, attempt=1, id=f"d{s}", data={"source": name}) for s, name in ((900, "web"), (1_190, "code"))
    ]
    data = layer("data", "loss_divergence", *sources, NOTE)
    assert data.title == "New data began at step 1,190"
    assert (
        "10 steps before the onset. Source code." in data.evidence
        and "ana noted a new data mix from step 1,180 on" in data.evidence
    )


def test_a_note_after_the_onset_long_before_it_or_about_something_else_is_no_evidence() -> None:
    for other in (
        Event("annotation", S, step=1_201, id="a", data=NOTE.data), Event("annotation", S, step=900, id="b", data=NOTE.data),
        Event("annotation", S, step=1_180, id="c", data={"change": "batch_size"}),
        Event("annotation", S, id="d", data={"change": ["data_mix"]}),
    ):  # fmt: skip
        assert layer("data", "loss_divergence", other).mark == "?"
    assert layer("data", "checkpoint_corrupt", NOTE).mark == "–"


def test_the_numbers_check_of_a_checkpoint_speaks_of_the_training_and_leaves_the_file_to_the_checkpoint() -> None:
    numbers = layer("numerics", "checkpoint_corrupt")
    assert (numbers.mark, numbers.title) == ("–", "Values of the training are finite")
    assert "the checks of the checkpoint" in numbers.evidence
    assert "checkpoint" not in layer("numerics", "throughput_drop").evidence


def test_the_band_says_what_holds_an_armed_breaker_now() -> None:
    inputs = {
        "now_ns": 20 * S, "incidents": [INCIDENT], "findings": [FINDING], "breaker_mode": "armed", "watch_seen_ns": 19 * S, "attempt": 1,
        "last_step": 1_215, "last_step_time_ns": 19 * S,
    }  # fmt: skip
    running = ControlFacts("running")
    held = verdict(
        VerdictInputs(**inputs, control=running, breaker_hold="a person paused or resumed; disarmed for 300 more points")
    )
    assert held.automatic == "The breaker is armed, and held now: a person paused or resumed; disarmed for 300 more points."
    assert verdict(VerdictInputs(**inputs, control=running)).automatic == "The breaker is armed; its conditions are not met yet."
