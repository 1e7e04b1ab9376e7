"""``alert``: what it sends, what it shows, and what its exit code means."""

from __future__ import annotations

import json

import pytest

from tests.alerts.notices import DIVERGENCE, notice
from tests.alerts.receivers import Receiver, Reply
from trainvitals.__main__ import main
from trainvitals.alerts.outbox import Outbox


@pytest.fixture
def place(tmp_path):
    """(receiver, its settings file, its outbox)"""
    with Receiver() as receiver:
        config = tmp_path / "t.toml"
        (tmp_path / "hook.url").write_text(f"{receiver.url}/hook/with-secret-0123\n")
        config.write_text(
            f'[alerts]\noutbox = "{tmp_path}/alerts.db"\n[alerts.targets.on-call]\nkind = "webhook"\nurl_file = "hook.url"\nallow_private = true\n'
        )
        outbox = Outbox(tmp_path / "alerts.db")
        yield receiver, str(config), outbox
        outbox.close()


def test_a_test_is_sent_at_once_and_says_that_it_arrived(place, capsys):
    receiver, config, _ = place
    assert main(["alert", "test", "on-call", "--config", config]) == 0
    assert "on-call: delivered in" in capsys.readouterr().err
    assert receiver.received[0].json["type"] == "alert.test" and "nothing is wrong" in receiver.received[0].body.decode()


def test_a_test_that_does_not_arrive_says_why_without_the_secret(place, capsys):
    receiver, config, _ = place
    receiver.answer = lambda received: Reply(404, f"nothing at {received.path}".encode())
    assert main(["alert", "test", "on-call", "--config", config]) == 1
    told = capsys.readouterr().err
    assert "not delivered" in told and "404" in told and "with-secret-0123" not in told


def test_a_test_that_did_not_arrive_is_listed_and_it_is_said_that_it_is_not_counted(place, capsys):
    receiver, config, _ = place
    receiver.answer = lambda received: Reply(404, b"no")
    main(["alert", "test", "on-call", "--config", config])
    capsys.readouterr()
    main(["alert", "list", "--config", config])
    told = capsys.readouterr()
    assert "0 not delivered" in told.out and "NOT DELIVERED" in told.out and "not counted" in told.err


def test_a_test_waits_for_no_others(place, capsys):
    receiver, config, outbox = place
    receiver.answer = lambda received: Reply(503 if b"alert.test" not in received.body else 200)
    outbox.enqueue(DIVERGENCE, "on-call")
    assert main(["alert", "test", "on-call", "--config", config]) == 0


def test_a_target_that_is_not_there_names_those_that_are(place, capsys):
    _, config, _ = place
    assert main(["alert", "test", "oncall", "--config", config]) == 2
    assert "known: on-call" in capsys.readouterr().err
    assert main(["alert", "test", "--config", config]) == 2
    assert main(["alert", "send-again", "--config", config]) == 2


def test_dead_letters_are_listed_sent_again_and_dropped(place, capsys):
    _, config, outbox = place
    assert main(["alert", "list", "--config", config]) == 0
    assert "on-call (webhook): never used" in capsys.readouterr().out
    for told in (DIVERGENCE, notice("opened", "b", run="evil\x1b[31m")):
        outbox.enqueue(told, "on-call")
        outbox.settle(outbox.claim("on-call", 99), "permanent", status=400, duration_ms=1.0, error="no such bot", wait_s=None)
    assert main(["alert", "list", "--dead", "--config", config]) == 1
    shown = capsys.readouterr().out
    assert shown.count("NOT DELIVERED") == 2 and "no such bot" in shown and "2 not delivered" in shown and "\x1b" not in shown
    assert main(["alert", "list", "--dead", "--json", "--config", config]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["target", "message", "message"]
    assert lines[1]["attempts"][0]["status"] == 400
    assert main(["alert", "send-again", lines[1]["id"], "--config", config]) == 0
    assert main(["alert", "send-again", lines[1]["id"], "--config", config]) == 1
    assert main(["alert", "drop", "--all", "--config", config]) == 0
    assert "1 message dropped" in capsys.readouterr().err
    assert [message.state for message in outbox.messages()] == ["waiting"]


def test_a_target_that_answered_410_is_used_again_when_a_person_says_so(place, capsys):
    receiver, config, _ = place
    receiver.answer = lambda received: Reply(410)
    assert main(["alert", "test", "on-call", "--config", config]) == 1
    receiver.answer = lambda received: Reply(200)
    assert main(["alert", "test", "on-call", "--config", config]) == 1
    assert "switched off" in capsys.readouterr().err
    assert main(["alert", "enable", "on-call", "--config", config]) == 0
    assert main(["alert", "test", "on-call", "--config", config]) == 0
