"""Each kind of target against a receiver that is as strict as the service: signature, escaping, sizes, codes in the body."""

from __future__ import annotations

import json

import pytest
from notices import DIVERGENCE, notice
from receivers import CHAT_SECRET, ROUTING_KEY, WEBHOOK_SECRET, Receiver, Reply, secrets_of, settings_for, strict

from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Delivery

KINDS = ("webhook", "slack", "feishu", "lark", "dingtalk", "wecom", "pagerduty")
HOSTILE = [
    '<!channel> <!here> <@U012> @all @所有人 <at user_id="all">everyone</at> <at id=all></at> <@all>',
    "[x](javascript:1) ![](http://evil.example/p.png) **b** `c` *d* _e_ ~f~ &amp; <b>&</b> |",
    "a\nb\r\n2026 ERROR forged line \x1b[31m \u202e \ud800",
    "长" * 5_000,
    "x" * 30_000,
]


def deliver(tmp_path, receiver, kind, *notices, secrets=None, **more):
    """The outcomes of telling them all, one after the other."""
    table = {"kind": kind, "url": f"{receiver.url}/hook?key=0123456789abcdef", "secrets": secrets or secrets_of(kind), **more}
    settings = settings_for(tmp_path, {"t": table})
    outbox = Outbox(settings.outbox_path)
    for each in notices:
        outbox.enqueue(each, "t")
    delivery = Delivery(settings, "t", outbox)
    outcomes = [delivery.turn() for _ in notices]
    errors = [message.error for message in outbox.messages()]
    outbox.close()
    return outcomes, errors


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_message_is_accepted_in_both_languages(kind, tmp_path):
    every = [notice("opened"), notice("escalated"), notice("reminder"), notice("acknowledged"), notice("recovered"), notice("watch_silent"),
             notice("not_delivered"), notice("test", "other")]  # fmt: skip
    with Receiver(strict(kind)) as receiver:
        for language in ("en", "zh"):
            outcomes, errors = deliver(tmp_path / language, receiver, kind, *every, language=language)
            assert outcomes == ["delivered"] * len(every), errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_and_texts_mention_nobody_and_fit(kind, text, tmp_path):
    hostile = notice(run=text, what=text, breaker=text, control=text, rule=text[:60], metric=text)
    with Receiver(strict(kind)) as receiver:
        outcomes, errors = deliver(tmp_path, receiver, kind, hostile)
    assert outcomes == ["delivered"], errors


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pagerduty"])
def test_the_link_arrives_whole_however_long_the_rest_is(kind, tmp_path):
    with Receiver(strict(kind)) as receiver:
        deliver(tmp_path, receiver, kind, notice(breaker="长" * 2_000, control="长" * 2_000))
        shown = receiver.received[0].body.decode()
    link = DIVERGENCE.link.replace("&", "&amp;") if kind == "slack" else DIVERGENCE.link
    assert link in shown


def test_the_headline_comes_first_in_a_text_and_is_the_title_elsewhere(tmp_path):
    titles = {}
    for kind in KINDS:
        with Receiver(strict(kind)) as receiver:
            deliver(tmp_path / kind, receiver, kind, DIVERGENCE)
            titles[kind] = receiver.received[0].json
    start = "TRAINING-SICK llama-70b: loss 2.31 → 2.94"
    assert titles["webhook"]["data"]["headline"].startswith(start)
    assert titles["slack"]["text"].startswith(start) and titles["slack"]["blocks"][0]["text"]["text"].startswith(start)
    assert titles["feishu"]["card"]["header"]["title"]["content"].startswith(start)
    assert titles["feishu"]["card"]["header"]["template"] == "red"
    assert titles["dingtalk"]["text"]["content"].startswith(start)
    assert titles["wecom"]["text"]["content"].startswith(start)
    assert titles["pagerduty"]["payload"]["summary"].startswith(start)


def test_a_webhook_while_its_secret_is_being_replaced_carries_both_signatures(tmp_path):
    other = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    with Receiver(strict("webhook")) as receiver:
        outcomes, _ = deliver(tmp_path, receiver, "webhook", DIVERGENCE, secrets=[other, WEBHOOK_SECRET])
        signatures = receiver.received[0].headers["webhook-signature"].split(" ")
    assert outcomes == ["delivered"] and len(signatures) == 2 and all(s.startswith("v1,") for s in signatures)


def test_a_webhook_names_its_event_by_a_dotted_type(tmp_path):
    told = [
        notice(rule="loss_spike"), notice("recovered"), notice(rule="checkpoint_corrupt", incident="b"),
        notice(rule="gpu_lost", incident="c"), notice("test", "d"),
    ]  # fmt: skip
    with Receiver(strict("webhook")) as receiver:
        deliver(tmp_path, receiver, "webhook", *told)
        types = [received.json["type"] for received in receiver.received]
    assert types == ["run.loss_spike", "incident.resolved", "checkpoint.corrupt", "node.gpu_lost", "alert.test"]


def test_a_number_that_json_has_not_is_a_text(tmp_path):
    with Receiver(strict("webhook")) as receiver:
        deliver(tmp_path, receiver, "webhook", notice(value=float("nan"), expected=float("-inf")))
        text = receiver.received[0].body.decode()
    data = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))["data"]
    assert (data["value"], data["expected"]) == ("NaN", "-Infinity")


def test_one_incident_is_one_incident_at_pagerduty_through_its_whole_life(tmp_path):
    with Receiver(strict("pagerduty")) as receiver:
        kinds = ("opened", "escalated", "acknowledged", "recovered")
        deliver(tmp_path, receiver, "pagerduty", *(notice(kind) for kind in kinds), notice("opened", "inc-2"))
        events = [received.json for received in receiver.received]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve", "trigger"]
    assert len({event["dedup_key"] for event in events[:4]}) == 1 and events[4]["dedup_key"] != events[0]["dedup_key"]
    assert events[0]["client_url"] == DIVERGENCE.link
    assert {link["text"] for link in events[0]["links"]} == {"Incident", "Runbook"}


def test_pagerduty_without_a_key_says_so_and_sends_nothing(tmp_path):
    with Receiver(strict("pagerduty")) as receiver:
        settings = settings_for(tmp_path, {"t": {"kind": "pagerduty", "url": receiver.url}})
        outbox = Outbox(settings.outbox_path)
        outbox.enqueue(DIVERGENCE, "t")
        assert Delivery(settings, "t", outbox).turn() == "retry"
        assert "secret_files" in outbox.messages()[0].error and not receiver.received


@pytest.mark.parametrize(
    ("kind", "reply", "outcome"),
    [
        ("webhook", Reply(200), "delivered"), ("webhook", Reply(202), "delivered"), ("webhook", Reply(302, headers={"Location": "/"}), "permanent"),
        ("webhook", Reply(400), "permanent"), ("webhook", Reply(401), "permanent"), ("webhook", Reply(408), "retry"),
        ("webhook", Reply(410), "gone"), ("webhook", Reply(425), "retry"), ("webhook", Reply(429), "retry"), ("webhook", Reply(503), "retry"),
        ("slack", Reply(200, b"ok"), "delivered"), ("slack", Reply(200, b"invalid_payload"), "permanent"),
        ("slack", Reply(200, b"<html>log in</html>"), "retry"), ("slack", Reply(404, b"no_service"), "permanent"),
        ("feishu", Reply(200, b'{"code":0}'), "delivered"), ("feishu", Reply(200, b'{"code":19021,"msg":"sign match fail"}'), "permanent"),
        ("feishu", Reply(200, b'{"code":11232,"msg":"frequency limited psm"}'), "retry"),
        ("feishu", Reply(200, b'{"code":9499,"msg":"frequency limited psm"}'), "retry"),
        ("feishu", Reply(400, b'{"code":9499,"msg":"too many request","data":{}}'), "retry"), ("feishu", Reply(200, b'{"code":2200}'), "retry"),
        ("feishu", Reply(400, b'{"code":11232,"msg":"x"}'), "retry"), ("feishu", Reply(400, b'{"code":9499,"msg":"Bad Request"}'), "permanent"),
        ("feishu", Reply(400, b"too many request"), "permanent"), ("feishu", Reply(404, b'{"code":19001,"msg":"param invalid"}'), "permanent"),
        ("feishu", Reply(200, b'{"code":9499,"msg":"Bad Request"}'), "permanent"), ("feishu", Reply(200, b"<html>"), "retry"),
        ("feishu", Reply(200, b'{"code":false}'), "retry"), ("feishu", Reply(200, b"[" * 2_000), "retry"),
        ("dingtalk", Reply(200, b'{"errcode":0,"errmsg":"ok"}'), "delivered"),
        ("dingtalk", Reply(200, b'{"errcode":310000,"errmsg":"keywords not in content"}'), "permanent"),
        ("dingtalk", Reply(200, b'{"errcode":130101,"errmsg":"send too fast"}'), "retry"),
        ("wecom", Reply(200, b'{"errcode":0}'), "delivered"), ("wecom", Reply(200, b'{"errcode":93000}'), "permanent"),
        ("wecom", Reply(200, b'{"errcode":45009,"errmsg":"api freq out of limit"}'), "retry"),
        ("pagerduty", Reply(202), "delivered"), ("pagerduty", Reply(200), "retry"), ("pagerduty", Reply(400), "permanent"),
        ("pagerduty", Reply(429), "retry"),
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_means_what_the_service_means_by_it(kind, reply, outcome, tmp_path):
    with Receiver(lambda received: reply) as receiver:
        assert deliver(tmp_path, receiver, kind, DIVERGENCE)[0] == [outcome]


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_is_in_the_outbox_whatever_the_receiver_answers(kind, tmp_path):
    def echo(received):
        return Reply(400, f"{received.path} {received.headers} ".encode() + received.body[:1_000])

    with Receiver(echo) as receiver:
        _, errors = deliver(tmp_path, receiver, kind, DIVERGENCE)
        assert "400" in errors[0]
        kept = b"".join(file.read_bytes() for file in tmp_path.glob("alerts.db*"))
    for secret in (CHAT_SECRET, ROUTING_KEY, WEBHOOK_SECRET, "0123456789abcdef"):
        assert secret not in "".join(errors) and secret.encode() not in kept
