"""What the pages say of a supervisor: phases with their seconds, a hold with what releases it, what a recovery lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event
from trainvitals.settings import RunSettings
from trainvitals.web.supervisor_view import SupervisorView, supervisor_view
from trainvitals.web.supervisor_words import (
    needs_eyes,
    phase_lines,
    recovery_words,
    restart_fact,
    supervisor_head,
    supervisor_state,
    with_restart,
)
from trainvitals.web.view import ControlView, RunView

NOW = 1_795_000_000 * 10**9
S = 10**9
USUAL = {"queue": None, "start": 4.0, "load": 55.0, "first_step": 12.0, "caught_up": 240.0}


def told(state: str, ago_s: float, text: str = "", step: int | None = None, **data: Any) -> Event:
    return Event("supervisor", NOW - round(ago_s * S), id=f"{state}/{ago_s}", step=step, text=text, data={"state": state, **data})


DEATH = [
    told("started", 9_000, step=0, attempt=1, usual_s=dict.fromkeys(USUAL)),
    told("ended", 100, "attempt 1 ended: CUDA out of memory", step=48_210, attempt=1, kind="out_of_memory"),
    told("waiting", 99.999, "starting again in 5 s after: CUDA out of memory"),
]
AGAIN = told("started", 60, "attempt 2 started", step=48_000, attempt=2, usual_s=USUAL)


def phase(name: str, seconds: float, ago_s: float) -> Event:
    return told("phase", ago_s, phase=name, seconds=seconds, attempt=2)


def run(*events: Event, host: str = "n7") -> RunView:
    control = ControlView("running", "Running.", True, supervisor=host)
    verdict = Verdict(VerdictWord.HEALTHY, "ok", "", None)
    return RunView(RunSettings("r"), NOW, verdict, control, supervisor=supervisor_view(events, 20, NOW))


def test_a_run_that_nobody_supervises_says_nothing() -> None:
    bare = run(host="")
    assert supervisor_head(bare, NOW) == supervisor_state(bare, NOW) == recovery_words(bare, NOW) == restart_fact(bare, NOW) == ""
    assert phase_lines(bare.supervisor, NOW) == ()


def test_while_it_waits_the_end_and_the_next_start_are_said_and_the_day_is_counted() -> None:
    seen = run(*DEATH)
    assert seen.supervisor.state == "waiting" and seen.supervisor.deaths == 1
    assert supervisor_state(seen, NOW) == "The trainer is down: starting again in 5 s after: CUDA out of memory."
    assert "1 of 20 restarts used in 24 h" in supervisor_head(seen, NOW)
    assert restart_fact(seen, NOW) == "the supervisor starts it again soon"


def test_a_restart_shows_each_phase_with_its_usual_time_and_what_is_left() -> None:
    seen = run(*DEATH, AGAIN, phase("start", 5.0, 55))
    assert phase_lines(seen.supervisor, NOW) == (
        "✓ start: 5 s · usually 4 s",
        "● load: 55 s so far · usually 55 s",
        "○ first step · usually 12 s",
        "○ caught up · usually 4 min 0 s",
        "about 4 min 12 s left, by earlier starts",
    )
    assert "attempt 2 started" in supervisor_head(seen, NOW) and "from step 48,000" in supervisor_head(seen, NOW)
    assert restart_fact(seen, NOW) == "restarted: load, about 4 min left"
    later = phase_lines(seen.supervisor, NOW + 10 * S)
    assert later[1] == "● load: 1 min 5 s so far · usually 55 s" and later[-1] == "about 4 min 12 s left, by earlier starts"


def test_the_first_start_of_all_has_nothing_to_catch_up_and_no_time_left() -> None:
    seen = run(told("started", 3, attempt=1, usual_s=dict.fromkeys(USUAL)))
    assert phase_lines(seen.supervisor, NOW)[-1] == "time left not known: the first start of this kind"
    assert not any("caught up" in line for line in phase_lines(seen.supervisor, NOW))
    assert restart_fact(seen, NOW) == ""
    first = told("phase", 1, phase="first_step", seconds=2.0, attempt=1)
    assert phase_lines(run(told("started", 3, attempt=1), first).supervisor, NOW) == ()


def test_a_trainer_that_tells_no_load_is_not_waited_for_there() -> None:
    usual = {**USUAL, "load": None}
    seen = run(
        *DEATH, replace(AGAIN, data={**AGAIN.data, "usual_s": usual}), phase("start", 5.0, 55), phase("first_step", 20.0, 35)
    )
    assert phase_lines(seen.supervisor, NOW) == (
        "✓ start: 5 s · usually 4 s", "✓ first step: 20 s · usually 12 s", "● caught up: 35 s so far · usually 4 min 0 s",
        "about 3 min 25 s left, by earlier starts",
    )  # fmt: skip


def test_recovering_lists_what_is_lacking_and_recovered_is_said_with_its_reason() -> None:
    caught_up = [phase(name, 5.0, 30 - n) for n, name in enumerate(("start", "load", "first_step", "caught_up"))]
    lacks = told(
        "recovering",
        20,
        attempt=2,
        lacking=["12 steps until 50 beyond step 48,210", "no checkpoint of this start is verified yet"],
    )
    seen = run(*DEATH, AGAIN, *caught_up, lacks)
    assert recovery_words(seen, NOW) == (
        "Recovering; still lacking: 12 steps until 50 beyond step 48,210; no checkpoint of this start is verified yet."
    )
    assert restart_fact(seen, NOW) == "caught up, not recovered yet"
    assert phase_lines(seen.supervisor, NOW)[-1].startswith("✓ caught up: 5 s")
    whole = run(
        *DEATH, AGAIN, *caught_up, lacks, told("recovered", 5, "recovered: beyond step 48,210, loss as before", attempt=2)
    )
    assert recovery_words(whole, NOW).endswith("beyond step 48,210, loss as before.") and "Recovered at" in recovery_words(
        whole, NOW
    )
    assert restart_fact(whole, NOW) == "recovered" and restart_fact(whole, NOW + 3_600 * S) == ""
    sick = replace(whole, verdict=Verdict(VerdictWord.SICK, "critical", "", None))
    assert restart_fact(sick, NOW) == "", "in a red band the word would read as if the new trouble were over"


def test_a_hold_says_why_and_what_releases_it() -> None:
    seen = run(
        *DEATH,
        told(
            "held", 90, "not starting it again: …", rule="restart_loop", reason="3 starts in a row died after checkpoint 48,000"
        ),
    )
    said = supervisor_state(seen, NOW)
    assert said.startswith(
        "It starts nothing for 1 min 30 s: 3 starts in a row died after checkpoint 48,000. What releases it: Resume"
    )
    assert restart_fact(seen, NOW) == "the supervisor starts nothing until somebody resumes"
    released = run(*DEATH, told("held", 90, "x"), told("released", 80, "resumed by ana: fixed"))
    assert released.supervisor.state == "waiting" and released.supervisor.deaths == 0


def test_a_supervisor_that_is_gone_is_not_shown_as_one() -> None:
    assert supervisor_head(run(*DEATH, host=""), NOW).startswith("No supervisor runs now: nobody starts the trainer again")


def test_an_end_that_is_stored_a_moment_after_what_followed_it_changes_nothing() -> None:
    swapped = [
        DEATH[0],
        told("waiting", 100, "starting again"),
        told("ended", 99.9995, "attempt 1 ended", attempt=1, kind="killed"),
    ]
    assert run(*swapped).supervisor.state == "waiting"


def test_a_time_limit_is_counted_down_until_the_trainer_ends() -> None:
    limit = told("time_limit_near", 30, remaining_s=930.0, ends_at_ns=NOW + 900 * S, attempt=2)
    assert "the job's time limit ends it in 15 min" in supervisor_head(run(*DEATH, AGAIN, limit), NOW)
    assert "time limit" not in supervisor_head(run(*DEATH, AGAIN, limit, told("ended", 1, attempt=2, kind="time_limit")), NOW)


def shown(seen: RunView, word: VerdictWord, headline: str = "x", since_ago_s: float = 100.0) -> Verdict:
    verdict = Verdict(word, "critical" if word is VerdictWord.STOPPED else "ok", headline, NOW - round(since_ago_s * S))
    return with_restart(verdict, seen.supervisor, seen.control.supervisor, NOW)


def test_a_restarted_run_is_recovering_until_it_is_as_it_was() -> None:
    begun = run(*DEATH, AGAIN, phase("start", 5.0, 55))
    for word in (VerdictWord.HEALTHY, VerdictWord.RECOVERED, VerdictWord.STOPPED):
        found = shown(begun, word, "the run died: CUDA out of memory")
        assert (found.word, found.headline) == (
            VerdictWord.RECOVERING, "attempt 2 started from step 48,000; now load, about 4 min left",
        )  # fmt: skip
        assert ("CUDA out of memory" in found.automatic) == (word is not VerdictWord.HEALTHY)
        assert found.tone == ("warning" if word is VerdictWord.STOPPED else "info")
    lacks = run(
        *DEATH,
        AGAIN,
        phase("caught_up", 9.0, 30),
        told("recovering", 20, attempt=2, lacking=["the throughput is 95 % of what it was"]),
    )
    assert shown(lacks, VerdictWord.HEALTHY).headline.endswith("caught up, still lacking: the throughput is 95 % of what it was")
    assert needs_eyes(lacks.supervisor)
    over = run(*DEATH, AGAIN, phase("caught_up", 9.0, 30), told("recovered", 5, "recovered: …", attempt=2))
    assert shown(over, VerdictWord.RECOVERED).word is VerdictWord.RECOVERED and not needs_eyes(over.supervisor)


@pytest.mark.parametrize(
    "word", [VerdictWord.SICK, VerdictWord.HUNG, VerdictWord.PAUSED, VerdictWord.UNKNOWN, VerdictWord.FINISHED]
)
def test_what_is_wrong_with_a_restarted_run_is_never_hidden(word: VerdictWord) -> None:
    assert shown(run(*DEATH, AGAIN), word).word is word


def test_a_death_after_the_restart_or_without_a_live_supervisor_is_a_stop() -> None:
    assert shown(run(*DEATH, AGAIN), VerdictWord.STOPPED, since_ago_s=30).word is VerdictWord.STOPPED
    assert shown(run(*DEATH, AGAIN, host=""), VerdictWord.STOPPED).word is VerdictWord.STOPPED
    assert shown(run(*DEATH), VerdictWord.STOPPED).word is VerdictWord.STOPPED


def test_going_back_as_asked_is_no_stop() -> None:
    back = run(DEATH[0], told("ending", 9, "ending the trainer to go back to /c/48000", why="rollback", attempt=1))
    assert shown(back, VerdictWord.STOPPED).headline == "going back: ending the trainer to go back to /c/48000"
    assert supervisor_state(back, NOW) == "It goes back as asked: ending the trainer to go back to /c/48000."
    ended = run(
        DEATH[0], told("ended", 8, "attempt 1 ended: ended by the supervisor (rollback)", step=9, attempt=1, kind="rollback")
    )
    assert shown(ended, VerdictWord.STOPPED).word is VerdictWord.RECOVERING and ended.supervisor.deaths == 0


def test_what_stays_lacking_for_hours_is_the_new_usual() -> None:
    begun = replace(AGAIN, time_ns=NOW - 9_100 * S)
    first = [replace(event, time_ns=(event.time_ns or 0) - 9_100 * S) for event in DEATH]
    for ago_s, word in ((8_000, VerdictWord.HEALTHY), (7_000, VerdictWord.RECOVERING)):
        lacks = run(
            *first,
            begun,
            phase("caught_up", 9.0, 9_000),
            told("recovering", ago_s, attempt=2, lacking=["the throughput is 95 %"]),
        )
        assert shown(lacks, VerdictWord.HEALTHY).word is word
        assert recovery_words(lacks, NOW) == "Recovering; still lacking: the throughput is 95 %."


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.floats(), st.none()), max_size=3),
)  # fmt: skip
KEYS = st.sampled_from(["attempt", "usual_s", "phase", "seconds", "lacking", "reason", "kind", "why", "ends_at_ns"])
STATES = st.sampled_from(
    ["started", "ended", "ending", "phase", "recovering", "recovered", "held", "waiting", "released", "time_limit_near", "", "x"]
)


@pytest.mark.parametrize("host", ["", "n7"])
@given(st.lists(st.tuples(STATES, st.integers(0, 90_000), st.dictionaries(KEYS, VALUES, max_size=5)), max_size=12))
def test_whatever_stands_in_the_events_there_are_words(host: str, drawn: list[tuple[str, int, dict[str, Any]]]) -> None:
    seen = run(*(told(state, ago_s, "t", None, **data) for state, ago_s, data in drawn), host=host)
    words = (supervisor_head(seen, NOW), supervisor_state(seen, NOW), recovery_words(seen, NOW), restart_fact(seen, NOW))
    assert all(isinstance(one, str) for one in (*words, *phase_lines(seen.supervisor, NOW)))
    assert isinstance(seen.supervisor, SupervisorView)
    assert all(isinstance(shown(seen, word).headline, str) for word in VerdictWord)
