"""``pagerduty``: Events API v2. One incident here is one incident there, by ``dedup_key``; "acknowledged" and "recovered" reach it."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import cut_bytes
from trainvitals.alerts.targets.protocol import DELIVERED, RETRY, Letter, Verdict, by_status, json_body
from trainvitals.alerts.text import plain
from trainvitals.alerts.words import Message
from trainvitals.records import Severity

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
#: developer.pagerduty.com, "Send an Alert Event": characters of the summary and of the key.
MAX_SUMMARY_CHARACTERS, MAX_KEY_CHARACTERS = 1_024, 255
MAX_DETAIL_BYTES = 2_000
_ACTIONS = {NoticeKind.RECOVERED: "resolve", NoticeKind.ACKNOWLEDGED: "acknowledge"}
_SEVERITIES = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}


class PagerDuty:
    per_minute = 60
    needs_secret = True

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """The newest secret is the routing key; without ``url`` it goes to the service in the US."""
        action = _ACTIONS.get(notice.kind, "trigger")
        body: dict[str, Any] = {
            "routing_key": credentials.secrets[0].reveal(),
            "event_action": action,
            "dedup_key": dedup_key(notice),
        }
        if action == "trigger":
            timestamp = datetime.fromtimestamp(max(0, notice.at_ns // 1_000_000_000), UTC).isoformat()
            body |= {
                "payload": {
                    "summary": message.headline[:MAX_SUMMARY_CHARACTERS] or "-",
                    "source": cut_bytes(plain(notice.run, 200), 200) or "trainvitals",
                    # A word more of an incident whose urgency there must not change.
                    "severity": "critical" if notice.kind is NoticeKind.PAUSED else _SEVERITIES[notice.severity],
                    "timestamp": timestamp,
                    "component": "training run",
                    "group": cut_bytes(plain(notice.run, 200), 200),
                    "class": notice.rule,
                    "custom_details": {
                        (label or str(number)): cut_bytes(text, MAX_DETAIL_BYTES)
                        for number, (label, text) in enumerate(message.lines, 1)
                    },
                },
                "client": "Trainvitals",
                "links": [
                    {"href": href, "text": text}
                    for href, text in ((message.link, "Incident"), (notice.runbook_url, "Runbook"))
                    if href.startswith(("https://", "http://"))
                ],
            }  # fmt: skip
            if message.link:
                body["client_url"] = message.link
        return Letter(credentials.url.reveal() or EVENTS_URL, json_body(body), {"Content-Type": "application/json"})

    def verdict(self, answer: Answer) -> Verdict:
        """202 alone is accepted."""
        verdict = by_status(answer)
        if verdict.outcome == DELIVERED and answer.status != 202:
            return Verdict(RETRY, f"the receiver answered {answer.status}, not 202 as PagerDuty does")
        return verdict


def dedup_key(notice: Notice) -> str:
    """The same for all notices of one incident, of another incident another one."""
    key = f"trainvitals/{notice.run}/{notice.incident_id}"
    if len(key) > MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
        key = "trainvitals/" + sha256(key.encode("utf-8", "replace")).hexdigest()
    return key
