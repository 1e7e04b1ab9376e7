"""``demo``: a small real training run with faults on a schedule, and every part of the product around it, on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.cli.up import child_environment, dashboard_child, gpu_child, watch_children
from trainvitals.clock import SystemClock
from trainvitals.demo import config as demo_config
from trainvitals.demo import faults
from trainvitals.demo.command import trainer_command
from trainvitals.settings import Settings
from trainvitals.watch.processes import Child, run_children
from trainvitals.web.answers import Waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, default=8501, help="port of the dashboard; the next free one when it is taken")
    parser.add_argument(
        "--home", type=Path, default=Path("demo-home"), help="the demo's directory; an earlier demo's is moved aside"
    )
    parser.add_argument("--browser", action=argparse.BooleanOptionalAction, default=True, help="open the dashboard in a browser")
    parser.add_argument("--faults", action=argparse.BooleanOptionalAction, default=True, help="break the run on schedule")
    parser.add_argument("--schedule", type=Path, help="JSON file with other faults, or with the same ones at other times")
    parser.add_argument(
        "--checkpoint-every", type=_steps, default=demo_config.CHECKPOINT_EVERY_STEPS, help="steps between two checkpoints"
    )
    parser.add_argument("--webhook", metavar="URL", default="", help="address that is told what is critical (docs/alerts.md)")


def run(options: argparse.Namespace) -> int:
    schedule = "none"
    if options.faults:
        schedule = str(options.schedule.absolute()) if options.schedule is not None else "default"
    faults.load_schedule(schedule)  # said now, in the terminal, rather than in the trainer's log
    home = demo_config.prepare_home(options.home, SystemClock().time_ns())
    port = demo_config.free_port(options.port)
    config = str(demo_config.write_settings(home, port, options.checkpoint_every, options.webhook))
    settings = settings_module.load(config, environ={})
    children = plan(home, settings, config, schedule=schedule, checkpoint_every=options.checkpoint_every)
    address = f"http://127.0.0.1:{port}"

    def ready() -> None:
        _say(f"Trainvitals demo: {address} answers.")
        if options.browser:
            _open_browser(address)

    def late() -> None:
        _say(f"Trainvitals demo: nothing answers on {address} yet; see {home.logs / 'dashboard.log'}.")

    waiting = Waiting(port, ready, late)
    _say(f"Trainvitals demo: starting {address}   (files in {home.path}; Ctrl-C ends it)")
    try:
        return run_children(children, on_ready=waiting.start)
    finally:
        waiting.stop()
        end_orphans(config)


def plan(
    home: demo_config.Home,
    settings: Settings,
    config: str,
    *,
    schedule: str = "default",
    checkpoint_every: int = demo_config.CHECKPOINT_EVERY_STEPS,
) -> list[Child]:
    """The processes in the order they start: the dashboard, which takes longest, and the trainer first, so that a curve shows soon.

    ``schedule``: default, none, or the path of a JSON list of faults; ``checkpoint_every``: steps.

    Raises ``SettingsError`` when this is not a checkout.
    """
    environment = _environment(config)
    steps = [
        "--steps",
        str(demo_config.TOTAL_STEPS),
        "--checkpoint-every",
        str(checkpoint_every),
        "--resume-from",
        "{resume_from}",
    ]
    trainer = [
        sys.executable, "-m", "trainvitals", "run", "--config", config, "--run", demo_config.RUN, "--",
        *trainer_command(home.run_dir, home.checkpoints, demo_config.RUN, schedule, steps),
    ]  # fmt: skip
    nodes = [sys.executable, "-m", "trainvitals.demo.simulated_nodes", "--store", settings.store, "--run", demo_config.RUN]

    def ours(child: Child) -> Child:
        return replace(child, env=environment, log_path=str(home.logs / f"{child.name.replace(' ', '-')}.log"))

    return [
        ours(dashboard_child(settings, config)),
        Child("supervisor", trainer, environment, restart=False, log_path=str(home.logs / "supervisor.log")),
        # A demo that is ended is no dead run: whoever watches it is gone before the trainer, and pages nobody.
        *(replace(ours(child), ends_first=True) for child in watch_children(settings, config)),
        ours(gpu_child(config)),
        Child("simulated nodes", nodes, environment, log_path=str(home.logs / "simulated-nodes.log")),
    ]


def end_orphans(config: str) -> None:
    """End trainers of this demo whose supervisor was killed: they went on training, and nobody else would end them."""
    ours = f"{settings_module.CONFIG_VARIABLE}={config}".encode()
    for entry in Path("/proc").glob("[0-9]*"):  # nothing where there is no /proc
        try:
            is_trainer = b"trainvitals.demo.trainer" in (entry / "cmdline").read_bytes().split(b"\0")
            if is_trainer and ours in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGTERM)
        except OSError:
            continue  # ended meanwhile, or somebody else's


def _environment(config: str) -> dict[str, str]:
    """Settings in this shell's environment belong to its user's own runs: the demo leaves them out."""
    inherited = {
        name: value
        for name, value in child_environment(config).items()
        if not name.startswith(settings_module.ENVIRONMENT_PREFIX)
    }
    return {**inherited, settings_module.CONFIG_VARIABLE: config}


def _open_browser(address: str) -> None:
    """Open a browser where there is one; the address is printed either way."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        # Without a display webbrowser would pick a text browser and take over the terminal.
        _say("No display here: open the address in a browser yourself.")
        return
    try:
        webbrowser.get().open(address)
    except webbrowser.Error:
        _say("No browser found here: open the address yourself.")


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65_535:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535")
    return port


def _steps(text: str) -> int:
    steps = int(text)
    if steps < 1:
        raise argparse.ArgumentTypeError("steps between two checkpoints are 1 or more")
    return steps


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the demo
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
