"""One settings file, ``trainvitals.toml``; each key also as ``TRAINVITALS_…``. Unknown keys are errors with the nearest known key.

The tables below are the only list of settings: the loader, ``doctor`` and the documentation read them.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.detect.tunables import TUNABLES
from trainvitals.errors import SettingsError

ENVIRONMENT_PREFIX = "TRAINVITALS_"
CONFIG_VARIABLE = "TRAINVITALS_CONFIG"
MAX_FILE_BYTES = 1 << 20
#: Bounds of every number: beyond them waiting, listening and storing fail in ways that name no setting.
MAX_WHOLE = 10**15
MAX_PORT = 65_535
SECONDS = (0.001, 31_536_000.0)


def _setting(default: Any, help: str, *, choices: tuple[str, ...] = ()) -> Any:
    metadata = {"help": help, "choices": choices}
    if isinstance(default, (list, dict, tuple)):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class RunSettings:
    """One ``[[runs]]`` table."""

    name: str = _setting("", "name of the run, as shown and stored")
    dir: str = _setting("", "run directory: the hook's files, attempts, control files; shared with the trainer")
    logs: tuple[str, ...] = _setting((), "globs of the trainer's log files")
    log_format: str = _setting("auto", "grammar of the log", choices=("auto", "megatron", "huggingface", "nanogpt"))
    log_timezone: str = _setting("UTC", "time zone of log times that name none")
    checkpoints: tuple[str, ...] = _setting((), "directories that hold the run's checkpoints")
    steps_from: str = _setting(
        "auto", "the one source of steps; auto = the hook's file if there is one", choices=("auto", "hook", "log")
    )
    gpus: int = _setting(0, "GPUs of the run, 0 = not said; used for GPU-hours")
    total_steps: int = _setting(0, "planned number of steps, 0 = not said; used for the time left")
    checkpoint_every_steps: int = _setting(0, "planned steps between checkpoints, 0 = learnt")
    breaker: str = _setting("dry-run", "circuit breaker of this run", choices=("off", "dry-run", "armed"))


@dataclass(frozen=True)
class BreakerSettings:
    """``[breaker]``: when an armed breaker pauses. Defaults and evidence: docs/detection.md."""

    nonfinite_in_a_row: int = _setting(3, "non-finite points in a row that trip")
    points: int = _setting(100, "points of an open loss incident, at or above share_of_peak of its peak, that trip")
    lost_progress: float = _setting(0.02, "a point counts when it is this share of (initial loss - level) above the level")
    share_of_peak: float = _setting(0.30, "... and at least this share of the incident's own peak")
    quiet_start_points: int = _setting(200, "never trips in this many points after a start or a resume (non-finite excepted)")
    cool_down_points: int = _setting(500, "disarmed for this many points after a person paused or resumed")
    pauses_per_day: int = _setting(2, "automatic pauses in 24 h; after that it only alerts")


@dataclass(frozen=True)
class WatchSettings:
    """``[watch]``"""

    poll_s: float = _setting(0.5, "seconds between two looks at the files of a run")
    checkpoint_scan_s: float = _setting(10.0, "seconds between two scans of the checkpoint directories")
    checkpoint_settle_s: float = _setting(10.0, "seconds that a checkpoint must stand still before anything bad is said of it")
    checkpoint_unfinished_s: float = _setting(30.0, "the same for the newest one, which a trainer may write with long pauses")
    heartbeat_s: float = _setting(2.0, "seconds between two heartbeats of the watchdog")


@dataclass(frozen=True)
class GpuSettings:
    """``[gpu]``"""

    enabled: bool = _setting(True, "collect GPU health of this machine through NVML")
    period_s: float = _setting(10.0, "seconds between two samples")
    deadline_s: float = _setting(8.0, "a poll that takes longer is called unresponsive")


@dataclass(frozen=True)
class RetentionSettings:
    """``[retention]``: days that rows are kept, 0 = for ever. Details: docs/rollups.md."""

    hardware_days: int = _setting(14, "days that rows of gpu, node and heartbeat are kept as they were sampled, 0 = for ever")
    node_10m_days: int = _setting(0, "days that the 10-minute summaries of nodes are kept, 0 = for ever")
    train_days: int = _setting(0, "days that single training steps are kept (their roll-ups stay), 0 = for ever")
    train_rollup_days: int = _setting(0, "days that the 1-minute, 10-minute and 1-hour roll-ups of steps are kept, 0 = for ever")
    event_days: int = _setting(0, "days that events are kept, 0 = for ever")


@dataclass(frozen=True)
class DashboardSettings:
    """``[dashboard]``"""

    port: int = _setting(8501, "port of the web server; it listens on 127.0.0.1 only")
    public_url: str = _setting("", "address under which people reach the dashboard; used in links")
    wiki_origins: tuple[str, ...] = _setting((), "origins that may embed the wall page")
    refresh_s: float = _setting(2.0, "seconds between two refreshes of the pages")


@dataclass(frozen=True)
class SpoolSettings:
    """``[spool]``: what waits on this machine's disk for a store on another machine; the embedded store needs none."""

    dir: str = _setting("", "directory of the spool files, on a local disk; empty = the default place of this user")
    max_bytes: int = _setting(
        256 * 1024 * 1024, "bytes that one spool holds; beyond it the oldest points are dropped and counted"
    )
    max_age_s: float = _setting(7 * 86_400.0, "seconds that a point waits; older ones are dropped and counted")
    max_dead_letters: int = _setting(10_000, "refused points that are kept; beyond it the oldest are dropped and counted")


@dataclass(frozen=True)
class InfluxdbSettings:
    """``[influxdb]``: how to talk to the server that ``store`` names. Secrets stand in files or in the environment only
    (TRAINVITALS_INFLUXDB_TOKEN, TRAINVITALS_INFLUXDB_PASSWORD)."""

    token_file: str = _setting("", "file that holds the token (2.x, 3, Cloud); read again when the server refuses it")
    user: str = _setting("", "user of a 1.x server with auth-enabled")
    password_file: str = _setting("", "file that holds the user's password")
    org: str = _setting("", "organization of a 2.x server")
    database: str = _setting("health", "database or bucket of hardware samples, kept for days")
    database_long: str = _setting("health_long", "database or bucket of training, roll-ups and events, kept for good")
    timeout_s: float = _setting(30.0, "seconds that one request may take")
    verify: bool = _setting(True, "check the server's certificate")
    ca_file: str = _setting("", "certificates to check it with, empty = those of this system")
    compress: bool = _setting(False, "compress what is written (gzip), for servers far away")
    write_path: str = _setting(
        "auto", "v1 = /write, v2 = /api/v2/write, auto = by the server's version", choices=("auto", "v1", "v2")
    )


@dataclass(frozen=True)
class Settings:
    """Everything, checked. ``detect`` holds only what differs from ``trainvitals.detect.tunables``."""

    store: str = _setting("", "sqlite:///path/to/file.db or influxdb+https://host:8086; empty = the default place of this user")
    runs: tuple[RunSettings, ...] = ()
    detect: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    gpu: GpuSettings = field(default_factory=GpuSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    influxdb: InfluxdbSettings = field(default_factory=InfluxdbSettings)
    path: str = ""

    @property
    def spool_directory(self) -> Path:
        """Where the spool files lie; a relative ``[spool] dir`` counts from the settings file's own directory."""
        if not self.spool.dir:
            return default_directory() / "spool"
        base = Path(self.path).resolve().parent if self.path else Path.cwd()
        return base / Path(self.spool.dir).expanduser()

    def run(self, name: str) -> RunSettings:
        """The run of that name, or a ``SettingsError`` that lists the known ones."""
        for run in self.runs:
            if run.name == name:
                return run
        known = ", ".join(run.name for run in self.runs) or "none"
        raise SettingsError(f"No run {name!r} in {self.path or 'the settings'}; known runs: {known}.")


SECTIONS: Mapping[str, type] = {
    "breaker": BreakerSettings,
    "watch": WatchSettings,
    "gpu": GpuSettings,
    "retention": RetentionSettings,
    "dashboard": DashboardSettings,
    "spool": SpoolSettings,
    "influxdb": InfluxdbSettings,
}


def default_directory() -> Path:
    """``/var/lib/trainvitals`` for root, the user's state directory otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/trainvitals")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "trainvitals"


def default_store() -> str:
    """The embedded store in the default directory."""
    return f"sqlite://{default_directory()}/trainvitals.db"


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (or ``TRAINVITALS_CONFIG``, or ``./trainvitals.toml`` if there is one), then the environment.

    Raises ``SettingsError`` naming file, key and what to do.
    """
    env = os.environ if environ is None else environ
    chosen = path or env.get(CONFIG_VARIABLE)
    if chosen is None and Path("trainvitals.toml").is_file():
        chosen = "trainvitals.toml"
    raw: dict[str, Any] = {}
    if chosen is not None:
        try:
            with Path(chosen).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise SettingsError(f"{chosen} is no settings file: it is larger than {MAX_FILE_BYTES} bytes.")
            raw = tomllib.loads(content.decode("utf-8"))
        except OSError as error:
            raise SettingsError(f"Cannot read the settings file {chosen}: {error.strerror or error}.") from error
        except (ValueError, RecursionError) as error:  # also a number with thousands of digits
            raise SettingsError(f"{chosen} is not valid TOML: {error}.") from error
    return _with_environment(parse(raw, str(chosen or "")), env)


def parse(raw: Mapping[str, Any], path: str = "") -> Settings:
    """Check a parsed TOML document. Relative paths count from the settings file's own directory."""
    where = path or "settings"
    base = Path(path).resolve().parent if path else Path.cwd()
    known = ["store", "runs", "detect", *SECTIONS]
    for key in raw:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}.{_nearest(key, known)}")
    runs = raw.get("runs", [])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise SettingsError(f"{where}: runs must be written as [[runs]] tables.")
    parsed_runs = tuple(_run(table, f"{where}, [[runs]] number {number}", base) for number, table in enumerate(runs, 1))
    names = [run.name for run in parsed_runs]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{where}: two runs are named {name!r}; give each its own name.")
    sections = {}
    for name, section in SECTIONS.items():
        table = raw.get(name, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: {name} must be a [{name}] table.")
        sections[name] = _table(section, table, f"{where}, [{name}]")
    store = raw.get("store", "")
    if not isinstance(store, str):
        raise SettingsError(f'{where}: store must be text such as "sqlite:///var/lib/trainvitals/trainvitals.db".')
    return Settings(
        store=store or default_store(), runs=parsed_runs, detect=_detect(raw.get("detect", {}), where), path=path, **sections
    )


def _run(table: Mapping[str, Any], where: str, base: Path) -> RunSettings:
    run: RunSettings = _table(RunSettings, table, where)
    if not run.name or len(run.name) > 200 or not run.name.isprintable():
        raise SettingsError(
            f"{where}: name is missing or holds control characters; give the run a printable name of at most 200 characters."
        )
    if not run.dir:
        raise SettingsError(f"{where}: dir is missing; name the run directory that trainer and watchdog share.")
    try:
        ZoneInfo(run.log_timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(
            f'{where}: log_timezone {run.log_timezone!r} is not a known time zone; write for example "Asia/Shanghai".'
        ) from error

    def absolute(text: str) -> str:
        if "\0" in text:
            raise SettingsError(f"{where}: the path {text!r} holds a NUL character, which no file system takes.")
        try:
            return str(base / Path(text).expanduser())
        except RuntimeError as error:
            raise SettingsError(f"{where}: the home directory in {text!r} is not known; write the path in full.") from error

    return replace(
        run, dir=absolute(run.dir), logs=tuple(map(absolute, run.logs)), checkpoints=tuple(map(absolute, run.checkpoints))
    )


def _table(section: type, table: Mapping[str, Any], where: str) -> Any:
    known = {f.name: f for f in fields(section)}
    values = {}
    for key, value in table.items():
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}.{_nearest(key, list(known))}")
        values[key] = _value(known[key], value, f"{where}: {key}")
    return section(**values)


def _value(declared: Any, value: Any, where: str) -> Any:
    default = declared.default_factory() if callable(declared.default_factory) else declared.default
    if isinstance(default, bool):
        ok, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        ok, wanted = isinstance(value, int) and not isinstance(value, bool) and value >= 0, "a whole number, 0 or more"
    elif isinstance(default, float):
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
        wanted = "a number above 0"
    elif isinstance(default, tuple):
        ok, wanted = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value), "a list of texts"
        value = tuple(value) if ok else value
    else:
        ok, wanted = isinstance(value, str), "text"
    if ok and isinstance(default, int) and not isinstance(default, bool):
        most = MAX_PORT if declared.name == "port" else MAX_WHOLE
        ok, wanted = value <= most, f"a whole number from 0 to {most}"
    elif ok and isinstance(default, float) and declared.name.endswith("_s"):
        ok, wanted = SECONDS[0] <= value <= SECONDS[1], f"a number of seconds from {SECONDS[0]:g} to {SECONDS[1]:.0f}"
    choices = declared.metadata.get("choices") or ()
    if ok and choices and value not in choices:
        ok, wanted = False, "one of " + ", ".join(choices)
    if not ok:
        raise SettingsError(f"{where} must be {wanted}, not {value!r}.")
    return float(value) if isinstance(default, float) else value


def _detect(table: Any, where: str) -> Mapping[str, Mapping[str, float]]:
    if not isinstance(table, dict):
        raise SettingsError(f"{where}: detect must be [detect.RULE] tables.")
    for rule, tuned in table.items():
        if rule not in TUNABLES:
            raise SettingsError(f"{where}: unknown rule [detect.{rule}].{_nearest(rule, list(TUNABLES))}")
        if not isinstance(tuned, dict):
            raise SettingsError(f"{where}: detect.{rule} must be a [detect.{rule}] table.")
        for key, value in tuned.items():
            if key not in TUNABLES[rule]:
                raise SettingsError(f"{where}, [detect.{rule}]: unknown key {key!r}.{_nearest(key, list(TUNABLES[rule]))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise SettingsError(f"{where}, [detect.{rule}]: {key} must be a number, 0 or more, not {value!r}.")
    return {rule: {key: float(value) for key, value in tuned.items()} for rule, tuned in table.items()}


def _nearest(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known))}."


def _with_environment(settings: Settings, env: Mapping[str, str]) -> Settings:
    """TRAINVITALS_STORE, TRAINVITALS_BREAKER_POINTS, …: one variable per key that is not inside a list."""
    if env.get(ENVIRONMENT_PREFIX + "STORE"):
        settings = replace(settings, store=env[ENVIRONMENT_PREFIX + "STORE"])
    for name, section in SECTIONS.items():
        changed = {}
        for declared in fields(section):
            variable = f"{ENVIRONMENT_PREFIX}{name}_{declared.name}".upper()
            if variable in env:
                changed[declared.name] = _value(declared, _from_text(declared, env[variable]), variable)
        if changed:
            settings = replace(settings, **{name: replace(getattr(settings, name), **changed)})
    return settings


def _from_text(declared: Any, text: str) -> Any:
    default = declared.default_factory() if callable(declared.default_factory) else declared.default
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if isinstance(default, tuple):
        return tuple(part for part in text.split(",") if part)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return text
