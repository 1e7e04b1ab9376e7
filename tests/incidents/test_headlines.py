"""Headlines: what is open before what is over, nothing that was true only then, no story joined from two."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_what_is_over import NOW, S, dead, incident, run

from trainvitals.detect.checkpoint_book import MAX_REASON_CHARACTERS, _first_reason
from trainvitals.incidents import deciding
from trainvitals.incidents.verdict import VerdictWord, verdict
from trainvitals.records import Severity


def test_recovered_names_the_trouble_that_the_running_start_mended_not_the_death_before_the_last_start() -> None:
    blown = incident("loss_divergence", Severity.CRITICAL, "loss 2.00 → 8.70 since step 2,033, not coming back", 40, 3)
    death = replace(dead(240), opened_at_ns=NOW - 245 * S)
    found = verdict(run(death, blown, attempt=3, attempt_started_ns=NOW - 4 * S, resumed_from_step=1_800))
    assert found.word is VerdictWord.RECOVERED and found.incident_id == blown.id
    assert found.headline == (
        "loss 2.00 → 8.70 since step 2,033, not coming back; attempt 3 started from step 1,800 (and 1 more, over too)"
    )
    alone = verdict(run(death, attempt=3, attempt_started_ns=NOW - 4 * S, resumed_from_step=1_800))
    assert "attempt 3" not in alone.headline, "that start did not follow this death"


def test_numbers_of_then_and_the_words_of_a_machine_stay_out_of_a_headline() -> None:
    damage = incident(
        "checkpoint_corrupt",
        Severity.WARNING,
        "checkpoint step_1500 is corrupt: model.pt: 90 bytes too short; newest complete: step 1,500",
        10,
    )
    title = "the trainer ended after step 1,635: numerics (03:01:04 UTC); first told as: exception: FloatingPointError; the trainer was started again"
    death = replace(dead(), title=title)
    found = verdict(run(damage, death, attempt_started_ns=NOW - 3 * S))
    assert found.headline == (
        "checkpoint step_1500 is corrupt: model.pt: 90 bytes too short. Over: the trainer ended after step 1,635: "
        "NaN or infinite numbers (03:01:04 UTC); attempt 2 started from step 1,200"
    )


@pytest.mark.parametrize("rest", ["", "; newest verified: step 12"])
def test_a_title_without_such_parts_stays_as_it_is(rest: str) -> None:
    one = incident("loss_spike", Severity.CRITICAL, f"loss 1.5 → 2.0 since step 90: numerics of it{rest}", 10)
    assert deciding.title_words(one) == "loss 1.5 → 2.0 since step 90: numerics of it"


def test_a_reason_is_cut_between_two_clauses_not_inside_an_instruction() -> None:
    name = "shard-" + "a" * 60 + ".safetensors"
    reason = (
        f"{name} is 1,000 bytes, ckpt_manifest.json says 2,000; it changed after ckpt_manifest.json was written: delete that file if this "
        "step was saved again without the hook"
    )
    assert len(reason) > MAX_REASON_CHARACTERS
    assert _first_reason([reason]) == (
        f"{name} is 1,000 bytes, ckpt_manifest.json says 2,000; it changed after ckpt_manifest.json was written"
    )
    assert _first_reason(["x" * 500]) == "x" * (MAX_REASON_CHARACTERS - 1) + "…"


@given(st.text(max_size=600))
def test_whatever_a_reason_is_it_stays_bounded_and_on_one_line(reason: str) -> None:
    found = _first_reason([reason])
    assert len(found) <= MAX_REASON_CHARACTERS and found.isprintable()
