"""What a Prometheus Alertmanager posts, as events: pure. One alert that fires and ends is one event, however often it is told.

Source of the rules: prometheus/alertmanager, docs/configuration.md (webhook payload version 4) and notify/webhook; what was seen of
the real program is in tests/web/test_alertmanager_real.py.
"""

from __future__ import annotations

import calendar
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainvitals.errors import InputError
from trainvitals.records import Event, Severity
from trainvitals.settings import AlertmanagerSettings

MAX_BODY_BYTES = 1 << 20
MAX_ALERTS = 5_000
#: Alerts that are remembered, so that their end is the end of the same event. Beyond it those not heard of longest are forgotten.
MAX_EPISODES = 5_000
#: An alert that is told to fire so long after its end was heard is no late message of the time before.
COMES_BACK_NS = 5 * 60 * 10**9
_MAX_PAIRS = 50
_MAX_TEXT = 500
_MAX_AHEAD_NS = 300 * 10**9
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)  # fmt: skip
_FINGERPRINT = re.compile(r"[0-9a-zA-Z]{1,64}", re.ASCII)
_PORT = re.compile(r"(.{1,300}):\d{1,5}", re.ASCII | re.DOTALL)
_CRITICAL = frozenset({"critical", "page", "fatal", "emergency", "disaster"})
_WARNING = frozenset({"warning", "warn", "error", "high", "major"})


@dataclass(frozen=True, slots=True)
class OutsideAlert:
    """One alert of a post. started_ns, ended_ns: UTC, None = not said (a year-1 time is no time)."""

    fingerprint: str
    is_firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    started_ns: int | None
    ended_ns: int | None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Post:
    """One post; truncated: alerts that Alertmanager left out because of ``max_alerts``."""

    alerts: tuple[OutsideAlert, ...]
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert that was heard of: when it began, as first told, and whether it is over."""

    started_ns: int
    heard_ns: int
    ended_ns: int | None = None


@dataclass
class Episodes:
    """All of them by fingerprint. Its state is kept together with the events, so that a restart takes no event for another."""

    known: dict[str, Episode] = field(default_factory=dict)

    def to_state(self) -> bytes:
        return json.dumps({key: [e.started_ns, e.heard_ns, e.ended_ns] for key, e in self.known.items()}).encode()

    @classmethod
    def from_state(cls, state: bytes) -> Episodes:
        """Empty for what is none: then an alert that goes on becomes a second event, which is no loss."""
        try:
            raw = json.loads(state)
            return cls(
                {
                    str(key): Episode(int(began), int(heard), None if ended is None else int(ended))
                    for key, (began, heard, ended) in raw.items()
                }
            )
        except (ValueError, TypeError, AttributeError):
            return cls()

    def copy(self) -> Episodes:
        return Episodes(dict(self.known))

    def take(self, alert: OutsideAlert, now_ns: int) -> Episode:
        """The episode that the alert is of. Alertmanager may tell another start with the end than with the beginning, and tells
        the end again; an alert that fires after its end is a new one, also with its old start: Prometheus was away meanwhile."""
        told_ns = min(alert.started_ns or now_ns, now_ns)
        before = self.known.get(alert.fingerprint)
        ended_before_ns = before.ended_ns if before is not None else None
        if before is not None and ended_before_ns is not None and told_ns < ended_before_ns:
            told_ns = now_ns if alert.is_firing and now_ns - before.heard_ns >= COMES_BACK_NS else told_ns
        is_new = before is None or (ended_before_ns is not None and alert.is_firing and told_ns >= ended_before_ns)
        started_ns = told_ns if before is None or is_new else before.started_ns
        ended_ns = None
        if not alert.is_firing:
            known_end_ns = before.ended_ns if before is not None and not is_new else None
            ended_ns = known_end_ns or max(started_ns, min(alert.ended_ns or now_ns, now_ns))
        elif before is not None and not is_new:
            ended_ns = before.ended_ns  # an old message of a repetition that was under way
        is_old = before is not None and not is_new and alert.is_firing and ended_ns is not None
        episode = Episode(started_ns, before.heard_ns if is_old and before is not None else now_ns, ended_ns)
        self.known.pop(alert.fingerprint, None)
        self.known[alert.fingerprint] = episode
        while len(self.known) > MAX_EPISODES:
            del self.known[next(iter(self.known))]
        return episode


def read(body: bytes) -> Post:
    """Raises ``InputError`` with a sentence for what is no such post."""
    if len(body) > MAX_BODY_BYTES:
        raise InputError(f"The post is larger than {MAX_BODY_BYTES:,} bytes.")
    try:
        raw = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError("The post is no JSON.") from error
    if not isinstance(raw, dict) or raw.get("version") != "4" or not isinstance(raw.get("alerts"), list):
        raise InputError('The post is no Alertmanager webhook of version "4".')
    if len(raw["alerts"]) > MAX_ALERTS:
        raise InputError(f"The post holds more than {MAX_ALERTS:,} alerts.")
    cut = raw.get("truncatedAlerts")
    truncated = cut if isinstance(cut, int) and not isinstance(cut, bool) and 0 < cut < 10**9 else 0
    return Post(tuple(_alert(alert) for alert in raw["alerts"]), truncated)


def _alert(raw: Any) -> OutsideAlert:
    if not isinstance(raw, dict) or raw.get("status") not in ("firing", "resolved"):
        raise InputError("An alert of the post has no status firing or resolved.")
    labels = _pairs(raw.get("labels"))
    fingerprint = raw.get("fingerprint")
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        fingerprint = hashlib.sha256(json.dumps(sorted(labels.items())).encode("utf-8", "replace")).hexdigest()[:16]
    url = raw.get("generatorURL")
    return OutsideAlert(
        fingerprint=fingerprint, is_firing=raw["status"] == "firing", labels=labels, annotations=_pairs(raw.get("annotations")),
        started_ns=time_ns(raw.get("startsAt")), ended_ns=time_ns(raw.get("endsAt")), url=_text(url) if isinstance(url, str) else "",
    )  # fmt: skip


def _pairs(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict):
        return {}
    return {_text(str(key)): _text(value) for key, value in list(raw.items())[:_MAX_PAIRS] if isinstance(value, str)}


def _text(text: str) -> str:
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


def time_ns(text: Any) -> int | None:
    """RFC 3339 with up to twelve digits of a second, of which Python keeps six; None for none, and for times before 1970."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    try:
        whole_s = calendar.timegm(datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timetuple())
    except ValueError:
        return None
    sign, offset_h, offset_min = found.group(8), found.group(9), found.group(10)
    if sign:
        whole_s -= (1 if sign == "+" else -1) * (int(offset_h) * 3600 + int(offset_min) * 60)
    nanoseconds = whole_s * 10**9 + int(((found.group(7) or "") + "0" * 9)[:9])
    return nanoseconds if nanoseconds > 0 else None


def event(alert: OutsideAlert, episode: Episode, settings: AlertmanagerSettings) -> Event:
    """The one event of an episode: told again, with its end, it is the same row. An alert of no known node is one of the cluster."""
    name = alert.labels.get("alertname") or "alert"
    node = _node(alert.labels, settings.node_labels)
    gpu = _first(alert.labels, settings.gpu_labels)
    summary = alert.annotations.get("summary") or alert.annotations.get("description") or alert.annotations.get("message") or ""
    is_over = episode.ended_ns is not None
    words = [name, *([f"on {node}"] if node else []), *([f"GPU {gpu}"] if gpu else []), *(["is over"] if is_over else [])]
    return Event(
        kind="external",
        time_ns=episode.started_ns,
        id=f"alertmanager/{alert.fingerprint}/{episode.started_ns}",
        severity=_severity(alert.labels.get("severity", "")),
        source="alertmanager",
        text=" ".join(" ".join(words).split()) + (f": {' '.join(summary.split())}" if summary else ""),
        data={
            "state": "resolved" if is_over else "firing", "name": name, "node": node, "gpu": gpu, "labels": dict(alert.labels),
            "annotations": dict(alert.annotations), "started_ns": episode.started_ns, "ended_ns": episode.ended_ns, "heard_ns": episode.heard_ns,
            "url": alert.url,
        },
    )  # fmt: skip


def run_of(alert: OutsideAlert, settings: AlertmanagerSettings, runs: Sequence[str]) -> str:
    """The run that a label names, "" = the cluster."""
    named = _first(alert.labels, settings.run_labels)
    return named if named in runs else ""


def truncated_event(post: Post, now_ns: int) -> Event:
    """Says that Alertmanager did not tell all."""
    return Event(
        "external", now_ns, id=f"alertmanager/truncated/{now_ns}", severity=Severity.WARNING, source="alertmanager",
        text=f"Alertmanager left out {post.truncated:,} alerts: set max_alerts: 0 in its webhook_config",
        data={"state": "truncated", "alerts": post.truncated},
    )  # fmt: skip


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _node(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """``node-7`` of ``node-7:9100``, ``::1`` of ``[::1]:9100``; an address without a port stays as it is."""
    text = _first(labels, names)
    if text.startswith("["):
        return text[1:].partition("]")[0]
    found = _PORT.fullmatch(text)
    return found.group(1) if found and ":" not in found.group(1) else text


def _severity(text: str) -> Severity:
    word = text.strip().lower()
    return Severity.CRITICAL if word in _CRITICAL else Severity.WARNING if word in _WARNING else Severity.INFO
