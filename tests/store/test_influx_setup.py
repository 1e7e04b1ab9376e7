"""``store setup`` and ``store check`` on a real server and on the rules of 2.x and 3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.fake_influx import FakeInflux
from tests.services.influx_server import InfluxServer, free_port
from trainvitals.__main__ import main
from trainvitals.store.influx_connection import InfluxConnection
from trainvitals.store.influx_rights import Rights

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Place:
    """A settings file for two databases that are not there yet."""

    config: Path
    names: tuple[str, str]


@pytest.fixture(params=["influxd", "influxdb2_rules", "influxdb3_rules"])
def server(request: pytest.FixtureRequest) -> InfluxServer | FakeInflux:
    return request.getfixturevalue(request.param)


@pytest.fixture
def place(server: InfluxServer | FakeInflux, influxd: InfluxServer, tmp_path: Path) -> Iterator[Place]:
    mark = uuid.uuid4().hex[:10]
    names = f"hw-{mark}", f"long {mark}"
    token = tmp_path / "token"
    token.write_text(getattr(server, "token", ""))
    config = tmp_path / "trainvitals.toml"
    config.write_text(
        f'store = "influxdb+{server.url}"\n[influxdb]\ntoken_file = "{token}"\norg = "org"\n'
        f'database = "{names[0]}"\ndatabase_long = "{names[1]}"\n[retention]\nhardware_days = 7\n'
    )
    yield Place(config, names)
    influxd.drop_databases(*names)


def test_setup_makes_what_is_missing_is_safe_again_and_prints_no_secret(
    server: InfluxServer | FakeInflux, place: Place, influxd: InfluxServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "setup", "--config", str(place.config)]) == 0
    assert main(["store", "setup", "--config", str(place.config)]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in place.names) and "8 days" in said and "for good" in said
    assert "collector" in said and "dashboard" in said and "the-right-token" not in said
    of_collectors = " ".join(line for line in said.splitlines() if "collector" in line and ("GRANT" in line or "create" in line))
    # Events of a collector's own life go to the long database: without that right its spool would stand still.
    assert all(name in of_collectors for name in place.names)
    (result,) = influxd.query("SHOW DATABASES")
    assert set(place.names) <= {row[0] for row in result["series"][0]["values"]}
    if isinstance(server, InfluxServer):
        (result,) = influxd.query(f'SHOW RETENTION POLICIES ON "{place.names[0]}"')
        assert result["series"][0]["values"][0][:3] == ["autogen", "192h0m0s", "24h0m0s"]
        (result,) = influxd.query(f'SHOW RETENTION POLICIES ON "{place.names[1]}"')
        assert result["series"][0]["values"][0][:3] == ["autogen", "0s", "168h0m0s"]
    elif server.major == 2:
        assert server.retention[place.names[0]] == [{"type": "expire", "everySeconds": 8 * 86_400}]
        assert server.retention[place.names[1]] == []


@pytest.mark.parametrize("way", ["influxd", "influxdb2_rules"])
def test_setup_leaves_the_retention_of_a_database_that_holds_data_of_others(
    way: str, request: pytest.FixtureRequest, influxd: InfluxServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, name = request.getfixturevalue(way), f"shared-{uuid.uuid4().hex[:10]}"
    influxd.query(f'CREATE DATABASE "{name}"')
    token, config = tmp_path / "token", tmp_path / "trainvitals.toml"
    token.write_text(getattr(server, "token", ""))
    if isinstance(server, FakeInflux):
        server.adopt(name)
    config.write_text(
        f'store = "influxdb+{server.url}"\n[influxdb]\ntoken_file = "{token}"\norg = "org"\n'
        f'database = "{name}"\ndatabase_long = "{name}-long"\n'
    )
    with closing(InfluxConnection(server.url, Rights(str(token), environ={}), org="org")) as connection:
        connection.write(name, b"temperature_of_the_hall,room=a celsius=21.5 1000000000")
    assert main(["store", "setup", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert f"{name}: holds data of others ('temperature_of_the_hall')" in said and "rows stay for good" in said
    (result,) = influxd.query(f'SHOW RETENTION POLICIES ON "{name}"')
    assert result["series"][0]["values"][0][1] == "0s"
    if isinstance(server, FakeInflux):
        assert not server.retention.get(name)
    influxd.drop_databases(name, f"{name}-long")


def test_the_place_of_signed_requests_is_made_where_a_run_needs_it_with_rights_that_keep_the_two_sides_apart(
    server: InfluxServer | FakeInflux, place: Place, influxd: InfluxServer, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"asked-{uuid.uuid4().hex[:10]}"
    text = place.config.read_text().replace("[retention]", f'database_requests = "{name}"\n[retention]')
    place.config.write_text(f'{text}[[runs]]\nname = "r"\ndir = "r"\ncontrol_road = "files"\n')
    assert main(["store", "setup", "--config", str(place.config)]) == 0
    assert name not in capsys.readouterr().out
    place.config.write_text(f'{text}[[runs]]\nname = "r"\ndir = "r"\ncontrol_road = "store"\n')
    assert main(["store", "setup", "--config", str(place.config)]) == 0
    said = capsys.readouterr().out
    rights = [line for line in said.splitlines() if name in line and ("GRANT" in line or "create" in line)]
    of = {who: " ".join(line for line in rights if who in line) for who in ("collector", "watch", "dashboard")}
    assert not of["collector"] and of["watch"] and of["dashboard"] and "7 days" in said
    if isinstance(server, InfluxServer):
        assert (
            of["watch"] == f'GRANT READ ON "{name}" TO "watch"' and of["dashboard"] == f'GRANT WRITE ON "{name}" TO "dashboard"'
        )
    elif server.major == 2:
        assert f"--read-bucket ID_OF_{name}" in of["watch"] and f"--write-bucket ID_OF_{name}" not in of["watch"]
        assert f"--write-bucket ID_OF_{name}" in of["dashboard"] and f"--read-bucket ID_OF_{name}" not in of["dashboard"]
    else:
        assert f"'db:{name}:read'" in of["watch"] and f"'db:{name}:write'" in of["dashboard"]
    influxd.drop_databases(name)


def test_the_admin_token_wins_over_the_everyday_one_in_the_environment(
    influxdb2_rules: FakeInflux, influxd: InfluxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{name}-{uuid.uuid4().hex[:10]}" for name in ("hw", "long")]
    config, admin = tmp_path / "trainvitals.toml", tmp_path / "admin"
    admin.write_text(influxdb2_rules.token)
    config.write_text(
        f'store = "influxdb+{influxdb2_rules.url}"\n[influxdb]\norg = "org"\n'
        f'database = "{names[0]}"\ndatabase_long = "{names[1]}"\n'
    )
    monkeypatch.setenv("TRAINVITALS_INFLUXDB_TOKEN", "may-only-write")
    assert main(["store", "setup", "--config", str(config)]) == 2
    assert main(["store", "setup", "--config", str(config), "--admin-token-file", str(admin)]) == 0
    influxd.drop_databases(*names)


def test_check_says_what_holds_and_leaves_no_row(
    server: InfluxServer | FakeInflux, place: Place, influxd: InfluxServer, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(server, InfluxServer) or server.major == 2:  # the first write makes a database of 3
        assert main(["store", "check", "--config", str(place.config)]) == 1
        before = capsys.readouterr().out
        assert "FAULT" in before and "store setup" in before
    main(["store", "setup", "--config", str(place.config)])
    capsys.readouterr()
    assert main(["store", "check", "--config", str(place.config), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 19 and all(line["ok"] for line in lines)
    if isinstance(server, InfluxServer) or server.major == 2:
        for name in place.names:
            (result,) = influxd.query("SHOW MEASUREMENTS", name)
            assert "series" not in result


def test_check_of_a_server_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "trainvitals.toml"
    config.write_text(f'store = "influxdb+http://127.0.0.1:{free_port()}"\n')
    assert main(["store", "check", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("FAULT the server answers") and len(said.splitlines()) == 1


def test_setup_for_an_unknown_organization_and_for_the_embedded_store_are_sentences(
    influxdb2_rules: FakeInflux, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, token = tmp_path / "trainvitals.toml", tmp_path / "admin"
    token.write_text(influxdb2_rules.token)
    config.write_text(f'store = "influxdb+{influxdb2_rules.url}"\n[influxdb]\norg = "nobody"\n')
    assert main(["store", "setup", "--config", str(config), "--admin-token-file", str(token)]) == 2
    assert "organization" in capsys.readouterr().err
    config.write_text(f'store = "sqlite://{tmp_path}/t.db"\n')
    assert main(["store", "setup", "--config", str(config)]) == 2
    assert "needs no setup" in capsys.readouterr().err
    assert main(["store", "check", "--config", str(config)]) == 1
    assert "FAULT sqlite" in capsys.readouterr().out


def test_a_token_in_the_settings_file_is_refused_with_the_key_that_is_meant(tmp_path: Path) -> None:
    config = tmp_path / "trainvitals.toml"
    config.write_text('store = "influxdb+http://127.0.0.1:1"\n[influxdb]\ntoken = "secret"\n')
    done = subprocess.run(
        [sys.executable, "-m", "trainvitals", "store", "check", "--config", str(config)],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2 and "token_file" in done.stderr and "secret" not in done.stderr


def test_the_environment_names_server_and_databases(
    influxd: InfluxServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = influxd.make_databases()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINVITALS_STORE", f"influxdb+{influxd.url}")
    monkeypatch.setenv("TRAINVITALS_INFLUXDB_DATABASE", names[0])
    monkeypatch.setenv("TRAINVITALS_INFLUXDB_DATABASE_LONG", names[1])
    monkeypatch.setenv("TRAINVITALS_INFLUXDB_TOKEN", "a-secret")
    assert main(["store", "check"]) == 0
    said = capsys.readouterr()
    assert "a-secret" not in said.out + said.err and said.out.count("ok ") == 19
    influxd.drop_databases(*names)
