"""The container files say what they promise: no root, nothing writable but what must be, settings that exist."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from image import DOCKERFILE, ROOT, compose, filled_in, instructions, stages

from trainvitals import settings as settings_module

ENV = {
    line.split("=", 1)[0]: line.split("=", 1)[1]
    for line in (ROOT / "docker/.env.example").read_text().splitlines()
    if line and not line.startswith("#")
} | {"INFLUXDB_PASSWORD": "password", "INFLUXDB_TOKEN": "token"}
ENV_OF_GPU_NODES = {"GPU_STORE": "influxdb+http://10.0.0.2:8086", "COLLECTORS_TOKEN": "token"}
OURS = ("store-setup", "dashboard", "watch")


def services(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = filled_in(compose(name), ENV_OF_GPU_NODES if "gpu" in name else ENV)["services"]
    return found


def ours() -> list[tuple[str, dict[str, Any]]]:
    server = services("compose.yaml")
    return [
        *((name, server[name]) for name in OURS),
        *services("compose.gpu.yaml").items(),
        *services("compose.laptop.yaml").items(),
    ]


def test_the_image_is_built_in_stages_and_the_last_one_has_no_build_tools() -> None:
    build, final = stages()
    assert build[0].value.endswith("AS build") and " AS " not in final[0].value
    assert any("--require-hashes" in i.value and "--only-binary" in i.value for i in build if i.name == "RUN")
    assert any("pip uninstall" in i.value for i in build)
    said = " ".join(i.value for i in final if i.name in ("RUN", "COPY"))
    assert not re.search(r"\b(apt-get|pip|gcc|curl|wget)\b", said)
    assert all(i.value.startswith("--from=build") for i in final if i.name == "COPY")


def test_the_image_runs_as_a_numeric_user_and_tells_its_health_without_curl() -> None:
    final = stages()[-1]
    defaults = dict(i.value.split("=") for i in final if i.name == "ARG")
    users = [i.value for i in final if i.name == "USER"]
    assert users == ["${RUNS_UID}:${RUNS_GID}"] and all(int(defaults[name]) > 0 for name in ("RUNS_UID", "RUNS_GID"))
    health = next(i.value for i in final if i.name == "HEALTHCHECK")
    assert json.loads(health[health.index("CMD") + 3 :]) == ["python", "docker/healthcheck.py", "dashboard"]
    assert all(isinstance(json.loads(i.value), list) for i in final if i.name in ("ENTRYPOINT", "CMD"))


def test_no_instruction_fetches_anything_but_what_is_pinned() -> None:
    assert {i.name for i in instructions()} <= {
        "ARG", "FROM", "COPY", "RUN", "LABEL", "ENV", "WORKDIR", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"
    }  # fmt: skip
    assert not re.search(r":latest\b", DOCKERFILE.read_text())
    for name in ("compose.yaml", "compose.gpu.yaml", "compose.laptop.yaml"):
        for service in services(name).values():
            assert service["image"] == "trainvitals" or re.search(r":[0-9]", service["image"])


def test_everything_that_is_copied_exists_and_reaches_the_builder() -> None:
    ignore = (ROOT / "docker/Dockerfile.dockerignore").read_text().splitlines()
    shown = [line[1:] for line in ignore if line.startswith("!")]
    assert "*" in ignore
    sources = [i.value.split()[0] for i in stages()[0] if i.name == "COPY"]
    for source in sources:
        assert (ROOT / source).exists() and source in shown
    assert set(shown) == set(sources)
    assert any(fnmatch.fnmatch(".streamlit/secrets.toml", line) for line in ignore)


@pytest.mark.parametrize(("name", "service"), ours(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_of_our_containers_can_write_nothing_but_its_volumes(name: str, service: dict[str, Any]) -> None:
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"] and service["init"] is True and service["pids_limit"]
    user, group = service["user"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert "privileged" not in service and "devices" not in service
    writable = [mount.split(":")[1] for mount in service["volumes"] if not mount.endswith(":ro")]
    assert set(writable) <= {"/runs", "/var/lib/trainvitals"}
    assert [mount for mount in service["volumes"] if "/etc/" in mount.split(":")[1] and not mount.endswith(":ro")] == []


@pytest.mark.parametrize(("name", "service"), ours(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_variable_that_a_container_gets_is_a_setting(name: str, service: dict[str, Any]) -> None:
    env = {key: value for key, value in service["environment"].items() if key.startswith("TRAINVITALS_")}
    parsed = settings_module.load(str(ROOT / "docker/trainvitals.example.toml"), env)
    assert parsed.store == env["TRAINVITALS_STORE"]
    secrets = {"TRAINVITALS_INFLUXDB_TOKEN"}
    known = {"TRAINVITALS_STORE", *secrets} | {
        f"TRAINVITALS_{section}_{field}".upper()
        for section, table in settings_module.SECTIONS.items()
        for field in table.__dataclass_fields__
    }
    assert set(env) <= known


def test_only_nginx_is_reached_from_outside_and_only_over_tls() -> None:
    server = services("compose.yaml")
    ports = {name: service["ports"] for name, service in server.items() if service.get("ports")}
    assert ports == {"nginx": ["443:8443"], "influxdb": ["127.0.0.1:8086:8086"]}
    assert all("network_mode" not in service for service in server.values())
    networks = compose("compose.yaml")["networks"]
    assert networks["inside"]["internal"] is True
    proxy = server["nginx"]["networks"]["inside"]["ipv4_address"]
    assert server["dashboard"]["environment"]["TRAINVITALS_LOGIN_PROXY_ADDRESSES"] == proxy
    config = (ROOT / "docker/nginx.conf").read_text()
    assert re.findall(r"^\s*listen (.*);", config, re.M) == ["8443 ssl"]


def test_what_must_survive_lies_on_a_volume_that_watch_and_the_dashboard_share() -> None:
    env = next(i.value for i in stages()[-1] if i.name == "ENV")
    assert "XDG_STATE_HOME=/var/lib" in env.split()
    server = services("compose.yaml")
    for name in ("dashboard", "watch"):
        assert "state:/var/lib/trainvitals" in server[name]["volumes"]
        assert "outside" in server[name]["networks"], "what it tells must get out"
        assert not any(key.endswith(("_OUTBOX", "SPOOL_DIR", "KEY_FILE")) for key in server[name]["environment"])


def test_a_variable_that_must_be_set_stops_compose_with_a_sentence() -> None:
    for name in ("RUN", "RUNS_DIR", "PUBLIC_URL", "TLS_DIR", "HTPASSWD", "SECRETS_DIR", "INFLUXDB_TOKEN", "INFLUXDB_PASSWORD"):
        with pytest.raises(KeyError):
            filled_in(compose("compose.yaml"), {key: value for key, value in ENV.items() if key != name})


def test_every_variable_of_the_compose_file_stands_in_the_example() -> None:
    text = (ROOT / "docker/compose.yaml").read_text()
    asked = set(re.findall(r"\$\{([A-Z_]+)", text)) - {
        "TRAINVITALS_IMAGE", "INFLUXDB_IMAGE", "NGINX_IMAGE"
    }  # fmt: skip
    assert asked == set(ENV)
    documented = (ROOT / "docs/containers.md").read_text()
    assert all(
        name in documented for name in ("TRAINVITALS_IMAGE", "INFLUXDB_IMAGE", "NGINX_IMAGE", "GPU_STORE", "COLLECTORS_TOKEN")
    )


def test_the_example_settings_and_the_streamlit_settings_are_read() -> None:
    settings_module.load(str(ROOT / "docker/trainvitals.example.toml"), {})
    tomllib.loads((ROOT / ".streamlit/config.toml").read_text())
    assert not (ROOT / ".streamlit/secrets.toml").exists() or "secrets.toml" in (ROOT / ".gitignore").read_text()


def test_no_secret_stands_in_the_container_files() -> None:
    for path in Path(ROOT / "docker").iterdir():
        for line in path.read_text().splitlines():
            found = re.match(r"\s*(?:[A-Z_]*(?:TOKEN|PASSWORD|SECRET))\s*[:=]\s*(.*)$", line)
            assert not found or not found[1] or found[1].startswith("$"), (path.name, line)
