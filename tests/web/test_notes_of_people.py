"""Notes on the pages: asked for on the server, applied only when the watchdog's event says so, and told in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pages._shared.story import event_text
from trainvitals.control import inbox
from trainvitals.control.requests import Watcher
from trainvitals.detect.annotations import CHANGES as DETECTED
from trainvitals.detect.annotations import FREE_NOTE
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event, Incident, Severity
from trainvitals.settings import RunSettings, Settings
from trainvitals.web.actions import annotate
from trainvitals.web.annotations import CHANGES, LATE_AFTER_S, Sent, fate, headline, silences
from trainvitals.web.incident import incident_story
from trainvitals.web.view import ControlView, RunView

SECOND = 10**9
NOW = 1_767_323_045 * SECOND
SENT = Sent("r", "id-1", NOW)


def view(*events: Event, **more) -> RunView:
    verdict = Verdict(VerdictWord.HEALTHY, "ok", "", "", "", None)
    return RunView(
        RunSettings(name="r", dir="/nowhere"), NOW, verdict, ControlView("running", "", can_act=True), events=events, **more
    )


def note(step: int | None = 600, time_ns: int = NOW, **more) -> Event:
    data = {"change": "data_mix", "by": "ana", "request": "id-1", "silenced": ["loss_spike", "loss_drift"]} | more
    return Event("annotation", time_ns, step=step, id="r/request/id-1", source="ui", text="new mix", data=data)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "run").mkdir()
    inbox.announce(tmp_path / "run", Watcher("r", ("annotation",)))
    return Settings(runs=(RunSettings(name="r", dir=str(tmp_path / "run")),))


def ask(settings: Settings, run: str = "r", **more):
    return annotate(settings, run, **({"step": 600, "change": "data_mix", "text": "new mix", "by": "ana"} | more))


def waiting(settings: Settings) -> list[str]:
    return list(inbox.listing(settings.runs[0].dir).names)


def test_the_form_offers_what_the_detectors_understand() -> None:
    assert set(CHANGES) == {*DETECTED, FREE_NOTE} and next(iter(CHANGES)) == FREE_NOTE


def test_a_note_from_a_page_is_a_request_file_and_no_more(settings: Settings) -> None:
    outcome = ask(settings)
    assert outcome.is_done and "waiting for the watchdog" in outcome.sentence
    (name,) = waiting(settings)
    written = json.loads((Path(settings.runs[0].dir) / "control" / "requests" / name).read_text())
    assert written["data"] == {"step": 600, "change": "data_mix", "text": "new mix"}
    assert (written["by"], written["source"], written["id"]) == ("ana", "ui", outcome.request_id)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"run": "other"}, "other"), ({"change": "mood"}, "knows no change"), ({"step": -1}, "whole number"), ({"step": True}, "whole number"),
        ({"by": " "}, "who asks"), ({"text": ""}, "in a few words"), ({"text": "x" * 2001}, "longest"), ({"text": "\x1b[2J"}, "control"),
    ],
)  # fmt: skip
def test_what_a_page_may_not_ask_is_refused_in_words_whatever_it_shows(settings: Settings, more: dict, why: str) -> None:
    outcome = ask(settings, **more)
    assert not outcome.is_done and why in outcome.sentence
    assert waiting(settings) == []


def test_where_nobody_watches_the_page_says_so(settings: Settings) -> None:
    inbox.withdraw(settings.runs[0].dir)
    outcome = ask(settings)
    assert not outcome.is_done and "Nobody watches this run" in outcome.sentence


def test_a_secret_is_masked_before_it_is_written_down(settings: Settings) -> None:
    assert ask(settings, text="HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEF12").is_done
    (name,) = waiting(settings)
    assert "abcdefghijk" not in (Path(settings.runs[0].dir) / "control" / "requests" / name).read_text()


def test_a_note_is_sent_until_the_watchdogs_own_event_says_applied_or_refused() -> None:
    assert fate(view(), SENT, NOW + SECOND) == "Note sent; waiting for the watchdog."
    assert fate(view(note(request="another")), SENT, NOW + SECOND) == "Note sent; waiting for the watchdog."
    late = fate(view(), SENT, NOW + round((LATE_AFTER_S + 5) * SECOND))
    assert "not applied yet: does the watchdog of this run still run?" in late
    assert fate(view(note()), SENT, NOW) == "Note applied at step 600. Silences loss_spike, loss_drift."
    refused = Event("watch", NOW, text="A request of ana was refused: no.", data={"request": "id-1", "outcome": "refused"})
    assert fate(view(refused), SENT, NOW) == "Note refused. A request of ana was refused: no."


def test_a_note_is_told_with_what_was_changed_and_by_whom() -> None:
    assert headline(note()) == event_text(note()) == "data mix · ana: new mix"
    assert headline(note(change="note", by="")) == "new mix"
    assert headline(replace(note(), text="", data={})) == ""
    assert silences(note(points=20, silenced=list("abcdef"))) == "Silences a, b, c, d and 2 more for 20 points."
    assert silences(note(silenced="loss_spike")) == ""


def test_the_incident_lists_a_note_about_its_steps_however_late_it_was_written() -> None:
    incident = Incident(
        "i", "r", "loss", Severity.WARNING, ("loss_spike",), (), 610, None, NOW - 5 * 3600 * SECOND, NOW, None, "x", "x"
    )
    run = view(note(600, NOW), replace(note(600_000, NOW), id="far"), incidents=(incident,), steps_per_s=0.5)
    assert [event.step for event in incident_story(run, (), incident).near] == [600]
    assert incident_story(replace(run, steps_per_s=None), (), incident).near == ()
    now = replace(incident, opened_at_ns=NOW)
    assert [event.step for event in incident_story(run, (), now).near] == [600]
    assert len(incident_story(replace(run, steps_per_s=None), (), now).near) == 2
