"""``[alerts]`` and ``[alerts.targets.NAME]``: who is told of what, where and how. Each key with its default, its help and its choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.settings_field import setting

TARGET_KINDS = ("webhook", "slack", "feishu", "lark", "dingtalk", "wecom", "pagerduty", "apprise")
TARGET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII)
SEVERITIES = ("info", "warning", "critical")
_QUIET_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True)
class AlertSettings:
    """``[alerts]``: what holds for all targets. Details: docs/alerts.md."""

    outbox: str = setting(
        "", "file that keeps messages until they are delivered, on a local disk; empty = the default place of this user"
    )
    heartbeat_url_file: str = setting(
        "", "file with the address that is called while watch works, so that its silence is noticed elsewhere; empty = none"
    )
    heartbeat_s: float = setting(60.0, "seconds between two such calls")
    heartbeat_proxy: str = setting("", "HTTP proxy for these calls; those of the environment are not used", is_shown=False)
    heartbeat_allow_private: bool = setting(False, "allow an address in your own network for them")
    runbook_url: str = setting("", "address of your runbook, with {rule} for the rule that fired; empty = none")
    watch_silent_s: float = setting(60.0, "seconds without a heartbeat of a run's watch after which the dashboard tells it")
    banner: bool = setting(True, "a red line on every page while no target that pages works or is configured")


@dataclass(frozen=True)
class AlertmanagerSettings:
    """``[alertmanager]``: what a Prometheus Alertmanager may post to /api/alertmanager. Details: docs/alertmanager.md. The token
    may also stand in TRAINVITALS_ALERTMANAGER_TOKEN."""

    token_file: str = setting("", "file with the bearer token that it must send, 16 characters or more; empty = nothing is taken")
    node_labels: tuple[str, ...] = setting(
        ("node", "Hostname", "hostname", "nodename", "instance"), "labels that name the node, the first that is there counts"
    )
    gpu_labels: tuple[str, ...] = setting(("gpu", "GPU", "gpu_uuid", "UUID"), "labels that name the GPU")
    run_labels: tuple[str, ...] = setting(("run",), "labels that name a run of the settings; other alerts are of the cluster")


@dataclass(frozen=True)
class TargetSettings:
    """One ``[alerts.targets.NAME]`` table. Secrets may also stand in the environment (TRAINVITALS_ALERTS_TARGETS_NAME_URL,
    TRAINVITALS_ALERTS_TARGETS_NAME_SECRET; several secrets with a comma between them)."""

    kind: str = setting("", "what is at the other end; required", choices=("", *TARGET_KINDS))
    url: str = setting("", "address to send to; where it holds a secret, url_file keeps that out of this file", is_shown=False)
    url_file: str = setting("", "file that holds the address, read at each message")
    secret_files: tuple[str, ...] = setting(
        (), "files with the signing secret or routing key, the newest first; several while one is being replaced"
    )
    severities: tuple[str, ...] = setting(("critical",), "severities that are sent: info, warning, critical")
    runs: tuple[str, ...] = setting(("*",), "globs of run names that are sent")
    language: str = setting("en", "language of the messages", choices=("en", "zh"))
    repeat_s: int = setting(4 * 3600, "seconds after which an open incident that nobody acknowledged is told again, 0 = never")
    send_recovered: bool = setting(True, "tell when an incident that was told is over")
    quiet_hours: str = setting("", 'such as "22:00-07:00": what is not critical waits until they end; empty = none')
    quiet_timezone: str = setting("UTC", "time zone of quiet_hours")
    escalate_to: str = setting("", "target that is told as well when nobody acknowledges in time; empty = none")
    escalate_after_s: int = setting(900, "seconds without an acknowledgement before that")
    proxy: str = setting(
        "", "HTTP proxy for this target, such as http://proxy:3128; those of the environment are not used", is_shown=False
    )
    allow_private: bool = setting(False, "allow addresses of private networks and of this machine, and http to this machine")
    ca_file: str = setting("", "certificates to check the receiver's with, empty = those of this system")

    def trouble(self, name: str, targets: Mapping[str, TargetSettings]) -> str:
        """What is wrong with it and what to do, "" = nothing."""
        if not self.kind:
            return "kind is missing: one of " + ", ".join(TARGET_KINDS) + "."
        if self.url and self.url_file:
            return "url and url_file are both given; keep one."
        unknown = [severity for severity in self.severities if severity not in SEVERITIES]
        if unknown:
            return f"severities names {unknown[0][:40]!r}; it may hold " + ", ".join(SEVERITIES) + "."
        if self.quiet_hours and quiet_minutes(self.quiet_hours) is None:
            return f'quiet_hours {self.quiet_hours[:40]!r} must be written as "22:00-07:00".'
        try:
            ZoneInfo(self.quiet_timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return f'quiet_timezone {self.quiet_timezone[:80]!r} is not a known time zone; write for example "Asia/Shanghai".'
        if self.escalate_to and (self.escalate_to == name or self.escalate_to not in targets):
            others = ", ".join(sorted(other for other in targets if other != name)) or "none"
            return f"escalate_to {self.escalate_to[:40]!r} is no other target; known: {others}."
        return ""


def quiet_minutes(text: str) -> tuple[int, int] | None:
    """Start and end in minutes after midnight of what ``quiet_hours`` says, None when it says nothing of that form."""
    found = _QUIET_HOURS.fullmatch(text)
    if found is None:
        return None
    start_hour, start_minute, end_hour, end_minute = map(int, found.groups())
    start, end = start_hour * 60 + start_minute, end_hour * 60 + end_minute
    return None if start == end else (start, end)
