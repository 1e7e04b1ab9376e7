"""What a person reads on the lock screen and in the message."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from notices import DIVERGENCE, notice

from trainvitals.alerts.notice import Notice, NoticeKind, Verb
from trainvitals.alerts.sentences import SENTENCES
from trainvitals.alerts.summary import QUIET, Heap, summary
from trainvitals.alerts.words import HEADLINE_CHARACTERS, body, headline, sentence
from trainvitals.detect.rules import RULES

TEXT = st.text(max_size=400)
ANY_NOTICE = st.builds(
    replace, st.just(DIVERGENCE), run=TEXT, what=TEXT, rule=st.sampled_from([*RULES, "node_ecc", "gpu_lost", "of_tomorrow"]),
    kind=st.sampled_from(NoticeKind), verb=st.sampled_from(Verb), step=st.none() | st.integers(0, 10**12),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False), expected=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    safe_step=st.none() | st.integers(0, 10**9), gpus=st.integers(0, 10**6), cost=st.none() | st.floats(0, 1e12), acknowledged_by=TEXT,
    breaker=TEXT, at_ns=st.integers(0, 2**62), opened_at_ns=st.integers(0, 2**62),
)  # fmt: skip


def test_the_lock_screen_says_what_the_design_promises():
    assert headline(DIVERGENCE) == (
        "TRAINING-SICK llama-70b: loss 2.31 → 2.94 since step 48,210, not coming back · safe ckpt 48,000 · 5,120 GPUs"
    )


def test_where_there_is_room_the_safe_checkpoint_is_said_in_full_and_the_price_too():
    told = headline(notice(rule="stall", verb=Verb.HUNG, what="no step for 12 min (usual 4 s)", step=900, cost=7950.0))
    assert told == (
        "HUNG llama-70b: no step for 12 min (usual 4 s) · safe checkpoint 48,000 · 5,120 GPUs · going back costs 7,950"
    )


def test_a_long_run_name_is_cut_and_verb_what_and_step_stay():
    told = headline(replace(DIVERGENCE, run="research-team-seven/llama-70b-ablation-of-everything-2026-11-29-seed-3"))
    assert len(told) <= HEADLINE_CHARACTERS
    assert told.startswith("TRAINING-SICK research-team-se")
    assert "2.31 → 2.94 since step 48,210" in told
    assert "seed-3:" in told


def test_of_a_death_the_cause_is_said_as_far_as_there_is_room():
    told = headline(
        notice(
            rule="run_dead", verb=Verb.STOPPED, value=None, expected=None, step=4_910,
            what="the trainer ended after step 4,910: out of memory on host-17 rank 3 [host-17 GPU 2]: CUDA out of memory. Tried to allocate",
        )
    )  # fmt: skip
    assert len(told) <= HEADLINE_CHARACTERS
    assert told.startswith("STOPPED llama-70b: the trainer ended after step 4,910: out of memory on host-17")
    assert told.endswith("safe ckpt 48,000")


def test_the_body_goes_from_the_value_over_the_suspects_to_the_runbook():
    lines = dict(body(DIVERGENCE).lines)
    assert lines["Value"] == "loss 2.94, expected 2.31 (27 % above)"
    assert lines["First suspect"].startswith("the data.")
    assert [lines[f"Check {number}"].partition(":")[0] for number in (1, 2, 3)] == ["data", "code", "cluster"]
    assert lines["Safe checkpoint"] == "step 48,000; verified to level content; going back redoes 310 steps = 2,650 GPU-h"
    assert body(DIVERGENCE).link == DIVERGENCE.link
    assert list(lines)[-1] == "Runbook"


def test_reminders_ends_and_acknowledgements_say_so():
    assert "(open for 5 min 0 s)" in headline(notice("reminder"))
    assert headline(notice("recovered", verb=Verb.RECOVERED)).startswith("RECOVERED llama-70b: ")
    assert headline(notice("recovered", verb=Verb.RECOVERED)).endswith("(after 5 min 0 s)")
    assert "(ann has it)" in headline(notice("acknowledged", acknowledged_by="ann"))


def test_a_summary_counts_and_names_what_it_holds():
    heap = Heap()
    for number in range(25):
        heap.add(notice("opened", f"inc-{number}", "warning"))
    told = summary(heap, QUIET, "team", 1, DIVERGENCE.at_ns)
    assert headline(told).startswith("SUMMARY llama-70b: 25 messages held back in quiet hours; loss 2.31 → 2.94")
    lines = body(told).lines
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == ("And", "5 more")
    assert Notice.from_mapping(told.to_mapping()) == told


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_has_an_english_sentence_for_the_lock_screen(rule):
    assert rule in SENTENCES
    told = sentence(notice(rule=rule, value=2.94, expected=2.31, step=48_210))
    assert told
    assert "{" not in told
    assert len(told) <= 80
    bare = sentence(notice(rule=rule, value=None, expected=None, step=None))
    assert bare and "None" not in bare and "  " not in bare


@settings(max_examples=300)
@given(ANY_NOTICE, st.sampled_from(["en", "zh", "xx"]))
def test_whatever_a_notice_holds_its_headline_fits_and_nothing_hidden_gets_through(one, language):
    message = body(one, language)
    assert 0 < len(message.headline) <= HEADLINE_CHARACTERS
    for text in (message.headline, *(text for _, text in message.lines)):
        assert len(text) <= 600
        assert not any(ord(c) < 32 or c in "\u202e\u2066\u2028\u200b\x7f" for c in text)


def test_markup_and_mentions_are_left_as_they_are_for_the_target_to_escape():
    told = body(notice(run="<!channel> *x*", what='@all <at user_id="all">'))
    assert "<!channel> *x*" in told.headline
    assert '@all <at user_id="all">' in dict(told.lines)["What"]
