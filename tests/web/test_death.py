"""Why a run died, as the pages tell it: from the post-mortem to the verdict's one sentence and the incident's lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dead_run
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.verdict import VerdictWord
from trainvitals.records import Event, Finding, Severity
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.death import Death, death_of, lines_of, newest_death, nothing_read, reading_words, sentence
from trainvitals.web.incident import incident_story
from trainvitals.web.present import band
from trainvitals.web.process import read_control
from trainvitals.web.view import RunView, Snapshot

NOW = 1_795_000_000 * 10**9
RUN = RunSettings(name=dead_run.RUN, dir="/none", logs=("/runs/train.log",), rank_logs=("/runs/stderr/*.err",))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


@pytest.fixture
def dead(store: SqliteStore, tmp_path: Path) -> RunView:
    dead_run.write_run(store, tmp_path / "run", NOW)
    return look(store, tmp_path, NOW)


def look(store: SqliteStore, tmp_path: Path, now_ns: int) -> RunView:
    run = replace(RUN, dir=str(tmp_path / "run"), log_timezone="Asia/Shanghai")
    return run_view(Settings(store="", runs=(run,)), store, run, read_control(run, now_ns), now_ns)


def test_the_verdict_of_a_dead_run_names_cause_host_and_rank(dead: RunView) -> None:
    assert dead.verdict.word is VerdictWord.STOPPED and dead.verdict.tone == "critical"
    assert dead.verdict.headline.startswith("attempt 2 died at step 1,500: CUDA out of memory on node17 rank 12 at ")
    assert dead.verdict.headline.endswith(" CST; 63 others only followed")
    assert "pause" not in dead.verdict.automatic
    shown = band(Snapshot(NOW, (dead,)), dead, NOW, 1.0)
    assert shown["headline"] == dead.verdict.headline


def test_the_incident_tells_line_place_file_victims_and_where_the_ends_lie(dead: RunView) -> None:
    incident = next(one for one in dead.incidents if "run_dead" in one.rules)
    story = incident_story(dead, (), incident)
    assert story.death is not None and story.death_note == "" and story.symptom.name == "the run died"
    lines = {line.label: line for line in lines_of(story.death, "UTC", NOW)}
    assert lines["the line"].value == dead_run.LINE and lines["the line"].is_verbatim
    assert lines["where"].value == "node17 · rank 12 · local rank 4 · GPU-5d1c9a70-2f0e"
    assert lines["followed"].value == "63 ranks and files · nccl timeout × 62, network × 3, process failed × 1"
    assert lines["read"].value.startswith("64 logs · 2 unreadable · 3 not of this attempt")
    assert "Permission denied" in lines["read"].full
    assert lines["kept in"].value == "/runs/llama/tails/attempt-00002"
    assert all("validation_loss" not in event.data for event in story.near)


def test_an_incident_long_before_the_death_does_not_tell_of_it(dead: RunView) -> None:
    changed = next(one for one in dead.incidents if "resume_config_changed" in one.rules)
    assert incident_story(dead, (), changed).death is None
    assert incident_story(dead, (), changed).death_note == ""


def test_a_death_that_the_attempt_outlived_is_not_told_for_the_next_one(dead: RunView) -> None:
    assert dead.last_step_time_ns is not None
    assert newest_death(dead.events, 2, dead.last_step_time_ns) is not None
    assert newest_death(dead.events, 2, NOW + 60 * 10**9) is None and newest_death(dead.events, 1) is None


def test_a_broken_checkpoint_beside_a_death_keeps_its_own_story_and_a_hang_is_told_with_it(dead: RunView) -> None:
    base = next(one for one in dead.incidents if "run_dead" in one.rules)
    finding = next(finding for finding in dead.findings if finding.rule == "run_dead")
    for rule, is_told in (("checkpoint_corrupt", False), ("loss_nonfinite", False), ("stall", True), ("nccl_timeout", True)):
        other = replace(finding, id=rule, rule=rule)
        run = replace(dead, findings=(*dead.findings, other))
        story = incident_story(run, (), replace(base, rules=(rule,), finding_ids=(rule,)))
        assert (story.death is not None) is is_told and story.symptom.name != "the run died", rule


def test_before_the_ends_are_read_verdict_and_incident_say_that_they_are_being_read(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW, is_read=False)
    for seconds, is_reading in ((-100, True), (0, False)):
        run = look(store, tmp_path, NOW + seconds * 10**9)
        assert run.verdict.word is VerdictWord.STOPPED
        assert run.verdict.headline.endswith("reading the ends of all its logs") is is_reading
        story = incident_story(run, (), next(one for one in run.incidents if "run_dead" in one.rules))
        assert story.death is None and ("are being read" in story.death_note) is is_reading


def test_the_words_for_reading_count_what_can_be_counted(dead: RunView) -> None:
    died = Finding("r/dead", "run_dead", "liveness", Severity.CRITICAL, 5, 5, None, 2, NOW - 60 * 10**9, None, None, "died", True)
    open_one = next(one for one in dead.incidents if "run_dead" in one.rules)
    known = [replace(open_one, finding_ids=("r/dead",), updated_at_ns=NOW)]
    one_log = replace(RUN, rank_logs=())
    assert reading_words(one_log, [died], known, 2, NOW + 10**9) == "reading the ends of 1 log"
    assert reading_words(RUN, [died], known, 2, NOW + 10**9) == "reading the ends of all its logs"
    assert reading_words(RUN, [died], known, 2, NOW + 600 * 10**9) == ""
    assert (
        reading_words(RUN, [died], known, 1, NOW) == "" and reading_words(replace(one_log, logs=()), [died], known, 2, NOW) == ""
    )


def test_a_death_without_a_post_mortem_says_why_and_what_to_do() -> None:
    assert "are being read" in nothing_read(RUN, True)
    assert "watchdog" in nothing_read(RUN, False)
    assert "rank_logs" in nothing_read(replace(RUN, logs=(), rank_logs=()), False)


def test_ranks_that_said_nothing_lead_a_timeout_and_many_are_cut() -> None:
    death = Death(1, NOW, "NCCL timeout of ALLREDUCE", "nccl_timeout", suspects=tuple(range(40)), followers=472, read=512)
    assert sentence(death, "UTC").endswith("ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 24 more said nothing")
    assert any("their hosts" in line.value for line in lines_of(death, "UTC", NOW))


def test_without_a_cause_it_says_how_much_was_looked_at() -> None:
    death = Death(1, NOW, read=3, left=9)
    assert sentence(death, "UTC") == "no cause found in the ends of 3 logs; 9 logs not read in time"
    assert lines_of(death, "UTC", NOW)[0].value == "none found in the ends of 3 logs"


@given(st.dictionaries(st.sampled_from(["cause", "victims", "files", "suspects", "followers", "tails", "attempt"]), JSON), JSON)
def test_whatever_stands_in_the_event_is_told_without_an_error(data: dict[str, object], cause: object) -> None:
    for told in (data, {**data, "cause": {"name": cause, "text": cause, "rank": cause, "time_ns": cause, "place": cause}}):
        death = death_of(Event("postmortem", NOW, attempt=1, data=told))
        assert isinstance(sentence(death, "UTC"), str)
        assert all(isinstance(line.value, str) for line in lines_of(death, "UTC", NOW))
