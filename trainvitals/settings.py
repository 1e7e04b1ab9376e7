"""One settings file, ``trainvitals.toml``; each key also as ``TRAINVITALS_…``. Unknown keys are errors with the nearest known key.

``trainvitals.settings_sections`` holds the only list of settings: the loader and the documentation read it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.detect.tunables import TUNABLES
from trainvitals.errors import SettingsError
from trainvitals.logs.registry import FORMATS, home_made_grammars
from trainvitals.settings_alerts import TARGET_NAME, AlertmanagerSettings, AlertSettings, TargetSettings
from trainvitals.settings_field import from_text, nearest, read_table, read_value, setting
from trainvitals.settings_sections import (
    SECTIONS,
    AccessSettings,
    BreakerSettings,
    DashboardSettings,
    FormatSettings,
    GpuSettings,
    IncidentSettings,
    InfluxdbSettings,
    LoginSettings,
    LogSettings,
    RequestSettings,
    RetentionSettings,
    RunSettings,
    SpoolSettings,
    SupervisorSettings,
    WatchSettings,
)

__all__ = [
    "SECTIONS", "AccessSettings", "AlertSettings", "AlertmanagerSettings", "BreakerSettings", "DashboardSettings", "FormatSettings", "GpuSettings", "InfluxdbSettings", "LogSettings", "LoginSettings",
    "RequestSettings",
    "RetentionSettings", "RunSettings", "Settings", "SpoolSettings", "SupervisorSettings", "TargetSettings", "WatchSettings", "default_directory",
    "default_store",
    "load", "parse",
]  # fmt: skip

_FORMAT_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)
ENVIRONMENT_PREFIX = "TRAINVITALS_"
CONFIG_VARIABLE = "TRAINVITALS_CONFIG"
MAX_FILE_BYTES = 1 << 20
LEAST_SENSITIVITY = 0.01


@dataclass(frozen=True)
class Settings:
    """Everything, checked. ``detect`` holds only what differs from ``trainvitals.detect.tunables``."""

    store: str = setting("", "sqlite:///path/to/file.db or influxdb+https://host:8086; empty = the default place of this user")
    runs: tuple[RunSettings, ...] = ()
    detect: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    access: Mapping[str, AccessSettings] = field(default_factory=dict)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    alertmanager: AlertmanagerSettings = field(default_factory=AlertmanagerSettings)
    alert_targets: Mapping[str, TargetSettings] = field(default_factory=dict)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    formats: Mapping[str, FormatSettings] = field(default_factory=dict)
    gpu: GpuSettings = field(default_factory=GpuSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    login: LoginSettings = field(default_factory=LoginSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    influxdb: InfluxdbSettings = field(default_factory=InfluxdbSettings)
    requests: RequestSettings = field(default_factory=RequestSettings)
    path: str = ""

    @property
    def spool_directory(self) -> Path:
        """Where the spool files lie; a relative ``[spool] dir`` counts from the settings file's own directory."""
        return self.resolve(self.spool.dir) if self.spool.dir else default_directory() / "spool"

    @property
    def outbox_path(self) -> Path:
        """The file of what is still to be told. Like the spool it belongs to one user on one machine."""
        return self.resolve(self.alerts.outbox) if self.alerts.outbox else default_directory() / "alerts.db"

    def resolve(self, path: str) -> Path:
        """A path of the settings: a relative one counts from the settings file's own directory."""
        base = Path(self.path).resolve().parent if self.path else Path.cwd()
        return base / Path(path).expanduser()

    def run(self, name: str) -> RunSettings:
        """The run of that name, or a ``SettingsError`` that lists the known ones."""
        for run in self.runs:
            if run.name == name:
                return run
        known = ", ".join(run.name for run in self.runs) or "none"
        raise SettingsError(f"No run {name!r} in {self.path or 'the settings'}; known runs: {known}.")


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
    chosen = path or env.get(CONFIG_VARIABLE) or None
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
    known = ["store", "runs", "detect", "formats", "access", *SECTIONS]
    for key in raw:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}.{nearest(key, known)}")
    runs = raw.get("runs", [])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise SettingsError(f"{where}: runs must be written as [[runs]] tables.")
    parsed_runs = tuple(_run(table, f"{where}, [[runs]] number {number}", base) for number, table in enumerate(runs, 1))
    names = [run.name for run in parsed_runs]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{where}: two runs are named {name!r}; give each its own name.")
    formats = _formats(raw.get("formats", {}), where)
    for run in parsed_runs:
        if run.log_format not in (*FORMATS, *formats):
            raise SettingsError(
                f"{where}: log_format {run.log_format!r} of run {run.name!r} is no format.{nearest(run.log_format, [*FORMATS, *formats])}"
            )
    sections = {}
    for name, section in SECTIONS.items():
        table = raw.get(name, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{where}: {name} must be a [{name}] table.")
        if name == "alerts":
            table = {key: value for key, value in table.items() if key != "targets"}
        sections[name] = read_table(section, table, f"{where}, [{name}]")
    store = raw.get("store", "")
    if not isinstance(store, str):
        raise SettingsError(f'{where}: store must be text such as "sqlite:///var/lib/trainvitals/trainvitals.db".')
    return Settings(
        store=store or default_store(), runs=parsed_runs, detect=_detect(raw.get("detect", {}), where), formats=formats,
        access=_access(raw.get("access", {}), where), path=path,
        alert_targets=_alert_targets(raw.get("alerts", {}).get("targets", {}), where), **sections,
    )  # fmt: skip


def _run(table: Mapping[str, Any], where: str, base: Path) -> RunSettings:
    run: RunSettings = read_table(RunSettings, table, where)
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

    trouble = run.lr_schedule.trouble(run.lr_schedule.total_steps or run.total_steps)
    if trouble:
        raise SettingsError(f"{where}: lr_schedule: {trouble}")

    if run.control == "kill_switch" and not run.kill_switch_path:
        raise SettingsError(f'{where}: control = "kill_switch" needs kill_switch_path, the file that the trainer looks for.')

    def absolute(text: str) -> str:
        if "\0" in text:
            raise SettingsError(f"{where}: the path {text!r} holds a NUL character, which no file system takes.")
        try:
            return str(base / Path(text).expanduser())
        except RuntimeError as error:
            raise SettingsError(f"{where}: the home directory in {text!r} is not known; write the path in full.") from error

    return replace(
        run,
        dir=absolute(run.dir),
        logs=tuple(map(absolute, run.logs)),
        rank_logs=tuple(map(absolute, run.rank_logs)),
        checkpoints=tuple(map(absolute, run.checkpoints)),
        kill_switch_path=absolute(run.kill_switch_path) if run.kill_switch_path else "",
        signal_pid_file=absolute(run.signal_pid_file) if run.signal_pid_file else "",
    )


def _formats(tables: Any, where: str) -> Mapping[str, FormatSettings]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{where}: formats must be [formats.NAME] tables.")
    for name in tables:
        if name in FORMATS:
            raise SettingsError(f"{where}: [formats.{name}] has the name of a built-in format; choose another.")
        if not _FORMAT_NAME.fullmatch(name):
            raise SettingsError(
                f"{where}: {name[:60]!r} is no name for a format; write [formats.NAME] with letters, digits, '-' and '_'."
            )
    formats = {name: read_table(FormatSettings, table, f"{where}, [formats.{name}]") for name, table in tables.items()}
    try:
        home_made_grammars(formats)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error
    return formats


def _access(table: Any, where: str) -> Mapping[str, AccessSettings]:
    """Pattern of run names -> who may do what."""
    if not isinstance(table, dict) or not all(isinstance(rules, dict) for rules in table.values()):
        raise SettingsError(f'{where}: access must be written as [access.runs."PATTERN"] tables.')
    for key in table:
        if key != "runs":
            raise SettingsError(f"{where}, [access]: unknown key {key!r}.{nearest(key, ['runs'])}")
    found = {}
    for pattern, rule in table.get("runs", {}).items():
        place = f'{where}, [access.runs."{pattern[:60]}"]'
        if not isinstance(rule, dict) or not pattern or len(pattern) > 200 or not pattern.isprintable():
            raise SettingsError(f"{place} must be a table under a pattern of run names, of at most 200 printable characters.")
        found[pattern] = access = read_table(AccessSettings, rule, place)
        for name in (*access.operators, *access.viewers):
            if name != name.strip() or not name or not name.isprintable():
                raise SettingsError(
                    f"{place}: {name[:60]!r} is no name; write it as the person types it, without space around it."
                )
    return found


def _alert_targets(tables: Any, where: str) -> Mapping[str, TargetSettings]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{where}: targets must be written as [alerts.targets.NAME] tables.")
    for name in tables:
        if not TARGET_NAME.fullmatch(name):
            raise SettingsError(
                f"{where}: {name[:60]!r} is no name for a target; write [alerts.targets.NAME] with letters, digits, '-' and '_'."
            )
    targets = {name: read_table(TargetSettings, table, f"{where}, [alerts.targets.{name}]") for name, table in tables.items()}
    _check_targets(targets, where)
    return targets


def _check_targets(targets: Mapping[str, TargetSettings], where: str) -> None:
    variables: dict[str, str] = {}
    for name, target in targets.items():
        if trouble := target.trouble(name, targets):
            raise SettingsError(f"{where}, [alerts.targets.{name}]: {trouble}")
        other = variables.setdefault(target_variable(name, ""), name)
        if other != name:
            raise SettingsError(
                f"{where}: the targets {other!r} and {name!r} would share their environment variables; rename one."
            )


def target_variable(name: str, key: str) -> str:
    """The environment variable of a target's key: TRAINVITALS_ALERTS_TARGETS_NAME_KEY, with "_" for each "-"."""
    return f"{ENVIRONMENT_PREFIX}ALERTS_TARGETS_{name}_{key}".upper().replace("-", "_")


def _detect(table: Any, where: str) -> Mapping[str, Mapping[str, float]]:
    if not isinstance(table, dict):
        raise SettingsError(f"{where}: detect must be [detect.RULE] tables.")
    for rule, tuned in table.items():
        if rule not in TUNABLES:
            raise SettingsError(f"{where}: unknown rule [detect.{rule}].{nearest(rule, list(TUNABLES))}")
        if not isinstance(tuned, dict):
            raise SettingsError(f"{where}: detect.{rule} must be a [detect.{rule}] table.")
        for key, value in tuned.items():
            if key not in TUNABLES[rule]:
                raise SettingsError(f"{where}, [detect.{rule}]: unknown key {key!r}.{nearest(key, list(TUNABLES[rule]))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise SettingsError(f"{where}, [detect.{rule}]: {key} must be a number, 0 or more, not {value!r}.")
            if key == "sensitivity" and not value >= LEAST_SENSITIVITY:
                raise SettingsError(
                    f"{where}, [detect.{rule}]: sensitivity must be {LEAST_SENSITIVITY:g} or more (1 is usual, 0.5 half as sensitive), not "
                    f"{value!r}. It switches no rule off: to be told nothing of one, python -m trainvitals incident silence "
                    f"RUN_DIR --rule {rule} --for 30d; to have nothing found: python -m trainvitals annotate RUN_DIR --rules {rule} --points N."
                )
    return {rule: {key: float(value) for key, value in tuned.items()} for rule, tuned in table.items()}


def _with_environment(settings: Settings, env: Mapping[str, str]) -> Settings:
    """TRAINVITALS_STORE, TRAINVITALS_BREAKER_POINTS, …: one variable per key that is not inside a list."""
    if env.get(ENVIRONMENT_PREFIX + "STORE"):
        settings = replace(settings, store=env[ENVIRONMENT_PREFIX + "STORE"])
    for name, section in SECTIONS.items():
        changed = {}
        for declared in fields(section):
            variable = f"{ENVIRONMENT_PREFIX}{name}_{declared.name}".upper()
            if variable in env:
                changed[declared.name] = read_value(declared, from_text(declared, env[variable]), variable)
        if changed:
            settings = replace(settings, **{name: replace(getattr(settings, name), **changed)})
    targets = {name: _target_with_environment(name, target, env) for name, target in settings.alert_targets.items()}
    _check_targets(targets, settings.path or "settings")
    return replace(settings, alert_targets=targets)


def _target_with_environment(name: str, target: TargetSettings, env: Mapping[str, str]) -> TargetSettings:
    changed = {}
    for declared in fields(TargetSettings):
        variable = target_variable(name, declared.name)
        if variable in env:
            changed[declared.name] = read_value(declared, from_text(declared, env[variable]), variable)
    if "url" in changed:
        changed["url_file"] = ""
    return replace(target, **changed)
