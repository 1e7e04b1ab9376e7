"""Whatever a notice holds, what is sent keeps the limits of the service and mentions nobody."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notices import DIVERGENCE
from receivers import Received, secrets_of, strict

from trainvitals.alerts.outbox_rows import bounded, message_id
from trainvitals.alerts.secret import Credentials, Secret
from trainvitals.alerts.targets.apprise import Apprise
from trainvitals.alerts.targets.plain import as_lines, cut_bytes, fit, harmless
from trainvitals.alerts.targets.registry import target_of
from trainvitals.alerts.words import Message, body
from trainvitals.clock import SystemClock
from trainvitals.settings import TargetSettings

KINDS = ("webhook", "slack", "feishu", "dingtalk", "wecom", "pagerduty")
PIECES = st.sampled_from(
    ["@all", '<at user_id="all">', "<!channel>", "<@U1>", "\n", "\0", "长", "\u202e", "\ud800", "&", "|", "`", "*", "\\", '"']
)
TEXTS = st.lists(PIECES | st.text(max_size=20), max_size=40).map("".join) | PIECES.map(lambda piece: piece * 3_000)


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(["en", "zh"]))
def test_every_service_takes_what_is_made_of_any_notice(run, what, breaker, language):
    told = bounded(
        replace(
            DIVERGENCE, run=run, what=what, breaker=breaker, control=what, rule=run[:80], link="https://x.example/?a=" + "b" * 200
        )
    )
    now_ns = SystemClock().time_ns()
    for kind in KINDS:
        credentials = Credentials(Secret("https://receiver.example/hook?key=1"), tuple(map(Secret, secrets_of(kind))))
        target = target_of(TargetSettings(kind=kind, language=language))
        letter = target.letter(told, body(told, language), credentials, message_id(told.id, "t"), now_ns)
        reply = strict(kind)(Received(letter.url, letter.headers, letter.body))
        said = json.loads(reply.body) if reply.body.startswith(b"{") else {}
        assert reply.status < 300 and said.get("code", said.get("errcode", 0)) == 0, (kind, reply)


@given(st.text(), st.integers(4, 100))
def test_a_cut_is_between_two_characters_and_within_the_limit(text, most):
    text = text.encode("utf-8", "replace").decode()
    cut = cut_bytes(text, most)
    assert len(cut.encode()) <= most and (cut == text or (cut.endswith("…") and text.startswith(cut[:-1])))


@given(st.lists(st.text(max_size=60), min_size=1, max_size=30), st.integers(100, 2_000))
def test_the_link_stays_whole_and_the_first_line_goes_last(lines, most):
    lines = [line.encode("utf-8", "replace").decode() for line in lines]
    text = fit(lines, "https://x.example/incident", most)
    assert len(text.encode()) <= most and text.endswith("\nhttps://x.example/incident")
    assert text.startswith(lines[0][:10])


def test_a_harmless_text_looks_the_same():
    assert harmless("a@all <at>").replace("\u2060", "") == "a@all <at>"
    assert as_lines(Message("h", (("", "no label"), ("What", "x")))) == ["h", "no label", "What: x"]


@pytest.fixture
def library(monkeypatch):
    """A stand-in for the library that keeps what it is asked to do."""
    made = types.ModuleType("apprise")
    made.said = []
    made.result = True

    class Service:
        def __init__(self, asset):
            self.asset = asset

        def add(self, url):
            return url.startswith("mailto://")

        def notify(self, **what):
            made.said.append((self.asset, what))
            if isinstance(made.result, Exception):
                raise made.result
            return made.result

    made.Apprise, made.AppriseAsset = Service, lambda **options: options
    made.NotifyType = types.SimpleNamespace(INFO="info", WARNING="warning", FAILURE="failure", SUCCESS="success")
    made.NotifyFormat = types.SimpleNamespace(TEXT="text")
    monkeypatch.setitem(sys.modules, "apprise", made)
    return made


def deliver(url="mailto://user:password-0123@example.com"):
    return Apprise().deliver(DIVERGENCE, body(DIVERGENCE), Credentials(Secret(url)))


def test_the_library_gets_plain_text_without_attachments_and_follows_no_redirect(library):
    assert deliver().outcome == "delivered"
    asset, what = library.said[0]
    assert asset["http_redirects"] is False and what["attach"] is None and what["body_format"] == "text"
    assert (
        what["title"].startswith("TRAINING-SICK llama-70b")
        and what["notify_type"] == "failure"
        and what["body"].endswith(DIVERGENCE.link)
    )


def test_what_the_library_says_is_what_becomes_of_the_message(library):
    library.result = False
    assert deliver().outcome == "retry"
    library.result = RuntimeError("password-0123")
    assert deliver().outcome == "retry" and "password-0123" not in deliver().error
    assert deliver("nonsense").outcome == "permanent"


def test_without_the_library_the_way_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    verdict = deliver()
    assert verdict.outcome == "permanent" and "trainvitals[apprise]" in verdict.error
