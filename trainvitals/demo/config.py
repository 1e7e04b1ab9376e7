"""The demo's home: its directories, and the settings for its short time scale (12 steps a second, five minutes)."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainvitals.errors import InputError

RUN = "demo"
TOTAL_STEPS = 9_000
CHECKPOINT_EVERY_STEPS = 300
MARKER = "trainvitals-demo.json"

#: What differs from the defaults, and why: a real run takes seconds to minutes per step, this one 80 ms.
DETECT: Mapping[str, Mapping[str, float]] = {
    # Seconds instead of tens of seconds: the slow-down lasts 40 s and costs 37 %. Medians of two seconds, four of them: on two
    # cores at a load of 10 they fell by 12 % at most, single steps by more than half.
    "throughput_drop": {
        "bucket_s": 2.0,
        "window": 30,
        "min_points": 8,
        "recent_points": 4,
        "slow_points": 8,
        "drop": 0.27,
        "slow_drop": 0.27,
    },
    # A usual level after seconds, not minutes, so that the first fault of a short run is judged.
    "loss_spike": {"min_points": 40, "warmup_points": 60, "window": 64},
    "loss_divergence": {"page_after_points": 25},
    "stall": {"floor_s": 10.0, "first_step_s": 60.0},
    "run_dead": {"fault_grace_s": 10.0},
}
BREAKER: Mapping[str, float] = {
    # The trainer's own guard gives up after 5 NaN losses; the restart from a verified checkpoint is what the demo shows.
    "nonfinite_in_a_row": 20,
    "points": 60,
    "quiet_start_points": 120,
    "cool_down_points": 120,
}

#: Seconds instead of minutes; the trainer may be killed several times within one checkpoint's interval, by whoever tries it.
SUPERVISOR: Mapping[str, float] = {
    "back_off_s": 1.0, "back_off_max_s": 5.0, "grace_s": 5.0, "first_step_s": 120.0, "hang_s": 60.0, "deaths_in_place": 6,
}  # fmt: skip


@dataclass(frozen=True)
class Home:
    """Places in the demo's directory."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "trainvitals.toml"

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def store(self) -> Path:
        return self.path / "trainvitals.db"


def prepare_home(path: Path, now_ns: int) -> Home:
    """An empty home. An earlier demo's is moved aside; anything else that is there is left alone and refused.

    Raises ``InputError``.
    """
    home = Home(path.absolute())
    try:
        if home.path.is_dir() and any(home.path.iterdir()):
            if not (home.path / MARKER).is_file():
                raise InputError(
                    f"{home.path} holds files that are not the demo's. Name an empty or new directory with --home, or move them."
                )
            stamp = datetime.fromtimestamp(now_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%S")
            home.path.rename(home.path.with_name(f"{home.path.name}-until-{stamp}"))
        for directory in (home.path, home.run_dir, home.checkpoints, home.logs):
            directory.mkdir(parents=True, exist_ok=True)
        (home.path / MARKER).write_text(json.dumps({"started_at_ns": now_ns}) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"The demo's directory {home.path} cannot be prepared: {error.strerror or error}.") from error
    return home


def settings_text(home: Home, port: int, checkpoint_every: int = CHECKPOINT_EVERY_STEPS, webhook: str = "") -> str:
    """The demo's ``trainvitals.toml``. webhook: address that is told what is critical, "" = nobody is told."""
    lines = [
        "# Written by `python -m trainvitals demo`: settings for a run of 12 steps a second that is over in minutes.",
        f"store = {_text(f'sqlite://{home.store}')}",
        "",
        "[[runs]]",
        f"name = {_text(RUN)}",
        f"dir = {_text(str(home.run_dir))}",
        f"logs = [{_text(str(home.run_dir / 'logs' / 'attempt-*.log'))}]",
        'log_format = "nanogpt"',
        f"checkpoints = [{_text(str(home.checkpoints))}]",
        'steps_from = "hook"',
        f"total_steps = {TOTAL_STEPS}",
        f"checkpoint_every_steps = {checkpoint_every}",
        "gpus = 1",
        'breaker = "armed"',
        "",
        "[breaker]",
        *_numbers(BREAKER),
        "",
        "[supervisor]",
        *_numbers(SUPERVISOR),
        "",
        "[watch]",
        "poll_s = 0.25",
        "checkpoint_scan_s = 2.0",
        "checkpoint_settle_s = 3.0",
        "checkpoint_unfinished_s = 4.0",
        "",
        "[dashboard]",
        f"port = {port}",
        f"public_url = {_text(f'http://127.0.0.1:{port}')}",
        "refresh_s = 1.0",
        "",
        "[alerts]",
        f"outbox = {_text(str(home.path / 'alerts.db'))}",
        "banner = false",
    ]
    if webhook:
        lines += ["", "[alerts.targets.demo]", 'kind = "webhook"', f"url = {_text(webhook)}", "allow_private = true"]
    for rule, numbers in DETECT.items():
        lines += ["", f"[detect.{rule}]", *_numbers(numbers)]
    return "\n".join(lines) + "\n"


def write_settings(home: Home, port: int, checkpoint_every: int = CHECKPOINT_EVERY_STEPS, webhook: str = "") -> Path:
    """Write the settings file and return its path."""
    home.config.write_text(settings_text(home, port, checkpoint_every, webhook), encoding="utf-8")
    return home.config


def free_port(wanted: int, tries: int = 50) -> int:
    """``wanted`` or the next port on which this machine listens to nothing. Raises ``InputError`` when all are taken."""
    for port in range(wanted, min(wanted + tries, 65_536)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise InputError(f"No free port from {wanted} to {wanted + tries - 1} on 127.0.0.1; name another one with --port.")


def _numbers(numbers: Mapping[str, float]) -> list[str]:
    return [f"{name} = {value}" for name, value in numbers.items()]


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are a subset of TOML's, except that DEL must be escaped too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
