"""The sender: tries again as it must, delays nobody for another's sake, says through others what it cannot say."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from notices import DIVERGENCE, notice
from receivers import Receiver, Reply, settings_for, strict

from trainvitals.alerts.announce import announcer
from trainvitals.alerts.heartbeat import DeadManHeartbeat
from trainvitals.alerts.http import Answer
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.outbox_rows import message_id
from trainvitals.alerts.sender import Delivery, Sender
from trainvitals.clock import ManualClock, SystemClock

WAIT_S = 60.0


class Answers:
    """Stands for the network: ``answer(now_s, headers)``; keeps (time, webhook-id) of each request."""

    def __init__(self, clock, answer):
        self._clock, self._answer = clock, answer
        self.asked = []

    def __call__(self, url, body, headers, route):
        self.asked.append((self._clock.monotonic_s(), headers.get("webhook-id", "")))
        return self._answer(self._clock.monotonic_s())


@pytest.fixture
def place(tmp_path):
    """(settings, outbox, clock) with one webhook, on a clock that the test moves."""
    clock = ManualClock()
    settings = settings_for(tmp_path, {"t": {"kind": "webhook", "url": "https://receiver.example/hook/with-secret-0123"}})
    outbox = Outbox(settings.outbox_path, clock, boot="b")
    yield settings, outbox, clock
    outbox.close()


def until(condition):
    """Wait for a state, generously."""
    clock, waiting = SystemClock(), threading.Event()
    end = clock.monotonic_s() + WAIT_S
    while not condition():
        assert clock.monotonic_s() < end, "it did not come about"
        waiting.wait(0.02)


def test_a_target_that_is_away_for_an_hour_gets_everything_once_with_the_id_of_the_first_try(place):
    settings, outbox, clock = place
    away_until_s = 3_600.0
    network = Answers(clock, lambda now_s: Answer(error="no connection") if now_s < away_until_s else Answer(200))
    delivery = Delivery(settings, "t", outbox, clock, post=network)
    told = [notice("opened", f"inc-{number}") for number in range(20)]
    for each in told:
        outbox.enqueue(each, "t")
    delivered = 0
    while delivered < len(told) and clock.monotonic_s() < 4 * 3_600:
        delivered += delivery.turn() == "delivered"
        clock.advance(1.0)
        if clock.monotonic_s() in (600.0, 1_200.0):
            clock.advance(86_400.0 if clock.monotonic_s() == 600.0 else -172_800.0, wall_only=True)
    assert delivered == len(told) and not outbox.messages("dead")
    accepted = [id for at, id in network.asked if at >= away_until_s]
    assert sorted(accepted) == sorted(message_id(each.id, "t") for each in told)
    assert {id for _, id in network.asked} == set(accepted)


def test_after_the_last_try_it_is_a_dead_letter_and_nothing_is_sent_any_more(place):
    settings, outbox, clock = place
    network = Answers(clock, lambda now_s: Answer(503))
    delivery = Delivery(settings, "t", outbox, clock, post=network)
    outbox.enqueue(DIVERGENCE, "t")
    while clock.monotonic_s() < 5 * 3_600:
        delivery.turn()
        clock.advance(5.0)
    gaps = [later - earlier for (earlier, _), (later, _) in zip(network.asked, network.asked[1:], strict=False)]
    assert len(network.asked) == 7 and outbox.messages()[0].state == "dead"
    assert all(wanted / 2 <= gap <= wanted + 5 for gap, wanted in zip(gaps, (5, 30, 120, 600, 1800, 7200), strict=True)), gaps


def test_what_the_receiver_asks_for_in_retry_after_is_kept(place):
    settings, outbox, clock = place
    network = Answers(clock, lambda now_s: Answer(429, retry_after="90") if now_s < 1 else Answer(200))
    delivery = Delivery(settings, "t", outbox, clock, post=network)
    outbox.enqueue(DIVERGENCE, "t")
    while delivery.turn() != "delivered":
        clock.advance(1.0)
    assert clock.monotonic_s() == 90.0


def test_410_switches_the_target_off_until_a_person_or_other_settings_switch_it_on(place):
    settings, outbox, clock = place
    network = Answers(clock, lambda now_s: Answer(410 if now_s < 10 else 200))
    delivery = Delivery(settings, "t", outbox, clock, post=network)
    outbox.enqueue(DIVERGENCE, "t")
    assert delivery.turn() == "gone"
    outbox.enqueue(notice("opened", "b"), "t")
    clock.advance(20.0)
    assert delivery.turn() == "" and len(network.asked) == 1
    assert outbox.health(["t"])[0].disabled_ns is not None
    assert {message.state for message in outbox.messages()} == {"dead"}
    other = replace(settings, alert_targets={"t": replace(settings.alert_targets["t"], url="https://receiver.example/new")})
    for message in outbox.messages("dead"):
        assert outbox.send_again(message.id)
    assert Delivery(other, "t", outbox, clock, post=network).turn() == "delivered"


def test_a_test_is_tried_once(place):
    settings, outbox, clock = place
    network = Answers(clock, lambda now_s: Answer(503))
    outbox.enqueue(notice("test"), "t")
    assert Delivery(settings, "t", outbox, clock, post=network).turn() == "retry"
    assert outbox.messages()[0].state == "dead"


def test_a_secret_that_is_missing_for_a_while_costs_a_try_and_a_replaced_one_counts_at_once(tmp_path):
    with Receiver(strict("dingtalk")) as receiver:
        settings = settings_for(tmp_path, {"t": {"kind": "dingtalk", "url": receiver.url, "secrets": ["not the right secret"]}})
        clock = ManualClock()
        outbox = Outbox(settings.outbox_path, clock)
        outbox.enqueue(DIVERGENCE, "t")
        delivery = Delivery(settings, "t", outbox, clock)
        file = tmp_path / "t-0.secret"
        file.rename(tmp_path / "away")
        assert delivery.turn() == "retry" and str(file) in outbox.messages()[0].error
        file.write_text("SEC-of-the-chat-bot-0123456789\n")
        clock.advance(10.0)
        assert delivery.turn() == "delivered"
        outbox.close()


def test_secrets_come_from_the_environment_too(tmp_path, monkeypatch):
    with Receiver(strict("feishu")) as receiver:
        settings = settings_for(tmp_path, {"my-team": {"kind": "feishu"}})
        monkeypatch.setenv("TRAINVITALS_ALERTS_TARGETS_MY_TEAM_URL", receiver.url)
        monkeypatch.setenv("TRAINVITALS_ALERTS_TARGETS_MY_TEAM_SECRET", "SEC-of-the-chat-bot-0123456789, the-one-before")
        outbox = Outbox(settings.outbox_path)
        outbox.enqueue(DIVERGENCE, "my-team")
        assert Delivery(settings, "my-team", outbox).turn() == "delivered", outbox.messages()
        outbox.close()


def test_a_message_that_cannot_be_put_into_words_goes_out_in_poor_ones(place):
    settings, outbox, clock = place
    bodies = []

    def broken(told, language):
        raise KeyError("a rule of tomorrow")

    def keep(url, body, headers, route):
        bodies.append(body.decode())
        return Answer(200)

    outbox.enqueue(DIVERGENCE, "t")
    assert Delivery(settings, "t", outbox, clock, compose=broken, post=keep).turn() == "delivered"
    assert "TRAINING-SICK llama-70b: loss 2.31" in bodies[0] and "KeyError" in bodies[0]


def test_a_dead_letter_is_told_through_the_other_targets_once_an_hour(tmp_path):
    tables = {
        "broken": {"kind": "webhook", "url": "https://x.example/secret-part-1"}, "pager": {"kind": "webhook", "url": "https://y.example/"},
        "warnings": {"kind": "webhook", "url": "https://z.example/", "severities": ["warning"]},
        "others": {"kind": "webhook", "url": "https://z.example/", "runs": ["vision-*"]},
    }  # fmt: skip
    settings, clock = settings_for(tmp_path, tables), ManualClock()
    outbox = Outbox(settings.outbox_path, clock)
    refuse = Answers(clock, lambda now_s: Answer(404, b"no such bot at secret-part-1"))
    for number in range(3):
        outbox.enqueue(notice("opened", f"inc-{number}"), "broken")
        Delivery(settings, "broken", outbox, clock, post=refuse).turn()
    assert outbox.take_unannounced(announcer(settings, outbox, clock)) == 3
    assert outbox.take_unannounced(announcer(settings, outbox, clock)) == 0
    told = outbox.messages("waiting")
    assert [(message.target, message.kind) for message in told] == [("pager", "not_delivered")]
    assert (
        "alerts do not reach broken" in told[0].what
        and "404" in told[0].what
        and "loss 2.31" in told[0].what
        and "secret-part-1" not in told[0].what
    )
    bad = Delivery(settings, "pager", outbox, clock, post=refuse)
    assert bad.turn() == "permanent"
    assert outbox.take_unannounced(announcer(settings, outbox, clock)) == 0
    outbox.close()


def test_a_slow_target_delays_no_other_and_stopping_does_not_wait_for_it(tmp_path):
    hold = threading.Event()

    def slow(received):
        hold.wait(WAIT_S)
        return Reply()

    with Receiver(slow) as slow_one, Receiver() as quick_one:
        settings = settings_for(
            tmp_path, {"slow": {"kind": "webhook", "url": slow_one.url}, "quick": {"kind": "webhook", "url": quick_one.url}}
        )
        outbox = Outbox(settings.outbox_path)
        sender = Sender(settings, outbox)
        sender.start()
        for number in range(5):
            for name in settings.alert_targets:
                outbox.enqueue(notice("opened", f"inc-{number}"), name)
        sender.wake()
        until(lambda: len(quick_one.received) == 5 and slow_one.received)
        assert len(slow_one.received) == 1
        assert not sender.stop(0.1)
        hold.set()
        assert sender.stop(WAIT_S)
        outbox.close()


def test_two_senders_on_one_outbox_deliver_each_message_once(tmp_path):
    with Receiver() as receiver:
        settings = settings_for(tmp_path, {"t": {"kind": "webhook", "url": receiver.url}})
        first, second = Outbox(settings.outbox_path), Outbox(settings.outbox_path)
        senders = [Sender(settings, first), Sender(settings, second)]
        for sender in senders:
            sender.start()
        for number in range(60):
            (first, second)[number % 2].enqueue(notice("opened", f"inc-{number}"), "t")
        until(lambda: len(first.messages("sent")) == 60)
        assert all(sender.stop(WAIT_S) for sender in senders)
        ids = [received.headers["webhook-id"] for received in receiver.received]
        assert len(ids) == 60 and len(set(ids)) == 60
        first.close()
        second.close()


def test_while_the_outbox_cannot_be_used_it_is_said_once_and_tried_on(tmp_path):
    said = []
    with Receiver() as receiver:
        settings = settings_for(tmp_path, {"t": {"kind": "webhook", "url": receiver.url}})
        settings.outbox_path.write_text("this is no database, and long enough for SQLite to see that it is none" * 10)
        outbox = Outbox(settings.outbox_path)
        sender = Sender(settings, outbox, say=said.append)
        sender.start()
        until(lambda: sender.faults)
        assert len(said) == 1 and "nothing is sent to t" in said[0]
        settings.outbox_path.unlink()
        outbox.enqueue(DIVERGENCE, "t")
        sender.wake()
        until(lambda: receiver.received)
        until(lambda: not sender.faults)
        assert sender.stop(WAIT_S)
        outbox.close()


def test_a_fault_of_ours_ends_no_thread(tmp_path, monkeypatch):
    said = []
    with Receiver() as receiver:
        settings = settings_for(tmp_path, {"t": {"kind": "webhook", "url": receiver.url}})
        outbox = Outbox(settings.outbox_path)
        sender = Sender(settings, outbox, say=said.append)
        turn, broken = Delivery.turn, threading.Event()
        broken.set()
        monkeypatch.setattr(Delivery, "turn", lambda self: {}["with-secret"] if broken.is_set() else turn(self))
        sender.start()
        until(lambda: sender.faults)
        assert said == ["nothing is sent to t: a fault of this program (KeyError)"]
        broken.clear()
        outbox.enqueue(DIVERGENCE, "t")
        until(lambda: receiver.received and not sender.faults)
        assert sender.stop(WAIT_S)
        outbox.close()


def test_the_heartbeat_calls_while_what_must_not_die_beats_and_stops_with_it(tmp_path):
    with Receiver() as receiver:
        (tmp_path / "beat.url").write_text(f"{receiver.url}/ping/0123456789\n")
        settings = settings_for(tmp_path, {}, heartbeat_url_file="beat.url", heartbeat_s=0.01, heartbeat_allow_private=True)
        heartbeat = DeadManHeartbeat(settings)
        heartbeat.start()
        heartbeat.beat()
        until(lambda: heartbeat.calls == 1)
        assert len(receiver.received) == 1, "one call for one beat"
        heartbeat.beat()
        until(lambda: len(receiver.received) == 2)
        receiver.answer = lambda received: Reply(500, received.path.encode())
        assert not heartbeat.call() and "500" in heartbeat.fault and "0123456789" not in heartbeat.fault
        heartbeat.stop()
        assert receiver.received[0].path == "/ping/0123456789"


def test_without_an_address_the_heartbeat_calls_nothing(tmp_path):
    heartbeat = DeadManHeartbeat(settings_for(tmp_path, {}))
    heartbeat.start()
    heartbeat.beat()
    heartbeat.stop()
    assert not heartbeat.is_wanted and heartbeat.calls == 0
