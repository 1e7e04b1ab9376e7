"""The audit on the pages, and actions that a viewer calls directly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control import files, inbox, init, read_request
from trainvitals.control.audit import append, newest
from trainvitals.control.requests import ANNOTATION, BREAKER, Watcher
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event
from trainvitals.settings import Settings, parse
from trainvitals.web.actions import annotate, ask, set_breaker
from trainvitals.web.audit import AuditReader, latency, rows
from trainvitals.web.control_words import breaker_fate, breaker_words, holder, idle_cost
from trainvitals.web.process import read_breaker
from trainvitals.web.roles import has_table, may_act, viewer_sentence
from trainvitals.web.view import ControlView, RunView

NOW = 1_795_000_000 * 10**9


def settings_of(run_dir: Path, **access) -> Settings:
    return parse({"runs": [{"name": "r", "dir": str(run_dir), "gpus": 1024}], "access": {"runs": access} if access else {}})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    init(tmp_path, "r")
    inbox.announce(tmp_path, Watcher("r", (ANNOTATION, BREAKER), breaker="armed"))
    return settings_of(tmp_path, r={"operators": ["ana"]})


ACTIONS = {
    "pause": lambda settings, by: ask(settings, "r", "pause", by, "why", 0),
    "checkpoint": lambda settings, by: ask(settings, "r", "checkpoint", by, "why", 0),
    "annotate": lambda settings, by: annotate(settings, "r", step=1, change="note", text="seen", by=by),
    "breaker": lambda settings, by: set_breaker(settings, "r", "off", by, "why"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_viewer_who_calls_an_action_is_refused_and_that_is_audited(settings: Settings, tmp_path: Path, name: str) -> None:
    outcome = ACTIONS[name](settings, "eve")
    assert not outcome.is_done
    assert outcome.sentence.startswith("eve may look at 'r', but not act on it")
    assert read_request(tmp_path).seq == 0
    assert inbox.listing(tmp_path).names == ()
    (record,) = newest(tmp_path, 9)
    assert (record.kind, record.by, record.data["action"]) == ("access_refused", "eve", name)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_operator_is_not_refused(settings: Settings, tmp_path: Path, name: str) -> None:
    assert ACTIONS[name](settings, "ana").is_done
    assert newest(tmp_path, 1)[0].kind == "request"


@pytest.mark.parametrize("name", ["checkpoint", "annotate", "breaker"])
def test_what_cannot_be_audited_is_refused_and_a_pause_is_done_and_told(settings: Settings, tmp_path: Path, name: str) -> None:
    (files.control_dir(tmp_path) / "audit.lock").mkdir()
    assert "could not be audited" in ACTIONS[name](settings, "ana").sentence
    assert read_request(tmp_path).seq == 0
    paused = ACTIONS["pause"](settings, "ana")
    assert paused.is_done
    assert "not in the audit" in paused.sentence


def test_of_two_operators_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    init(tmp_path, "r")
    open_to_all = settings_of(tmp_path)
    assert ask(open_to_all, "r", "pause", "ana", "spike", 0).is_done
    second = ask(open_to_all, "r", "checkpoint", "ben", "to be safe", 0)
    assert not second.is_done
    assert "by ana" in second.sentence
    assert [record.kind for record in newest(tmp_path, 9)] == ["request", "not_asked"]


def test_a_breaker_needs_a_known_mode_a_reason_and_a_run_of_the_settings(settings: Settings) -> None:
    assert "no mode" in set_breaker(settings, "r", "on", "ana", "why").sentence
    assert "reason is missing" in set_breaker(settings, "r", "off", "ana", " ").sentence
    assert "No run" in set_breaker(settings, "other", "off", "ana", "why").sentence


def test_pages_offer_buttons_to_operators_only(settings: Settings, tmp_path: Path) -> None:
    assert has_table(settings, "r")
    assert [may_act(settings, "r", name) for name in ("ana", "eve", "")] == [True, False, False]
    assert "Say who you are" in viewer_sentence(settings, "r", "")
    assert "eve may look" in viewer_sentence(settings, "r", "eve")
    assert viewer_sentence(settings, "r", "ana") == ""
    assert "Nobody may act" in viewer_sentence(settings_of(tmp_path, r={}), "r", "ana")
    everybody = settings_of(tmp_path)
    assert not has_table(everybody, "r")
    assert may_act(everybody, "r", "")


def test_the_mode_in_force_is_what_the_watchdog_says_and_else_the_settings(settings: Settings, tmp_path: Path) -> None:
    run = settings.runs[0]
    assert read_breaker(run) == ("armed", "")
    inbox.announce(tmp_path, Watcher("r", (ANNOTATION,)))
    assert read_breaker(run) == ("dry-run", "")
    (inbox.requests_dir(tmp_path) / inbox.WATCHER_FILE).write_text("{")
    assert read_breaker(run) == ("dry-run", "")
    assert "trainvitals.toml says dry-run" in breaker_words("armed", "dry-run")


def test_the_reader_shows_twenty_records_and_names_a_break(tmp_path: Path) -> None:
    run = settings_of(tmp_path).runs[0]
    reader = AuditReader(ManualClock())
    assert reader.read(run).state == "Nothing was audited here yet."
    clock = ManualClock()
    for number in range(25):
        append(tmp_path, "request", by="ana", source="ui", data={"seq": number, "action": "pause", "reason": "x"}, clock=clock)
    view = reader.read(run)
    assert (len(view.records), view.count, view.is_broken) == (20, 25, False)
    assert "records 1 to 25" in view.state
    assert reader.read(run) is view
    assert rows(view)[0]["what"] == "pause · number 24 · x"
    path = tmp_path / "control" / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seq":7', b'"seq":8'))
    broken = reader.read(run)
    assert broken.is_broken
    assert "record 8" in broken.state


def test_the_latency_is_that_of_the_newest_request(tmp_path: Path) -> None:
    for kind, data in [
        ("request", {"seq": 1, "action": "pause"}), ("acknowledged", {"seq": 1, "after_s": 1.25}), ("applied", {"seq": 1, "after_s": 4.0}),
        ("request", {"seq": 2, "action": "resume"}), ("acknowledged", {"seq": 2, "after_s": 0.5}),
    ]:  # fmt: skip
        append(tmp_path, kind, by="ana", source="ui", data=data)
    records = newest(tmp_path, 9)
    assert latency(records[:3]) == "Last request: number 1, pause by ana: acknowledged after 1.2 s, carried out after 4.0 s."
    assert latency(records) == "Last request: number 2, resume by ana: acknowledged after 0.5 s."
    assert latency(records[3:4]).endswith("no answer of the trainer yet.")
    assert latency([]) == ""


def paused_run(tmp_path: Path, **more) -> RunView:
    control = ControlView("paused", "Paused", True, by="ana", source="ui", reason="spike", since_ns=NOW - 90 * 10**9)
    run = replace(settings_of(tmp_path).runs[0], **more)
    return RunView(run, NOW, Verdict(VerdictWord.PAUSED, "paused", "", NOW), control)


def test_who_holds_a_pause_and_what_it_costs_so_far(tmp_path: Path) -> None:
    run = paused_run(tmp_path)
    assert holder(run, NOW) == "Held by ana for 1 min 30 s: spike"
    assert idle_cost(run, NOW).startswith("1,024 GPUs idle: 25.60 GPU-hours so far, ")
    assert "= 51.20 at 2 a GPU-hour" in idle_cost(paused_run(tmp_path, gpu_hour_price=2.0), NOW)
    assert idle_cost(paused_run(tmp_path, gpus=0), NOW) == ""
    running = replace(run, control=ControlView("running", "Running", True))
    assert (holder(running, NOW), idle_cost(running, NOW)) == ("", "")


def test_a_request_to_arm_is_sent_until_the_watchdogs_own_event_answers(tmp_path: Path) -> None:
    run = paused_run(tmp_path)
    assert breaker_fate(run, "x", NOW, NOW) == "Sent; waiting for the watchdog."
    assert "not applied yet" in breaker_fate(run, "x", NOW - 60 * 10**9, NOW)
    mode = Event("breaker", NOW, id="1", text="armed by ana: why", data={"decision": "mode", "request": "x"})
    assert breaker_fate(replace(run, events=(mode,)), "x", NOW, NOW) == "Applied: armed by ana: why"
    no = Event("watch", NOW, id="2", text="A request was refused.", data={"outcome": "refused", "request": "x"})
    assert breaker_fate(replace(run, events=(no,)), "x", NOW, NOW) == "Refused. A request was refused."


class SlowClock(ManualClock):
    """Every look at it takes a second, as on a machine that checks a large audit."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


def test_a_check_that_took_long_is_not_made_at_every_change_and_still_made_later(tmp_path: Path) -> None:
    run, clock = settings_of(tmp_path).runs[0], SlowClock()
    reader = AuditReader(clock)
    append(tmp_path, "request", by="ana", source="ui", data={})
    assert "records 1 to 1," in reader.read(run).state
    append(tmp_path, "request", by="ana", source="ui", data={})
    view = reader.read(run)
    assert (len(view.records), "records 1 to 1," in view.state) == (2, True)
    clock.advance(60)
    assert "records 1 to 2," in reader.read(run).state
    path = tmp_path / "control" / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"by":"ana"', b'"by":"eve"'))
    assert not reader.read(run).is_broken
    clock.advance(60)
    assert reader.read(run).is_broken
