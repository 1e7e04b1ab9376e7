"""Each container's command, run as it is written: from the image's own tree, in a clean environment, as the image's user."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from image import RUNS_GID, RUNS_UID, Image, as_container, build, compose, filled_in

from tests.services.fake_influx import FakeInflux
from trainvitals.hook import Recorder

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Host:
    """The host's directories that the containers mount, and how a service is started in place of ``docker compose up``."""

    def __init__(self, home: Path, image: Image) -> None:
        self.home, self.image, self.port = home, image, free_port()
        self.runs, self.data, self.etc, self.tmp = (home / name for name in ("runs", "data", "etc", "tmp"))
        for place in (self.runs, self.data, self.etc, self.tmp):
            place.mkdir()
        example = (Path(__file__).parents[2] / "docker/trainvitals.example.toml").read_text()
        (self.etc / "trainvitals.toml").write_text(example.replace("/runs/", f"{self.runs}/"))
        self.secret = self.etc / "admin_token"
        self.env = {
            "RUN": "llama-70b", "RUNS_DIR": str(self.runs), "PUBLIC_URL": "https://health.example.org/trainvitals", "TLS_DIR": "/tls",
            "HTPASSWD": "/htpasswd", "SECRETS_DIR": "/secrets", "GPU_STORE": "influxdb+http://10.0.0.2:8086", "COLLECTORS_TOKEN": "token", "INFLUXDB_PASSWORD": "password", "INFLUXDB_TOKEN": "token",
        }  # fmt: skip
        with Recorder(self.runs / "llama-70b", run="llama-70b") as recorder:
            recorder.log(1, loss=3.5)
        for place in (home, self.runs, *self.runs.rglob("*"), self.data, self.tmp):
            if os.geteuid() == 0 and place != home:
                os.chown(place, RUNS_UID, RUNS_GID)
            place.chmod(place.stat().st_mode | 0o755 if place.is_dir() else 0o644)
        parent = home
        while os.geteuid() == 0 and parent != parent.parent and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
            parent = parent.parent
        self.started: list[subprocess.Popen[bytes]] = []

    def service(self, file: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = filled_in(compose(file), self.env)["services"][name]
        return found

    def start(self, service: dict[str, Any], **env: str) -> subprocess.Popen[bytes]:
        """The service's command. Only what a network of containers gives is different: ports, host names, the mounts' places."""
        command = self.image.command(service["command"])
        words = [str(self.port) if word == "8501" else word for word in command]
        words = [str(self.secret) if word == "/run/secrets/admin_token" else word for word in words]
        with (self.home / f"log-{len(self.started)}").open("wb") as log:
            process = subprocess.Popen(
                words, cwd=self.image.tree, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**self.own_environment(service), **env}, **as_container(),
        )  # fmt: skip
        self.started.append(process)
        return process

    def own_environment(self, service: dict[str, Any]) -> dict[str, str]:
        return {
            **{key: str(value) for key, value in service["environment"].items()},
            "PATH": f"{self.image.python.parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.tmp),
            "TMPDIR": str(self.tmp), "TRAINVITALS_CONFIG": str(self.etc / "trainvitals.toml"),
            "XDG_STATE_HOME": str(self.data), "TRAINVITALS_DASHBOARD_PORT": str(self.port), **self._places_of_root(),
        }  # fmt: skip

    def _places_of_root(self) -> dict[str, str]:
        """Root has other defaults than the image's user: where these tests stay root, the same places by name."""
        if os.geteuid() != 0 or as_container():
            return {}
        state = self.data / "trainvitals"
        return {
            "TRAINVITALS_SPOOL_DIR": str(state / "spool"), "TRAINVITALS_ALERTS_OUTBOX": str(state / "alerts.db"),
            "TRAINVITALS_DASHBOARD_WALL_KEY_FILE": str(state / "wall.key"),
        }  # fmt: skip

    def is_healthy(self, service: dict[str, Any]) -> bool:
        """The service's own health check, in its own environment."""
        words = [str(word).replace("/runs/", f"{self.runs}/") for word in service["healthcheck"]["test"]]
        assert words[:2] == ["CMD", "python"]
        done = subprocess.run(
            [str(self.image.python), *words[2:]], cwd=self.image.tree, env=self.own_environment(service), capture_output=True,
            **as_container(),
        )  # fmt: skip
        return done.returncode == 0

    def wait(self, what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert process.poll() is None, self.logs()
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.home.glob("log-*")))

    def stop(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(20)


@pytest.fixture
def host(tmp_path: Path, image: Image) -> Iterator[Host]:
    made = Host(tmp_path, image)
    yield made
    made.stop()


def files_of(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


def test_the_containers_of_the_server_run_as_they_are_written(host: Host, influxdb2_rules: FakeInflux) -> None:
    host.env["INFLUXDB_TOKEN"] = host.env["COLLECTORS_TOKEN"] = influxdb2_rules.token
    host.secret.write_text(influxdb2_rules.token)
    host.secret.chmod(0o644)
    store = {"TRAINVITALS_STORE": f"influxdb+{influxdb2_rules.url}", "TRAINVITALS_INFLUXDB_ORG": "org"}
    before = files_of(host.image.tree)

    setup = host.start(host.service("compose.yaml", "store-setup"), **store)
    assert setup.wait(DEADLINE_S) == 0, host.logs()

    watch = host.service("compose.yaml", "watch")
    watching = host.start(watch, **store)
    host.wait(lambda: host.is_healthy(watch), watching)

    gpu = host.start(host.service("compose.gpu.yaml", "gpu"), **store)

    dashboard = host.service("compose.yaml", "dashboard")
    serving = host.start(dashboard, **store)
    host.wait(lambda: host.is_healthy(dashboard), serving)
    with pytest.raises(urllib.error.HTTPError) as refused:  # this test is no proxy
        urllib.request.urlopen(f"http://127.0.0.1:{host.port}/trainvitals/")
    assert refused.value.code == 403 and b"its proxy only" in refused.value.read()

    assert gpu.poll() is None, host.logs()
    assert files_of(host.image.tree) == before
    kept = {path.name for path in (host.data / "trainvitals").iterdir()}
    assert "spool" in kept and list(host.tmp.rglob("*.db")) == []
    watching.send_signal(signal.SIGTERM)
    assert watching.wait(30) == 0, host.logs()
    assert not host.is_healthy(watch)


def test_the_laptop_container_runs_everything_on_the_embedded_store(host: Host) -> None:
    service = host.service("compose.laptop.yaml", "trainvitals")
    before = files_of(host.image.tree)
    store = host.data / "trainvitals" / "trainvitals.db"
    process = host.start(service, TRAINVITALS_STORE=f"sqlite://{store}")
    host.wait(lambda: host.is_healthy(service), process)
    with urllib.request.urlopen(f"http://127.0.0.1:{host.port}/healthz") as answer:
        assert json.load(answer)["runs"] == 1
    host.wait(lambda: (host.runs / "llama-70b/control/requests/watcher.json").exists(), process)
    assert store.exists() and files_of(host.image.tree) == before
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0, host.logs()


def test_the_image_holds_no_installer_and_no_tests(image: Image) -> None:
    assert not (image.tree / "tests").exists() and not (image.tree / "docs").exists()
    assert {path.name for path in image.tree.iterdir()} == {
        "app.py",
        ".streamlit",
        "pages",
        "collectors",
        "trainvitals",
        "docker",
    }
    assert shutil.which("python", path=str(image.python.parent))
    assert re.fullmatch(r"python[0-9.]*", image.python.name)
