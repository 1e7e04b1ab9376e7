"""Two hosts that share an InfluxDB server and a key: the dashboard's own functions here, the real watchdog there, a real control client."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest
from test_kill import wait_until

from tests.services.influx_server import INFLUXD, InfluxServer
from trainvitals import settings as settings_module
from trainvitals.__main__ import main
from trainvitals.control import ControlClient, signed
from trainvitals.control.request import history
from trainvitals.errors import StoreError
from trainvitals.records import Point
from trainvitals.store.open import open_store
from trainvitals.store.request_rows import request_point
from trainvitals.web import actions, remote
from trainvitals.web.process import make_poller

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60


class Trainer:
    """Steps with a real control client until it is told to end."""

    def __init__(self, run_dir):
        self.saves, self.step = [], 0
        self.client = ControlClient(run_dir, run="r", on_checkpoint=self.saves.append, poll_s=0.05)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self):
        while not self._ends.wait(0.02):
            self.step += 1
            self.client.at_step(self.step)

    def close(self):
        self._ends.set()
        self.client.close()
        self._thread.join(WAIT_S)


@pytest.fixture
def influx(tmp_path):
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path / "influxd", auth=True).start()
    server.query("CREATE USER \"admin\" WITH PASSWORD 'secret' WITH ALL PRIVILEGES")
    yield server
    server.stop()


def as_admin(server, statement):
    """The server reads who asks from the address, not from what is posted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/query?" + urllib.parse.urlencode({"u": "admin", "p": "secret", "q": statement}))
    answer = connection.getresponse()
    assert answer.status == 200 and b"error" not in answer.read(), statement
    connection.close()


class Hosts:
    """``dashboard``: settings of the host without the run directory. ``snapshot``: what its pages would draw now."""

    def __init__(self, home, server):
        self.home, self.run_dir, self.server = home, home / "run-host" / "run", server
        self.run_dir.mkdir(parents=True)
        for name, secret in (("key", "k" * 40), ("password", "secret")):
            (home / name).write_text(secret)
            (home / name).chmod(0o600)
        self.watch_config = self.config("watch", self.run_dir)
        self.dashboard = settings_module.load(self.config("dashboard", home / "not-on-this-host"), environ={})
        self.poller = make_poller(self.dashboard)

    def config(self, user, run_dir):
        path = self.home / f"{user}.toml"
        path.write_text(
            f'store = "influxdb+{self.server.url}"\n[watch]\npoll_s = 0.1\n[spool]\ndir = "{self.home}/spool-{user}"\n'
            f'[influxdb]\nuser = "{user}"\npassword_file = "{self.home}/password"\ntimeout_s = 10.0\n'
            f'[requests]\nkey_files = ["{self.home}/key"]\npoll_s = 0.2\n'
            f'[[runs]]\nname = "r"\ndir = "{run_dir}"\ncontrol_road = "store"\n'
        )
        return path

    def start_watch(self, errors):
        command = [sys.executable, "-m", "trainvitals", "watch", "--run", "r", "--config", str(self.watch_config)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAINVITALS_")}
        return subprocess.Popen(command, stderr=errors, env={**environment, "PYTHONPATH": str(ROOT)})

    def control(self):
        self.poller.tick()
        seen = self.poller.snapshot().run("r")
        return None if seen is None else seen.control

    def is_in(self, state):
        return wait_until(lambda: (seen := self.control()) is not None and seen.state == state, WAIT_S)

    def answer(self, request_id, sent_at_ns=0):
        self.poller.tick()
        return remote.fate(self.poller.snapshot().run("r"), request_id, sent_at_ns, self.poller.now_ns())


@pytest.fixture
def hosts(tmp_path, influx, monkeypatch, capsys):
    made = Hosts(tmp_path, influx)
    monkeypatch.setenv("TRAINVITALS_INFLUXDB_USER", "admin")
    assert main(["store", "setup", "--config", str(made.watch_config)]) == 0
    monkeypatch.delenv("TRAINVITALS_INFLUXDB_USER")
    for statement in capsys.readouterr().out.splitlines():
        if statement.startswith(("CREATE USER", "GRANT")):
            as_admin(influx, statement.replace("…", "secret"))
    with (tmp_path / "errors").open("wb") as errors, contextlib.ExitStack() as at_end:
        trainer = made.trainer = Trainer(made.run_dir)
        at_end.callback(trainer.close)
        watch = made.start_watch(errors)
        at_end.callback(watch.wait, 20)
        at_end.callback(watch.terminate)
        at_end.callback(made.poller.stop)
        assert made.is_in("running"), (tmp_path / "errors").read_text()
        yield made
    assert "Traceback" not in (tmp_path / "errors").read_text()
    assert not (tmp_path / "not-on-this-host").exists()


def test_a_pause_crosses_the_store_is_acknowledged_by_the_trainer_and_ends_by_a_resume(hosts):
    sent = actions.ask(hosts.dashboard, "r", "pause", "ana", "loss spike", hosts.control().seq)
    assert sent.is_done and hosts.is_in("paused")
    seen = hosts.control()
    assert (seen.by, seen.reason, seen.desired, seen.is_pending) == ("ana", "loss spike", "paused", False)
    assert hosts.trainer.saves and "As the watchdog on" in seen.sentence
    assert wait_until(lambda: hosts.answer(sent.request_id).startswith("Applied"), WAIT_S)
    held = hosts.trainer.step
    late = actions.ask(hosts.dashboard, "r", "resume", "ben", "fine", seen.seq - 1)
    assert wait_until(lambda: hosts.answer(late.request_id).startswith("Refused"), WAIT_S)
    assert "(paused) by ana" in hosts.answer(late.request_id) and hosts.trainer.step == held
    actions.ask(hosts.dashboard, "r", "resume", "ben", "fine", seen.seq)
    assert hosts.is_in("running") and wait_until(lambda: hosts.trainer.step > held, WAIT_S)
    assert [event.data["by"] for event in hosts.poller.snapshot().run("r").control_history if event.data.get("seq") == 2]


def test_each_side_has_its_own_right_and_who_has_the_dashboards_token_but_no_key_asks_for_nothing(hosts):
    watch = settings_module.load(hosts.watch_config, environ={})
    for settings, work in (
        (hosts.dashboard, lambda store: store.raw("requests", ["id"], {"run": "r"}, 0, 2**62)),
        (hosts.dashboard, lambda store: store.write([Point("control", {"run": "r"}, 1, {"seq": 1, "json": "{}"})])),
        (watch, lambda store: store.write([request_point("r", "pause", 1, "x", "{}", "s")])),
    ):
        store = open_store(settings.store, influxdb=settings.influxdb)
        with pytest.raises(StoreError, match=r"refused|not authorized"):
            work(store)
        store.close()
    forged = signed.new_request(kind="stop", run="r", by="eve", source="ui", data={"reason": "x"},
                                now_ns=hosts.poller.now_ns(), valid_s=600)  # fmt: skip
    text = forged.to_text()
    store = open_store(hosts.dashboard.store, influxdb=hosts.dashboard.influxdb)
    store.write([request_point("r", "stop", forged.issued_at_ns, forged.id, text, signed.sign(text, b"not the key" * 4))])
    store.close()
    assert wait_until(lambda: "refused so far: wrong signature 1" in hosts.control().sentence, WAIT_S)
    assert history(hosts.run_dir) == [] and hosts.control().state == "running"


def test_training_goes_on_while_the_store_is_away_and_control_is_there_again_with_it(hosts):
    hosts.server.stop()
    sent = actions.ask(hosts.dashboard, "r", "pause", "ana", "loss spike", 0)
    assert not sent.is_done and "It is not known whether the store took this request" in sent.sentence
    step = hosts.trainer.step
    assert wait_until(lambda: hosts.trainer.step > step + 20, WAIT_S) and history(hosts.run_dir) == []
    assert wait_until(lambda: "signed requests are not read" in (hosts.home / "errors").read_text(), WAIT_S)
    hosts.server.start()
    again = actions.ask(hosts.dashboard, "r", "pause", "ana", "loss spike", 0)
    assert again.is_done and hosts.is_in("paused")
    assert [one.request_id for one in history(hosts.run_dir)] == [again.request_id]
