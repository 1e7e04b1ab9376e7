"""kill -9 at every point of a delivery and of an addition: at least once, always with the same id, nothing lost, nothing twice
that the receiver could not tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from notices import notice
from receivers import WEBHOOK_SECRET, Receiver, Reply, strict

from trainvitals.alerts.outbox import LEASE_S, Outbox
from trainvitals.alerts.outbox_rows import message_id
from trainvitals.alerts.sender import Delivery
from trainvitals.clock import SystemClock
from trainvitals.settings import load

ROOT = Path(__file__).resolve().parent.parent.parent
CHILD = Path(__file__).with_name("sender_child.py")
IN_ROOT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Later(SystemClock):
    """This machine's clock, so much later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._seconds


def written(tmp_path, url):
    (tmp_path / "secret").write_text(WEBHOOK_SECRET)
    path = tmp_path / "t.toml"
    path.write_text(
        f'[alerts]\noutbox = "alerts.db"\n[alerts.targets.t]\nkind = "webhook"\nurl = "{url}"\nsecret_files = ["secret"]\nallow_private = true\n'
    )
    return path


def finish(settings, later_s):
    """Deliver what is left, once the leases of whoever died have ended."""
    outbox = Outbox(settings.outbox_path, Later(later_s))
    delivery = Delivery(settings, "t", outbox, Later(later_s))
    while delivery.turn():
        pass
    states = Counter(message.state for message in outbox.messages(limit=10_000))
    outbox.close()
    return states


@pytest.mark.parametrize(("point", "times"), [("claimed", 1), ("composed", 1), ("sent", 2), ("settled", 1)])
def test_a_sender_killed_at_any_point_is_followed_by_one_that_tells_it_with_the_same_id(point, times, tmp_path):
    told = [notice("opened"), notice("escalated"), notice("opened", "b")]
    with Receiver(strict("webhook")) as receiver:
        settings = load(written(tmp_path, receiver.url), {})
        outbox = Outbox(settings.outbox_path)
        for each in told:
            outbox.enqueue(each, "t")
        outbox.close()
        child = subprocess.run([sys.executable, CHILD, tmp_path / "t.toml", point], env=IN_ROOT, capture_output=True, timeout=60)
        assert child.returncode == -signal.SIGKILL, child.stderr.decode()
        assert finish(settings, LEASE_S + 1) == {"sent": 3}
        seen = Counter(received.headers["webhook-id"] for received in receiver.received)
        bodies = {received.headers["webhook-id"]: received.json["data"]["id"] for received in receiver.received}
    assert seen == {message_id(each.id, "t"): times if each is told[0] else 1 for each in told}
    assert sorted(bodies.values()) == sorted(each.id for each in told)


def test_five_kills_while_the_receiver_is_answering_lose_nothing(tmp_path):
    children = []

    def kill_now_and_then(received):
        if len(receiver.received) % 4 == 0 and children[-1].poll() is None:
            children[-1].kill()
        return Reply()

    with Receiver(kill_now_and_then) as receiver:
        settings = load(written(tmp_path, receiver.url), {})
        outbox = Outbox(settings.outbox_path)
        for number in range(20):
            outbox.enqueue(notice("opened", f"inc-{number}"), "t")
        outbox.close()
        for _ in range(5):
            children.append(
                subprocess.Popen([sys.executable, CHILD, tmp_path / "t.toml", "never"], env=IN_ROOT, stderr=subprocess.PIPE)
            )
            _, errors = children[-1].communicate(timeout=60)
            assert children[-1].returncode in (0, -signal.SIGKILL), errors.decode()
        assert finish(settings, LEASE_S + 1) == {"sent": 20}
        seen = Counter(received.headers["webhook-id"] for received in receiver.received)
    assert set(seen) == {message_id(notice("opened", f"inc-{number}").id, "t") for number in range(20)}
    killed = sum(child.returncode == -signal.SIGKILL for child in children)
    assert killed and sum(seen.values()) <= 20 + killed


def test_three_processes_at_once_deliver_each_message_once(tmp_path):
    with Receiver() as receiver:
        settings = load(written(tmp_path, receiver.url), {})
        outbox = Outbox(settings.outbox_path)
        for number in range(60):
            outbox.enqueue(notice("opened", f"inc-{number}"), "t")
        outbox.close()
        children = [
            subprocess.Popen([sys.executable, CHILD, tmp_path / "t.toml", "never"], env=IN_ROOT, stderr=subprocess.PIPE)
            for _ in range(3)
        ]
        for child in children:
            _, errors = child.communicate(timeout=60)
            assert child.returncode == 0, errors.decode()
        assert finish(settings, LEASE_S + 1) == {"sent": 60}
        seen = Counter(received.headers["webhook-id"] for received in receiver.received)
    assert len(seen) == 60 and set(seen.values()) == {1}


def test_what_was_added_before_a_kill_is_there(tmp_path):
    settings = load(written(tmp_path, "http://127.0.0.1:9/"), {})
    child = subprocess.Popen([sys.executable, CHILD, tmp_path / "t.toml", "add"], env=IN_ROOT, stdout=subprocess.PIPE)
    last = ""
    for _ in range(200):
        last = child.stdout.readline().decode().strip()
    child.kill()
    rest = child.stdout.read().decode().split()  # not communicate: it knows nothing of the lines that readline has read ahead
    child.stdout.close()
    child.wait(60)
    outbox = Outbox(settings.outbox_path)
    there = {message.incident_id for message in outbox.messages(limit=10**6)}
    outbox.close()
    acknowledged = int(rest[-1] if rest else last)
    assert {f"inc-{number}" for number in range(acknowledged + 1)} <= there and len(there) <= acknowledged + 2
