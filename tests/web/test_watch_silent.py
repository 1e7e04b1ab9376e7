"""The dashboard as the watchdogs' peer: one page a silence, none for a store that is away, a clock that jumps, or a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.access import Identity
from trainvitals.alerts.notice import NoticeKind
from trainvitals.alerts.outbox_rows import Message, TargetHealth
from trainvitals.alerts.words import headline
from trainvitals.clock import ManualClock
from trainvitals.control.inbox import announce
from trainvitals.control.requests import ANNOTATION, Watcher
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event
from trainvitals.settings import Settings, parse
from trainvitals.web.alert_actions import send_again
from trainvitals.web.alert_peer import AlertPeer
from trainvitals.web.alerts_view import AlertsView, alerts_view, silences_now
from trainvitals.web.view import ControlView, RunView, Snapshot
from trainvitals.web.watch_silent import WatchSilent

S = 10**9
PAGER = {"kind": "webhook", "url": "https://pager.example"}


def settings_of(tmp_path: Path, targets: dict | None = None, **more) -> Settings:
    table = {
        "runs": [{"name": "r", "dir": str(tmp_path / "run")}],
        "alerts": {"outbox": str(tmp_path / "alerts.db"), "targets": {"pager": PAGER} if targets is None else targets},
        **more,
    }
    return parse(table)


class Site:
    """What the dashboard sees: a store that can be away, a watchdog that beats or not."""

    def __init__(self, settings: Settings) -> None:
        self.clock = ManualClock()
        self.settings = settings
        self.seen_ns: int | None = self.clock.time_ns()
        self.error = ""
        self.word = VerdictWord.HEALTHY

    def snapshot(self) -> Snapshot:
        verdict = Verdict(self.word, "ok", "", None)
        control = ControlView("running", "Running.", can_act=True)
        run = RunView(self.settings.runs[0], self.clock.time_ns(), verdict, control, last_step=500, watch_seen_ns=self.seen_ns)
        return Snapshot(self.clock.time_ns(), (run,), error=self.error)

    def beat(self) -> None:
        self.seen_ns = self.clock.time_ns()


@pytest.fixture
def site(tmp_path):
    return Site(settings_of(tmp_path))


def looks(site: Site, silent: WatchSilent, seconds: int, *, beats: bool = False) -> list:
    due = []
    for _ in range(seconds):
        site.clock.advance(1)
        if beats:
            site.beat()
        due += silent.look(site.snapshot(), site.clock.time_ns(), site.clock.monotonic_s())
    return due


def test_a_watchdog_that_falls_silent_is_told_once_and_its_return_too(site):
    silent = WatchSilent(60.0, "https://health.example")
    assert looks(site, silent, 30, beats=True) == []
    assert looks(site, silent, 59) == []
    (told,) = looks(site, silent, 600)
    assert (told.kind, told.severity.value) == (NoticeKind.WATCH_SILENT, "critical")
    assert headline(told) == "CHECK r: nobody watches this run: no heartbeat of its watchdog for 1 min 0 s (step 500)"
    assert "监控进程失联" in headline(told, "zh")
    (back,) = looks(site, silent, 5, beats=True)
    assert (back.kind, back.incident_id) == (NoticeKind.RECOVERED, told.incident_id)
    (again,) = looks(site, silent, 120)
    assert again.id != told.id


def test_while_the_store_is_away_nothing_is_said_of_a_watchdog_but_that_nothing_is_known(site):
    silent = WatchSilent(60.0)
    looks(site, silent, 10, beats=True)
    site.error = "The store does not answer."
    assert looks(site, silent, 500) == []
    assert "not known whether the runs are watched" in silent.sentences[0]
    site.error = ""
    assert looks(site, silent, 59) == [], "what was not heard while the store was away is no silence"
    assert len(looks(site, silent, 5)) == 1
    assert silent.sentences == ()


def test_a_wall_clock_that_jumps_is_no_silence(site):
    silent = WatchSilent(60.0)
    looks(site, silent, 10, beats=True)
    site.clock.advance(7_200, wall_only=True)
    assert looks(site, silent, 30) == []


@pytest.mark.parametrize("word", [VerdictWord.FINISHED, VerdictWord.HISTORY])
def test_nobody_is_woken_for_a_run_that_is_over(site, word):
    silent = WatchSilent(60.0)
    looks(site, silent, 10, beats=True)
    site.word = word
    assert looks(site, silent, 500) == []


def test_a_run_that_was_given_up_before_the_dashboard_began_or_never_watched_wakes_nobody(site):
    silent = WatchSilent(60.0)
    site.seen_ns = site.clock.time_ns() - 2 * 86_400 * S
    assert looks(site, silent, 200) == []
    site.seen_ns = None
    assert looks(site, WatchSilent(60.0), 200) == []


def test_a_watchdog_that_works_and_only_cannot_reach_the_store_is_no_page_but_a_sentence(site):
    silent = WatchSilent(60.0, is_reading=lambda run: True)
    looks(site, silent, 10, beats=True)
    assert looks(site, silent, 200) == []
    assert silent.sentences == ("r: its watchdog works, and its heartbeats do not reach the store.",)


def test_the_peer_writes_it_into_the_outbox_once_however_often_the_dashboard_starts(tmp_path, site):
    kinds = []
    for _ in range(3):
        peer = AlertPeer(site.settings, site.snapshot, site.clock, is_sending=False)
        for _ in range(70):
            site.clock.advance(1)
            peer.tick()
        kinds = [message.kind for message in peer.view().messages]
        peer.stop()
    assert kinds == ["watch_silent"]
    peer = AlertPeer(site.settings, site.snapshot, site.clock, is_sending=False)
    peer.tick()
    site.clock.advance(1)
    site.beat()
    peer.tick()
    assert [message.kind for message in peer.view().messages] == ["recovered", "watch_silent"], "told by an earlier process"
    peer.stop()


def test_the_watchdogs_own_file_is_believed(tmp_path, site):
    (tmp_path / "run").mkdir()
    announce(tmp_path / "run", Watcher("r", (ANNOTATION,), "h", 1))
    peer = AlertPeer(site.settings, site.snapshot, site.clock, is_sending=False)
    for _ in range(70):
        site.clock.advance(1)
        peer.tick()
    assert peer.view().messages == ()
    assert "its watchdog works" in peer.view().sentences[0]
    peer.stop()


def test_an_outbox_that_cannot_be_used_is_said_and_keeps_the_notice(tmp_path, site):
    (tmp_path / "alerts.db").mkdir()
    peer = AlertPeer(site.settings, site.snapshot, site.clock, is_sending=False)
    for _ in range(70):
        site.clock.advance(1)
        peer.tick()
    assert "the outbox cannot be read" in peer.view().banner
    (tmp_path / "alerts.db").rmdir()
    for _ in range(70):
        site.clock.advance(1)
        peer.tick()
    assert [message.kind for message in peer.view().messages] == ["watch_silent"]
    peer.stop()


# -- the banner ---------------------------------------------------------------------------------------------------------


def banner(tmp_path, targets, health=(), **more) -> str:
    return alerts_view(settings_of(tmp_path, targets, **more), health, ()).banner


def test_the_banner_says_when_nobody_would_be_paged(tmp_path):
    assert "no alert target is configured" in banner(tmp_path, {})
    assert "no alert target takes critical messages" in banner(tmp_path, {"mail": {**PAGER, "severities": ["warning"]}})
    assert "Nobody is paged for r:" in banner(tmp_path, {"pager": {**PAGER, "runs": ["other-*"]}})
    assert banner(tmp_path, {"pager": PAGER}) == ""


def test_the_banner_says_when_no_page_gets_through_and_is_silent_when_one_target_works(tmp_path):
    failing = TargetHealth("pager", failures_in_a_row=3, error="connection refused")
    assert banner(tmp_path, {"pager": PAGER}, [failing]) == (
        "No page gets through: pager failing (connection refused). See the page Alerts."
    )
    off = TargetHealth("second", disabled_ns=5)
    both = {"pager": PAGER, "second": PAGER}
    assert "pager failing" in banner(tmp_path, both, [failing, off]) and "second switched off" in banner(
        tmp_path, both, [failing, off]
    )
    assert banner(tmp_path, both, [failing, TargetHealth("second", last_ok_ns=1)]) == ""
    assert banner(tmp_path, {"pager": PAGER}, [replace(failing, failures_in_a_row=1)]) == "", "one failure is a retry"


def test_the_banner_can_be_switched_off(tmp_path):
    made = parse({"runs": [{"name": "r", "dir": str(tmp_path)}], "alerts": {"banner": False}})
    assert alerts_view(made, (), ()).banner == ""


# -- silences and sending again --------------------------------------------------------------------------------------------


def test_silences_that_hold_now_are_shown_and_those_that_ended_are_not():
    def told(at: int, **data) -> Event:
        return Event("silence", at, id=json.dumps(data), data=data)

    one = {"silence": "a", "until_ns": 100, "rules": ["loss_*"], "up_to": "warning", "by": "ann", "comment": "known"}
    events = [
        told(1, **one), told(2, **{**one, "silence": "b"}), told(3, silence="b", end="b", until_ns=3), told(4, **{**one, "silence": "c", "until_ns": 9})
    ]  # fmt: skip
    (shown,) = silences_now(events, 50)
    assert (shown.id, shown.what, shown.by) == ("a", "loss_* up to warning", "ann")
    assert silences_now(events, 100) == ()


MESSAGE = Message("msg_1", "pager", "dead", "opened", "critical", "r", "inc", "what", 1, 0, 2, 7, "410 Gone")


def test_a_dead_letter_is_sent_again_by_who_may_act_on_its_run_and_by_nobody_else(tmp_path):
    (tmp_path / "run").mkdir()
    settings = settings_of(tmp_path, access={"runs": {"r": {"operators": ["ann"]}}})
    view = AlertsView(messages=(MESSAGE, replace(MESSAGE, id="msg_2", run="not-ours")))
    sent: list[str] = []

    def send(id: str) -> bool:
        sent.append(id)
        return True

    assert not send_again(settings, view, "msg_1", Identity("bob"), send).is_done
    assert not send_again(settings, view, "msg_2", Identity("ann"), send).is_done
    assert not send_again(settings, view, "msg_9", Identity("ann"), send).is_done
    assert sent == []
    assert send_again(settings, view, "msg_1", Identity("ann"), send).is_done
    assert sent == ["msg_1"]
    assert not send_again(settings, view, "msg_1", Identity("ann"), lambda id: False).is_done
