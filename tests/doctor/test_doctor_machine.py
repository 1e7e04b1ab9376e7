"""Of this machine each thing broken once: store, spool, secrets, port, driver, alerts, Slurm."""

import dataclasses
import http.server
import json
import os
import threading

import pytest

from tests.doctor.looking import free_port, look, says, settings_of
from trainvitals.doctor import of_machine
from trainvitals.doctor.check import FAULT, OK, WARNING
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore


def test_a_store_that_is_there_not_yet_there_or_that_cannot_be_made(place):
    assert says(look(settings_of(place), "store"), OK, "is made by the first program")[0]
    SqliteStore(place / "store.db").close()
    opened = SqliteStore(place / "store.db")
    opened.commit([], {"a": b"b"})
    opened.close()
    assert says(look(settings_of(place), "store"), OK, "answers")[0]
    (place / "broken.db").write_bytes(b"no database" * 100)
    assert look(parse({"store": f"sqlite://{place}/broken.db", "runs": [{"name": "r", "dir": "/x"}]}), "store")[0][0] == FAULT
    no = parse({"store": "sqlite:///proc/nowhere/store.db", "runs": [{"name": "r", "dir": "/x"}]})
    assert says(look(no, "store"), FAULT, "may not write" if os.geteuid() else "")[0] or os.geteuid() == 0


def test_a_server_that_does_not_answer_is_a_fault_without_its_secret(place, tmp_path):
    token = tmp_path / "token"
    token.write_text("SeCrEtToKeN")
    port = free_port()
    remote = settings_of(place, store=f"influxdb+http://127.0.0.1:{port}", influxdb={"token_file": str(token), "timeout_s": 2})
    found = look(remote, "store")
    assert found[0][0] == FAULT and str(port) in found[0][1] and "SeCrEt" not in str(found)


@pytest.mark.parametrize("name", ["influxd", "influxdb2_rules"])
def test_a_real_server_is_asked_for_rows_and_one_without_the_database_or_the_right_is_a_fault(place, make_influx_place, name):
    influx = make_influx_place(name)
    told = {"token_file": str(influx.token_file), "database": influx.names[0], "database_long": influx.names[1], "org": "org"}
    remote = {"store": f"influxdb+{influx.server.url}"}
    assert says(look(settings_of(place, **remote, influxdb=told), "store"), OK, "answers")[0]
    found = look(settings_of(place, **remote, influxdb=told | {"database_long": "no_such_database"}), "store")
    assert says(found, FAULT, "no_such_database")[0], found
    if name == "influxdb2_rules":
        influx.token_file.write_text("wrong")
        found = look(settings_of(place, **remote, influxdb=told), "store")
        assert found[-1][0] == FAULT and "token" in found[-1][1], found


def test_a_spool_without_room_or_rights(place, tmp_path):
    remote = {"store": "influxdb+http://127.0.0.1:1"}
    assert says(look(settings_of(place), "spool"), OK, "not needed")[0]
    assert says(look(settings_of(place, **remote, spool={"dir": str(tmp_path / "new")}), "spool"), OK, "is made by")[0]
    assert says(look(settings_of(place, **remote, spool={"dir": str(tmp_path)}), "spool"), OK, "local")[0]
    found = look(settings_of(place, **remote, spool={"dir": str(tmp_path), "max_bytes": 10**15}), "spool")
    assert says(found, WARNING, "lower [spool] max_bytes")[0]
    assert says(look(settings_of(place, **remote, spool={"dir": "/proc/self"}), "spool"), FAULT, "takes no file")[0]


def test_every_secret_file_of_the_settings_is_looked_at(place, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    settings = settings_of(
        place,
        influxdb={"token_file": str(secret)},
        alerts={"targets": {"a": {"kind": "slack", "url_file": str(tmp_path / "no")}}},
    )
    keys = {key for key, _ in of_machine.secret_files(settings)}
    assert keys == {"[influxdb] token_file", "[alerts.targets.a] url_file"}
    found = look(settings, "secrets")
    assert says(found, FAULT, "[alerts.targets.a] url_file")[0] and says(found, OK, "[influxdb] token_file")[0]
    secret.chmod(0o644)
    assert says(look(settings, "secrets"), WARNING, "everyone on this machine may read")[0]
    secret.write_text("")
    secret.chmod(0o600)
    assert says(look(settings, "secrets"), FAULT, "is empty")[0]
    assert says(look(settings_of(place), "secrets"), OK, "no file is named")[0]


def test_no_setting_for_a_secret_can_be_forgotten(place):
    """A new setting whose name says that it is a file with a secret is found by its name."""
    settings = settings_of(place)
    filled = dataclasses.replace(settings.login, proxy_secret_file="/x/secret")
    keys = {key for key, _ in of_machine.secret_files(dataclasses.replace(settings, login=filled))}
    assert keys == {"[login] proxy_secret_file"}


class Answers(http.server.BaseHTTPRequestHandler):
    body = b""

    def do_GET(self):
        self.send_response(503)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("body", "state", "sentence"),
    [(json.dumps({"status": "error", "snapshot_age_s": None}).encode(), OK, "a dashboard answers"), (b"hello", WARNING, "another program")],
)  # fmt: skip
def test_a_port_is_free_a_dashboards_or_another_programs(place, body, state, sentence):
    handler = type("Handler", (Answers,), {"body": body})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    number = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        assert says(look(settings_of(place, dashboard={"port": number}), "port"), state, sentence)[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert says(look(settings_of(place, dashboard={"port": number}), "port"), OK, "is free")[0]


def test_a_driver_that_hangs_is_told_in_time_and_one_that_is_missing_too(place, tmp_path):
    assert says(look(settings_of(place, gpu={"enabled": False}), "gpu"), OK, "enabled = false")[0]
    folder = tmp_path / "checkout" / "collectors"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text("import time; time.sleep(600)")
    (found, *_) = list(of_machine.gpu(settings_of(place), folder.parent, 1.0))
    assert found.state == FAULT and "did not answer" in found.text
    (folder / "__main__.py").write_text("import sys; print('no NVIDIA driver', file=sys.stderr); sys.exit(1)")
    (found,) = list(of_machine.gpu(settings_of(place), folder.parent, 10.0))
    assert found.state == WARNING and "no NVIDIA driver" in found.text
    (folder / "__main__.py").write_text('print(\'{"measurement": "gpu"}\')')
    (found,) = list(of_machine.gpu(settings_of(place), folder.parent, 10.0))
    assert found.state == OK
    (found,) = list(of_machine.gpu(settings_of(place), tmp_path, 10.0))
    assert found.state == OK and "checkout" in found.text


def test_alert_targets_are_read_and_nothing_is_sent(place, tmp_path):
    assert says(look(settings_of(place), "alerts"), WARNING, "nobody is told of anything")[0]
    address = tmp_path / "url"
    address.write_text("https://hooks.example.com/T000/SeCrEt\n")
    good = {"kind": "slack", "url_file": str(address)}
    found = look(settings_of(place, alerts={"targets": {"a": good}}), "alerts")
    assert [state for state, _ in found] == [OK] and "SeCrEt" not in str(found)
    address.write_text("not-an-address SeCrEt")
    found = look(settings_of(place, alerts={"targets": {"a": good}}), "alerts")
    assert found[0][0] == FAULT and "SeCrEt" not in str(found)
    address.write_text("https://hooks.example.com/x")
    quiet = look(settings_of(place, alerts={"targets": {"a": good | {"severities": ["warning"]}}}), "alerts")
    assert says(quiet, WARNING, "no target is told of critical findings")[0]


def test_slurm_commands_that_are_missing(place, monkeypatch):
    assert says(look(settings_of(place), "slurm"), OK, "slurm = off")[0]
    monkeypatch.setenv("PATH", "/no/such/directory")
    assert says(look(settings_of(place, supervisor={"slurm": "requeue"}), "slurm"), FAULT, "not found: sinfo")[0]
