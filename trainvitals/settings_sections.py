"""The tables of settings: each key with its default, its help and its choices. ``trainvitals.settings`` reads files into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trainvitals.settings_alerts import AlertmanagerSettings, AlertSettings
from trainvitals.settings_field import setting


@dataclass(frozen=True)
class LrScheduleSettings:
    """``lr_schedule = {...}`` of a ``[[runs]]`` table: what the learning rate is meant to do. Steps are optimizer steps."""

    kind: str = setting(
        "", "what follows the warm-up; empty = not declared", choices=("", "constant", "linear", "cosine", "wsd", "inverse_sqrt")
    )
    peak: float = setting(0.0, "learning rate at the end of the warm-up")
    min_lr: float = setting(0.0, "learning rate at the end")
    warmup_steps: int = setting(0, "steps of the linear warm-up from 0")
    total_steps: int = setting(0, "step at which min_lr is reached; 0 = total_steps of the run")
    decay_steps: int = setting(0, "wsd: steps of its linear end, the last ones of total_steps")

    def trouble(self, total_steps: int) -> str:
        """What is wrong with it and what to do, "" = nothing. ``total_steps``: those in force."""
        if not self.kind:
            return "" if self == LrScheduleSettings() else "kind is missing: constant, linear, cosine, wsd or inverse_sqrt."
        if self.peak <= self.min_lr:
            return f"peak must be above min_lr ({self.min_lr:g}), not {self.peak:g}."
        if self.kind in ("linear", "cosine", "wsd") and total_steps <= self.warmup_steps:
            return f"total_steps must be more than warmup_steps ({self.warmup_steps}), not {total_steps}."
        if self.kind == "wsd" and not 0 < self.decay_steps <= total_steps - self.warmup_steps:
            return f"decay_steps must be from 1 to {total_steps - self.warmup_steps}, what the warm-up leaves of total_steps."
        return ""


@dataclass(frozen=True)
class RunSettings:
    """One ``[[runs]]`` table."""

    name: str = setting("", "name of the run, as shown and stored")
    dir: str = setting("", "run directory: the hook's files, attempts, control files; shared with the trainer")
    logs: tuple[str, ...] = setting((), "globs of the trainer's log files")
    rank_logs: tuple[str, ...] = setting(
        (), "globs of logs that are only read when the trainer died: stderr of each rank, torchrun's log directory"
    )
    log_format: str = setting("auto", "grammar of the log: auto, a name of docs/formats.md, or that of a [formats.NAME] table")
    log_timezone: str = setting("UTC", "time zone of log times that name none")
    checkpoints: tuple[str, ...] = setting((), "directories that hold the run's checkpoints")
    steps_from: str = setting(
        "auto", "the one source of steps; auto = the hook's file if there is one", choices=("auto", "hook", "log")
    )
    gpus: int = setting(0, "GPUs of the run, 0 = not said; used for GPU-hours")
    gpu_hour_price: float = setting(0.0, "price of one GPU-hour in your currency, 0 = not said; used for what a pause costs")
    total_steps: int = setting(0, "planned number of steps, 0 = not said; used for the time left")
    checkpoint_every_steps: int = setting(0, "planned steps between checkpoints, 0 = learnt")
    lr_schedule: LrScheduleSettings = field(
        default_factory=LrScheduleSettings,
        metadata={"help": "what the learning rate is meant to do, where the trainer does not tell it: see below", "choices": ()},
    )
    breaker: str = setting("dry-run", "circuit breaker of this run", choices=("off", "dry-run", "armed"))
    control: str = setting(
        "hook", "who carries out a pause or a stop: the trainer's control client, or watch in the trainer's own way: control.md",
        choices=("hook", "kill_switch", "signal"),
    )  # fmt: skip
    kill_switch_path: str = setting("", "control = kill_switch: the file whose existence makes the trainer save and end")
    signal: str = setting("TERM", "control = signal: what makes the trainer save and end", choices=("TERM", "USR1"))
    signal_pid_file: str = setting(
        "",
        "control = signal: file that holds the trainer's process id (and the host's name behind a space); empty = the process that the hook's file names",
    )
    save_on_pause: str = setting(
        "auto", "whether a pause saves; auto = not when that could rotate out the safe checkpoint of an open loss incident",
        choices=("auto", "always", "never"),
    )  # fmt: skip
    control_road: str = setting(
        "files", "how the dashboard asks: files = in the run directory, which it shares; store = signed, through the store ([requests])",
        choices=("files", "store"),
    )  # fmt: skip
    resume_command: str = setting(
        "", "shell command that starts the trainer from a checkpoint, with {checkpoint} and {step} written bare; shown, never run"
    )


@dataclass(frozen=True)
class AccessSettings:
    """One ``[access.runs."PATTERN"]`` table: who may act on the runs of that name. Details: docs/control.md."""

    operators: tuple[str, ...] = setting((), 'names of those who may act on the run; "*" = everybody')
    viewers: tuple[str, ...] = setting((), "names of those who may only look; empty = everybody else")


@dataclass(frozen=True)
class BreakerSettings:
    """``[breaker]``: when an armed breaker pauses. Defaults and evidence: docs/detection.md."""

    nonfinite_in_a_row: int = setting(3, "non-finite points in a row that trip")
    points: int = setting(100, "points of an open loss incident, at or above share_of_peak of its peak, that trip")
    lost_progress: float = setting(0.02, "a point counts when it is this share of (initial loss - level) above the level")
    share_of_peak: float = setting(0.30, "... and at least this share of the incident's own peak")
    quiet_start_points: int = setting(200, "never trips in this many points after a start or a resume (non-finite excepted)")
    cool_down_points: int = setting(500, "disarmed for this many points after a person paused or resumed")
    pauses_per_day: int = setting(2, "automatic pauses in 24 h; after that it only alerts")
    anomalous_in_a_row: int = setting(
        10, "anomalous points in a row (not a number, or a hot point of loss_spike) for anomalous_action"
    )
    anomalous_action: str = setting(
        "alert",
        "what they do; pause would have stopped 19 of 22 real runs that healed by themselves",
        choices=("off", "alert", "pause"),
    )


@dataclass(frozen=True)
class FormatSettings:
    """One ``[formats.NAME]`` table: the log of a home-made trainer. Details: docs/formats.md."""

    pattern: str = setting("", "regular expression (RE2) of a step's line; named groups: step, loss, any other metric")


@dataclass(frozen=True)
class IncidentSettings:
    """``[incidents]``: when what happens to an incident is told, and what is kept of it. Details: docs/incidents.md."""

    mend_s: float = setting(
        600.0,
        "seconds that one phase of a supervisor's restart has, or twice its usual time, before anybody is told of the death; 0 = none",
        may_be_zero=True,
    )
    mend_max_s: float = setting(
        3600.0, "seconds without a step after which a death or a hang is told whatever the supervisor says"
    )
    end_s: float = setting(120.0, "seconds that an end must last before it is told; each return of the trouble doubles them")
    pages_kept: int = setting(100, "closed incidents whose pages are kept in the run directory")


@dataclass(frozen=True)
class LogSettings:
    """``[logs]``: what is read and kept of the logs when a trainer died."""

    tail_bytes: int = setting(256 * 1024, "bytes read from the end of each log when the trainer died")
    kept_bytes: int = setting(64 * 1024 * 1024, "bytes of such ends that are kept per attempt, those of the likely causes first")
    kept_attempts: int = setting(20, "attempts whose ends are kept; older ones are deleted")


@dataclass(frozen=True)
class WatchSettings:
    """``[watch]``"""

    poll_s: float = setting(0.5, "seconds between two looks at the files of a run")
    checkpoint_scan_s: float = setting(10.0, "seconds between two scans of the checkpoint directories")
    checkpoint_settle_s: float = setting(10.0, "seconds that a checkpoint must stand still before anything bad is said of it")
    checkpoint_unfinished_s: float = setting(
        30.0, "the least for the newest one, which a trainer may write with long pauses; slow steps make it longer"
    )
    checkpoint_content: str = setting(
        "all", "checkpoints whose every byte is read and compared (level content)", choices=("all", "newest", "off")
    )
    checkpoint_mb_per_s: float = setting(
        200.0, "MB/s read for that, except of the newest, which is read at once; 0 = no limit", may_be_zero=True
    )
    checkpoint_load: str = setting(
        "newest", "checkpoints that are loaded in a child process (level load)", choices=("newest", "off")
    )
    checkpoint_recheck_days: float = setting(7.0, "days after which the content is compared again, 0 = never", may_be_zero=True)
    heartbeat_s: float = setting(2.0, "seconds between two heartbeats of the watchdog")
    pin_safe_checkpoint: bool = setting(True, "keep the safe checkpoint from the trainer's deletion while an incident is open")
    pin_keep_hours: float = setting(6.0, "hours that it is kept after the incident has closed, unless a newer one is safe")
    pin_copy_max_bytes: int = setting(
        20 * 2**30, "bytes that may be copied for it where hard links do not help (another file system, one name for all saves)"
    )


@dataclass(frozen=True)
class GpuSettings:
    """``[gpu]``"""

    enabled: bool = setting(True, "collect GPU health of this machine through NVML")
    period_s: float = setting(10.0, "seconds between two samples")
    deadline_s: float = setting(8.0, "a poll that takes longer is called unresponsive")
    expected: int = setting(0, "GPUs of each machine: fewer are a fault, also after a reboot. 0 = as many as were seen")


@dataclass(frozen=True)
class RetentionSettings:
    """``[retention]``: days that rows are kept, 0 = for ever. Details: docs/rollups.md."""

    hardware_days: int = setting(
        14, "days that rows of gpu, node, heartbeat and control are kept as they were sampled, 0 = for ever"
    )
    node_10m_days: int = setting(0, "days that the 10-minute summaries of nodes are kept, 0 = for ever")
    train_days: int = setting(0, "days that single training steps are kept (their roll-ups stay), 0 = for ever")
    train_rollup_days: int = setting(0, "days that the 1-minute, 10-minute and 1-hour roll-ups of steps are kept, 0 = for ever")
    event_days: int = setting(0, "days that events are kept, 0 = for ever")


@dataclass(frozen=True)
class DashboardSettings:
    """``[dashboard]``"""

    port: int = setting(8501, "port of the web server")
    address: str = setting("127.0.0.1", "address that the web server listens on; another one needs mode proxy or oidc in [login]")
    public_url: str = setting("", "address under which people reach the dashboard, with its path behind a proxy; used in links")
    wiki_origins: tuple[str, ...] = setting(
        (), "origins that may frame the wall: https://wiki.example.org, or https://*.example.org; docs/embedding.md"
    )
    wall_key_file: str = setting(
        "", "file with the secret that signs links to the wall; empty = wall.key in this user's directory"
    )
    refresh_s: float = setting(2.0, "seconds between two refreshes of the pages")


@dataclass(frozen=True)
class LoginSettings:
    """``[login]``: how the dashboard knows who looks at it. Who may act is said by ``[access.runs]``. Details: docs/access.md."""

    mode: str = setting(
        "local",
        "local = this machine only, names are typed; proxy = a reverse proxy logs in and names the person in a header; oidc = log in "
        "with the company's identity provider",
        choices=("local", "proxy", "oidc"),
    )
    proxy_addresses: tuple[str, ...] = setting(
        (), "proxy: addresses or networks of the proxies; requests from elsewhere are refused"
    )
    identity_header: str = setting(
        "X-Forwarded-User", "proxy: header that names the person; the proxy must overwrite a visitor's own"
    )
    proxy_secret_file: str = setting(
        "", "proxy: file with a secret that the proxy sends in X-Trainvitals-Proxy; for proxies on a machine that others use, too"
    )
    oidc_claim: str = setting("email", "oidc: claim that names the person")
    hosts: tuple[str, ...] = setting((), "proxy, oidc: further names under which people reach the dashboard, beside public_url")


@dataclass(frozen=True)
class SpoolSettings:
    """``[spool]``: what waits on this machine's disk for a store on another machine; the embedded store needs none."""

    dir: str = setting("", "directory of the spool files, on a local disk; empty = the default place of this user")
    max_bytes: int = setting(256 * 1024 * 1024, "bytes that one spool holds; beyond it the oldest points are dropped and counted")
    max_age_s: float = setting(7 * 86_400.0, "seconds that a point waits; older ones are dropped and counted")
    max_dead_letters: int = setting(10_000, "refused points that are kept; beyond it the oldest are dropped and counted")


@dataclass(frozen=True)
class InfluxdbSettings:
    """``[influxdb]``: how to talk to the server that ``store`` names. Secrets stand in files or in the environment only
    (TRAINVITALS_INFLUXDB_TOKEN, TRAINVITALS_INFLUXDB_PASSWORD)."""

    token_file: str = setting("", "file that holds the token (2.x, 3, Cloud); read again when the server refuses it")
    user: str = setting("", "user of a 1.x server with auth-enabled")
    password_file: str = setting("", "file that holds the user's password")
    org: str = setting("", "organization of a 2.x server")
    database: str = setting("health", "database or bucket of hardware samples, kept for days")
    database_long: str = setting("health_long", "database or bucket of training, roll-ups and events, kept for good")
    database_requests: str = setting(
        "health_requests", "database or bucket of signed requests: only the dashboard may write it, only watch may read it"
    )
    timeout_s: float = setting(30.0, "seconds that one request may take")
    verify: bool = setting(True, "check the server's certificate")
    ca_file: str = setting("", "certificates to check it with, empty = those of this system")
    compress: bool = setting(False, "compress what is written (gzip), for servers far away")
    write_path: str = setting(
        "auto", "v1 = /write, v2 = /api/v2/write, auto = by the server's version", choices=("auto", "v1", "v2")
    )


@dataclass(frozen=True)
class RequestSettings:
    """``[requests]``: what dashboard and ``watch`` need for runs with ``control_road = "store"``. The key stands in files or in
    TRAINVITALS_REQUEST_KEY only. Details: docs/control.md."""

    key_files: tuple[str, ...] = setting(
        (), "files that hold one secret each, the same on both hosts: the first one signs, each of them is accepted"
    )
    poll_s: float = setting(1.0, "seconds between two looks of watch at the store")
    valid_s: float = setting(600.0, "seconds after which a request that nobody took is refused as stale, at most 3600")


@dataclass(frozen=True)
class SupervisorSettings:
    """``[supervisor]``: how ``run -- COMMAND`` starts a trainer again. Details: docs/supervisor.md."""

    restarts_per_day: int = setting(20, "restarts in 24 h; after that it holds until a person resumes the run")
    deaths_in_place: int = setting(
        3, "deaths in a row with the same newest safe checkpoint, or before the first step, after which it holds"
    )
    back_off_s: float = setting(5.0, "seconds before the first restart; doubled with each death that followed no progress")
    back_off_max_s: float = setting(600.0, "longest such wait")
    grace_s: float = setting(60.0, "seconds that the trainer has to end after SIGTERM before it is killed")
    first_step_s: float = setting(3600.0, "seconds from a start to its first step, after which it hangs")
    hang_s: float = setting(1800.0, "seconds without a step, not in a pause, after which it hangs and is ended")
    verify_s: float = setting(60.0, "seconds that looking at the chosen checkpoint may take before a start")
    wide_area_nodes: int = setting(8, "nodes with a fault at once that make it hold instead of restarting; 0 = never")
    resumed_behind: str = setting(
        "stop", "what to do when the trainer went on from an older step than it was told", choices=("stop", "say")
    )
    rollback_within_s: float = setting(
        3600.0,
        "a way back that was taken and not carried out within this time, because the supervisor died, is not carried out any more",
    )
    when_stopped: str = setting(
        "wait", "after control stop: wait for a resume and start again, or exit", choices=("wait", "exit")
    )
    recovered_steps: int = setting(50, "steps beyond the highest one before that a recovery needs")
    slurm: str = setting(
        "off",
        "how the run is started again under Slurm: off = the command is a trainer of this host; allocation = this is the batch script of "
        "a job with spare nodes; resubmit = submit the script anew; requeue = put the same job into the queue again (docs/slurm.md)",
        choices=("off", "allocation", "resubmit", "requeue"),
    )
    slurm_nodes: int = setting(0, "nodes that a start needs; 0 = as many as the first one had")
    slurm_poll_s: float = setting(15.0, "seconds between two looks at Slurm")
    limit_info_s: float = setting(3600.0, "seconds before the job's time limit at which it is said; 0 = not", may_be_zero=True)
    limit_warning_s: float = setting(
        900.0, "seconds before the job's time limit at which it is said again; 0 = not", may_be_zero=True
    )
    save_before_limit: bool = setting(True, "ask the trainer for a checkpoint shortly before the job's time limit")


SECTIONS: Mapping[str, type] = MappingProxyType(
    {
        "supervisor": SupervisorSettings,
        "alerts": AlertSettings,
        "alertmanager": AlertmanagerSettings,
        "breaker": BreakerSettings,
        "watch": WatchSettings,
        "incidents": IncidentSettings,
        "logs": LogSettings,
        "gpu": GpuSettings,
        "retention": RetentionSettings,
        "dashboard": DashboardSettings,
        "login": LoginSettings,
        "spool": SpoolSettings,
        "influxdb": InfluxdbSettings,
        "requests": RequestSettings,
    }
)
