"""``up``: every part for one machine as child processes, started again when they die."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainvitals import settings as settings_module
from trainvitals.errors import SettingsError
from trainvitals.settings import CONFIG_VARIABLE, Settings
from trainvitals.watch.processes import Child, run_children
from trainvitals.web.access import entry_of, is_loopback
from trainvitals.web.answers import Waiting

#: The checkout or image: app.py, pages and collectors run from there, the wheel holds the core only.
CHECKOUT = Path(__file__).resolve().parent.parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="settings file (default: $TRAINVITALS_CONFIG, else ./trainvitals.toml)")


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    if not settings.path:
        raise SettingsError("No settings file: give --config FILE, set TRAINVITALS_CONFIG, or write ./trainvitals.toml.")
    if not settings.runs:
        raise SettingsError(f"{settings.path} names no run; add a [[runs]] table with name, dir and logs or a hook.")
    if settings.login.mode == "local" and not is_loopback(settings.dashboard.address):
        raise SettingsError(
            f"{settings.path}: address {settings.dashboard.address!r} under [dashboard] needs a login: set mode to proxy or oidc under "
            "[login], or leave the address at 127.0.0.1."
        )
    entry_of(settings)
    config = str(Path(settings.path).resolve())
    children = [
        dashboard_child(settings, config),
        *watch_children(settings, config),
        *([gpu_child(config)] if settings.gpu.enabled else []),
    ]

    taken = is_taken(settings.dashboard.port)
    address = where(settings, taken)
    if taken:
        _say(address)
        return run_children(children)
    waiting = Waiting(
        settings.dashboard.port,
        lambda: _say(f"{address} answers."),
        lambda: _say(f"nothing answers on {address} yet; what the dashboard printed is above."),
    )
    _say(f"starting {address}")
    try:
        return run_children(children, on_ready=waiting.start)
    finally:
        waiting.stop()


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end what watches the run
        print(f"Trainvitals: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def is_taken(port: int) -> bool:
    """Another program listens on 127.0.0.1:port, or this user may not."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def where(settings: Settings, taken: bool) -> str:
    """The dashboard's address for people, or why it is not there. The watchdogs run in both cases."""
    port = settings.dashboard.port
    if not taken:
        return (
            f"http://127.0.0.1:{port}"
            if settings.login.mode == "local"
            else f"{settings.dashboard.public_url} (port {port} here)"
        )
    return (
        f"port {port} is taken, perhaps by an earlier start, so what answers there is not this dashboard. It is tried until the "
        f"port is free; for another one set port under [dashboard] in {settings.path}, or TRAINVITALS_DASHBOARD_PORT."
    )


def child_environment(config: str) -> Mapping[str, str]:
    """This process's environment, with the settings file named and the checkout importable."""
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, CONFIG_VARIABLE: config, "PYTHONPATH": os.pathsep.join(paths)}


def watch_children(settings: Settings, config: str) -> list[Child]:
    """One watchdog per run."""
    command = [sys.executable, "-m", "trainvitals", "watch", "--config", config, "--run"]
    return [Child(f"watch {run.name}", [*command, run.name], child_environment(config)) for run in settings.runs]


def gpu_child(config: str) -> Child:
    """The GPU collector of this machine."""
    return Child("gpu collector", [sys.executable, "-m", "collectors", "gpu", "--config", config], child_environment(config))


def base_path(settings: Settings) -> str:
    """The path below which people come in, as the proxy passes it on; none without a login, where they come to the port itself."""
    return "" if settings.login.mode == "local" else urlsplit(settings.dashboard.public_url).path.strip("/")


def dashboard_child(settings: Settings, config: str, log_path: str | None = None) -> Child:
    """The web server. Raises ``SettingsError`` when this is not a checkout."""
    app = CHECKOUT / "app.py"
    if not app.is_file():
        raise SettingsError(
            f"No app.py in {CHECKOUT}: the dashboard runs from a checkout or the image, the wheel holds the core only."
        )
    command = [
        sys.executable, "-m", "streamlit", "run", str(app), "--server.address", settings.dashboard.address, "--server.port",
        str(settings.dashboard.port), "--server.headless", "true", "--server.baseUrlPath", base_path(settings),
    ]  # fmt: skip
    return Child("dashboard", command, child_environment(config), log_path=log_path, cwd=str(CHECKOUT))
