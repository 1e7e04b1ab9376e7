"""Alerts of a Prometheus Alertmanager as events: each trap of its webhook, one alert one event, and who may post."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from trainvitals.clock import ManualClock
from trainvitals.errors import InputError, SettingsError, StoreUnavailable
from trainvitals.records import Severity
from trainvitals.settings import AlertmanagerSettings, parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web import alertmanager_inbox
from trainvitals.web.access import Entry, may_answer
from trainvitals.web.alertmanager import MAX_BODY_BYTES, MAX_EPISODES, Episodes, event, read, run_of, time_ns
from trainvitals.web.alertmanager_inbox import Inbox, token_of

S = 10**9
NOW_NS = ManualClock().time_ns()
TOKEN = "a-token-of-some-length"
FOR_EVER = (0, 2**62)


def at(ns):
    return datetime.fromtimestamp(ns // S, UTC).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")


def alert(status="firing", started_ns=NOW_NS - 60 * S, ended_ns=None, fingerprint="c0ffee0123456789", **labels):
    """One alert as Alertmanager writes it."""
    return {
        "status": status, "fingerprint": fingerprint, "startsAt": at(started_ns), "generatorURL": "http://prometheus:9090/graph",
        "endsAt": "0001-01-01T00:00:00Z" if ended_ns is None else at(ended_ns), "annotations": {"summary": "GPU fell off the bus"},
        "labels": {"alertname": "GpuLost", "severity": "critical", "instance": "node-7:9100", **labels},
    }  # fmt: skip


def post(*alerts, **more):
    return json.dumps(
        {"version": "4", "status": "firing", "groupKey": "{}", "receiver": "r", "truncatedAlerts": 0, "alerts": alerts, **more}
    ).encode()


def settings_in(tmp_path, **table):
    (tmp_path / "t.toml").touch()
    runs = [{"name": "llama", "dir": str(tmp_path / "run")}]
    return parse({"store": f"sqlite://{tmp_path}/store.db", "runs": runs, "alertmanager": table}, str(tmp_path / "t.toml"))


@pytest.fixture
def inbox(tmp_path):
    clock = ManualClock()
    made = Inbox(settings_in(tmp_path), clock)
    made.clock = clock
    yield made
    made.close()


def kept(tmp_path, run=""):
    """All events of a run, "" = of the cluster."""
    store = SqliteStore(tmp_path / "store.db", read_only=True)
    events = store.events(run, (), *FOR_EVER)
    store.close()
    return events


def test_an_alert_becomes_an_event_of_its_node(inbox, tmp_path):
    assert inbox.keep(post(alert())) == 1
    (told,) = kept(tmp_path)
    assert (told.kind, told.severity, told.source) == ("external", Severity.CRITICAL, "alertmanager")
    assert told.text == "GpuLost on node-7: GPU fell off the bus"
    assert (told.data["node"], told.data["state"], told.data["ended_ns"]) == ("node-7", "firing", None)


def test_an_alert_told_again_and_its_end_are_the_same_event_with_its_own_status(inbox, tmp_path):
    inbox.keep(post(alert()))
    inbox.clock.advance(300)
    inbox.keep(post(alert()))
    inbox.clock.advance(300)
    # The group still fires, this alert does not; and its start is another one than before (seen of the real program).
    inbox.keep(post(alert("resolved", NOW_NS - 55 * S, NOW_NS + 500 * S), alert(fingerprint="other"), status="firing"))
    inbox.keep(post(alert("resolved", NOW_NS - 55 * S, NOW_NS + 500 * S)))
    told = {e.data["state"]: e for e in kept(tmp_path)}
    assert len(kept(tmp_path)) == 2 and set(told) == {"resolved", "firing"}
    assert told["resolved"].data["ended_ns"] // S == NOW_NS // S + 500 and "is over" in told["resolved"].text


def test_an_alert_that_fires_again_is_another_event_also_after_a_restart(inbox, tmp_path):
    inbox.keep(post(alert()))
    inbox.keep(post(alert("resolved", ended_ns=NOW_NS - 10 * S)))
    inbox.close()
    again = Inbox(settings_in(tmp_path), ManualClock(NOW_NS + 600 * S))
    again.keep(post(alert("resolved", ended_ns=NOW_NS - 10 * S)))
    again.keep(post(alert(started_ns=NOW_NS + 300 * S)))
    again.close()
    assert [e.data["state"] for e in sorted(kept(tmp_path), key=lambda e: e.time_ns)] == ["resolved", "firing"]


def test_a_late_word_that_it_fires_does_not_undo_its_end(inbox, tmp_path):
    inbox.keep(post(alert("resolved", ended_ns=NOW_NS - 10 * S)))
    inbox.keep(post(alert()))
    (told,) = kept(tmp_path)
    assert told.data["state"] == "resolved"


def test_an_alert_that_fires_long_after_its_end_with_its_old_start_is_a_new_event():
    (firing,) = read(post(alert())).alerts
    (ended,) = read(post(alert("resolved", ended_ns=NOW_NS))).alerts
    episodes = Episodes()
    first = episodes.take(firing, NOW_NS - 30 * S)
    episodes.take(ended, NOW_NS)
    for after_s in (10, 100, 200, 290):
        assert episodes.take(firing, NOW_NS + after_s * S).ended_ns is not None, "a late message"
    again = episodes.take(firing, NOW_NS + 900 * S)
    assert again.ended_ns is None and again.started_ns == NOW_NS + 900 * S != first.started_ns
    assert episodes.take(firing, NOW_NS + 930 * S).started_ns == again.started_ns


def test_a_start_in_the_future_is_now(inbox, tmp_path):
    inbox.keep(post(alert(started_ns=NOW_NS + 10**6 * S)))
    (told,) = kept(tmp_path)
    assert told.time_ns == NOW_NS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0001-01-01T00:00:00Z", None), ("1970-01-01T00:00:01Z", S), ("1970-01-01T00:00:01.123456789Z", S + 123_456_789),
        ("1970-01-01T08:00:01.5+08:00", S + S // 2), ("1969-12-31T19:00:01-05:00", S), ("2026-13-01T00:00:00Z", None), ("", None),
        ("2026-01-01T00:00:00", None), (5, None), (None, None), ("9999-12-31T23:59:59Z", 253_402_300_799 * S),
    ],
)  # fmt: skip
def test_times_keep_their_nanoseconds_and_the_year_1_is_no_time(text, expected):
    assert time_ns(text) == expected


@pytest.mark.parametrize(
    ("labels", "node", "gpu"),
    [
        ({"instance": "node-7:9100"}, "node-7", ""), ({"instance": "[fe80::1]:9100"}, "fe80::1", ""), ({"instance": "node-7"}, "node-7", ""),
        ({"instance": "exporter:9400", "Hostname": "gpu-node-3", "gpu": "5"}, "gpu-node-3", "5"), ({"instance": "fe80::1"}, "fe80::1", ""),
        ({"instance": "", "job": "etcd"}, "", ""), ({"node": "n1", "UUID": "GPU-abc"}, "n1", "GPU-abc"),
    ],
)  # fmt: skip
def test_labels_name_node_and_gpu_by_the_settings(labels, node, gpu):
    made = alert()
    made["labels"] = {"alertname": "x", **labels}
    told = event(*_one(made), AlertmanagerSettings())
    assert (told.data["node"], told.data["gpu"]) == (node, gpu)


def _one(raw):
    (read_alert,) = read(post(raw)).alerts
    return read_alert, Episodes().take(read_alert, NOW_NS)


def test_a_run_is_named_by_a_label_only_when_the_settings_know_it(tmp_path):
    known = settings_in(tmp_path)
    names = [run.name for run in known.runs]
    assert run_of(_one(alert(run="llama"))[0], known.alertmanager, names) == "llama"
    assert run_of(_one(alert(run="../../etc"))[0], known.alertmanager, names) == ""


def test_an_alert_of_a_run_is_an_event_of_that_run(inbox, tmp_path):
    inbox.keep(post(alert(run="llama")))
    assert len(kept(tmp_path, "llama")) == 1 and not kept(tmp_path)


def test_that_alerts_were_left_out_is_told(inbox, tmp_path):
    inbox.keep(post(alert(), truncatedAlerts=12))
    assert any("left out 12 alerts" in told.text for told in kept(tmp_path))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, post(version="3"), post(alerts={}), post("x"), post({**alert(), "status": "pending"}),
     b" " * (MAX_BODY_BYTES + 1), post(*[alert()] * 5_001)[:MAX_BODY_BYTES]],
    ids=range(11),
)  # fmt: skip
def test_what_is_no_post_is_a_sentence_and_nothing_is_kept(body, tmp_path):
    with pytest.raises(InputError):
        Inbox(settings_in(tmp_path)).keep(body)
    assert not (tmp_path / "store.db").exists()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["labels", "annotations", "startsAt", "endsAt", "fingerprint", "generatorURL"]), json_values)
)
def test_whatever_stands_in_an_alert_it_is_an_event(fields):
    raw = {"version": "4", "alerts": [{"status": "firing", **fields}]}
    body = json.dumps(raw).encode()
    (made,) = read(body).alerts
    told = event(made, Episodes().take(made, NOW_NS), AlertmanagerSettings())
    assert told.time_ns <= NOW_NS and "\n" not in told.text
    json.dumps(told.data)


def test_the_memory_of_alerts_is_bounded():
    episodes = Episodes()
    made = _one(alert())[0]

    for number in range(MAX_EPISODES + 50):
        episodes.take(replace(made, fingerprint=f"{number:x}"), NOW_NS)
    assert len(episodes.known) == MAX_EPISODES
    assert Episodes.from_state(episodes.to_state()) == episodes
    assert Episodes.from_state(b"[1, 2") == Episodes.from_state(b'{"a": 1}') == Episodes()


def test_what_cannot_be_kept_is_not_remembered(inbox, tmp_path):
    class Away:
        def __init__(self):
            self.is_away = True
            self.kept = []

        def load_state(self, prefix):
            return {}

        def commit(self, points, state):
            if self.is_away:
                raise StoreUnavailable("the disk is full")
            self.kept += points

        def close(self):
            pass

    sink = Away()
    held = Inbox(settings_in(tmp_path), ManualClock(), open=lambda settings, owner: sink)
    with pytest.raises(StoreUnavailable):
        held.keep(post(alert("resolved")))
    sink.is_away = False
    assert held.keep(post(alert("resolved"))) == 1 and len(sink.kept) == 1


def test_a_token_is_read_from_a_file_or_the_environment_and_is_not_short(tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert token_of(settings_in(tmp_path, token_file="token"), {}) == TOKEN
    assert token_of(settings_in(tmp_path), {}) == ""
    assert token_of(settings_in(tmp_path), {"TRAINVITALS_ALERTMANAGER_TOKEN": "x" * 20}) == "x" * 20
    (tmp_path / "token").write_text("short")
    for table in ({"token_file": "token"}, {"token_file": "missing"}):
        with pytest.raises(SettingsError):
            token_of(settings_in(tmp_path, **table), {})
    (tmp_path / "token").write_text("")
    with pytest.raises(SettingsError, match="empty"):
        token_of(settings_in(tmp_path, token_file="token"), {})


def ask(held, headers, *chunks):
    """(status, body) of a request, through the route itself."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks] + [
        {"type": "http.request", "body": b""}
    ]

    async def receive():
        return messages.pop(0)

    scope = {
        "type": "http", "method": "POST", "path": "/api/alertmanager", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    answer = asyncio.run(alertmanager_inbox.alertmanager(Request(scope, receive)))
    return answer.status_code, json.loads(answer.body)


def test_only_json_with_the_token_is_taken(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(TOKEN)
    held = Inbox(settings_in(tmp_path, token_file="token"))
    monkeypatch.setattr(alertmanager_inbox, "inbox", lambda: held)
    right = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    assert ask(held, right, post(alert())[:10], post(alert())[10:]) == (200, {"kept": 1})
    for wrong in (
        {},
        {"authorization": TOKEN},
        {"authorization": "Bearer x"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"token={TOKEN}"},
    ):
        assert ask(held, {"content-type": "application/json", **wrong}, post(alert()))[0] == 401
    assert ask(held, {**right, "content-type": "text/plain"}, post(alert()))[0] == 415
    assert ask(held, right, b"{}")[0] == 400
    assert ask(held, right, *[b" " * 600_000] * 2)[0] == 413
    held.close()


def test_while_it_cannot_be_kept_the_answer_asks_for_a_repetition_and_tells_no_paths(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(TOKEN)

    def away(settings, owner):
        raise StoreUnavailable(f"The store {tmp_path} is locked.")

    held = Inbox(settings_in(tmp_path, token_file="token"), open=away)
    monkeypatch.setattr(alertmanager_inbox, "inbox", lambda: held)
    status, body = ask(held, {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}, post(alert()))
    assert status == 503 and str(tmp_path) not in json.dumps(body)


def test_without_a_token_in_the_settings_nothing_is_taken(tmp_path, monkeypatch):
    held = Inbox(settings_in(tmp_path))
    monkeypatch.setattr(alertmanager_inbox, "inbox", lambda: held)
    monkeypatch.delenv("TRAINVITALS_ALERTMANAGER_TOKEN", raising=False)
    assert ask(held, {"authorization": "Bearer ", "content-type": "application/json"}, post(alert()))[0] == 404


def test_nothing_but_a_post_is_answered(tmp_path):
    scope = {"type": "http", "method": "GET", "path": "/api/alertmanager", "query_string": b"", "headers": []}
    assert asyncio.run(alertmanager_inbox.alertmanager(Request(scope))).status_code == 405


def test_behind_a_login_the_way_in_for_programs_is_open_and_no_other():
    entry = Entry("proxy", hosts=frozenset({"dash.example"}))
    assert may_answer("10.0.0.1", "10.0.0.9", "10.0.0.1:8501", entry, (), "/api/alertmanager") == ""
    assert may_answer("10.0.0.1", "10.0.0.9", "10.0.0.1:8501", entry, (), "/api/alertmanager/x")
    assert may_answer("10.0.0.1", "10.0.0.9", "10.0.0.1:8501", Entry(), (), "/api/alertmanager")
