"""What the watchdog cannot do now stands on the pages, and is gone when it can."""

from __future__ import annotations

from dataclasses import replace

import sample_run as sample
from test_assemble import NOW, store, view  # noqa: F401 - the fixture

from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import CheckpointReport, CheckpointState, Event
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.heartbeat import heartbeat_point
from trainvitals.watch.unread_log import unread_words
from trainvitals.web.checkpoint_words import look_sentence, restart_note
from trainvitals.web.told_troubles import STARTED, told_troubles

UNREAD = unread_words([("/logs/no. 1/train.log", 1_500, None)])
LOOK = "cannot look at the checkpoints: the look at /ck has not come back for 2 minutes"


def note(at, text, **data):
    return Event("watch", NOW - 10**9 * (100 - at), id=f"note{at}", source="watch", text=text, data=data)


def told(store: SqliteStore, tmp_path, *notes):  # noqa: F811
    beat = heartbeat_point(sample.RUN, "host", NOW - 10**9, 0, (None, None), {})
    store.write([beat, *(event_point(sample.RUN, one) for one in notes)])
    return view(store, tmp_path)


def test_a_log_that_is_not_understood_is_named_with_its_lines_in_place_of_waiting(store, tmp_path):  # noqa: F811
    seen = told(store, tmp_path, note(1, UNREAD, trouble="log"))
    assert seen.verdict.word is VerdictWord.UNKNOWN
    assert "1,000 lines" in seen.verdict.headline and "/logs/no. 1/train.log" in seen.verdict.headline
    assert "[formats.NAME]" in seen.verdict.decision and "docs/formats.md" in seen.verdict.decision
    assert "globs" not in seen.verdict.decision
    assert any(line.startswith("the log: no step") for line in seen.not_watched)


def test_a_look_at_the_checkpoints_that_hangs_is_seen_until_it_comes_back(store, tmp_path):  # noqa: F811
    seen = told(store, tmp_path, note(1, LOOK, trouble="checkpoints", is_over=False))
    assert seen.troubles["checkpoints"] == LOOK
    assert restart_note(seen) == "" and look_sentence(seen) == f"⚠ {LOOK}."  # nothing was ever there
    one = CheckpointReport("/ck/1", 1, "torch", CheckpointState.WRITING, None, None, 1, 1)
    assert "of before" in restart_note(replace(seen, checkpoints=(one,))) and "of before" in look_sentence(
        replace(seen, checkpoints=(one,))
    )
    assert restart_note(replace(seen, last_step=5)) == "⚠ they cannot be looked at now"
    assert any("cannot be looked at" in line for line in seen.not_watched)
    seen = told(store, tmp_path, note(2, "the checkpoints can be looked at again", trouble="checkpoints", is_over=True))
    assert not seen.troubles and "cannot be looked at" not in restart_note(seen)


def test_what_an_earlier_watchdog_said_is_not_what_this_one_sees():
    assert told_troubles([note(1, LOOK, trouble="checkpoints"), note(2, STARTED)]) == {}
    assert told_troubles([note(2, LOOK, trouble="checkpoints"), note(1, STARTED)]) == {"checkpoints": LOOK}


def test_a_note_with_anything_in_it_is_taken_for_none():
    assert told_troubles([note(1, LOOK, trouble=7), note(2, LOOK, trouble="audit"), note(3, LOOK)]) == {}
