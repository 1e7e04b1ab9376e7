"""``webhook``: Standard Webhooks (standard-webhooks, spec/standard-webhooks.md), for programs of your own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.signing import standard_webhooks
from trainvitals.alerts.targets.protocol import Letter, Verdict, by_status, json_body
from trainvitals.alerts.words import Message

MAX_BODY_BYTES = 20_000
_TYPES = {
    NoticeKind.RECOVERED: "incident.resolved", NoticeKind.ACKNOWLEDGED: "incident.acknowledged",
    NoticeKind.PAUSED: "incident.paused",
    NoticeKind.WATCH_SILENT: "watch.silent", NoticeKind.NOT_DELIVERED: "alert.not_delivered", NoticeKind.TEST: "alert.test",
}  # fmt: skip
_NODE_RULES = ("node_", "gpu_")


class Webhook:
    per_minute = 300
    needs_secret = False

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """``data`` holds every fact of the notice and its words; what does not fit goes: items, suspects, then lines."""
        timestamp_s = now_ns // 1_000_000_000
        data: dict[str, Any] = {
            **notice.to_mapping(),
            "headline": message.headline,
            "lines": [{"label": label, "text": text} for label, text in message.lines],
        }
        body = self._body(notice, data, timestamp_s)
        for name in ("items", "suspects", "lines", "rules"):
            if len(body) > MAX_BODY_BYTES:
                data[name] = []
                body = self._body(notice, data, timestamp_s)
        for name in sorted(data, key=lambda key: len(str(data[key])), reverse=True):
            if len(body) > MAX_BODY_BYTES and isinstance(data[name], str) and name not in ("id", "link"):
                data[name] = data[name][:200]
                body = self._body(notice, data, timestamp_s)
        headers = {"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": str(timestamp_s)}
        if credentials.secrets:
            headers["webhook-signature"] = standard_webhooks(credentials.secrets, id, timestamp_s, body)
        return Letter(credentials.url.reveal(), body, headers)

    def verdict(self, answer: Answer) -> Verdict:
        return by_status(answer)

    @staticmethod
    def _body(notice: Notice, data: dict[str, Any], timestamp_s: int) -> bytes:
        timestamp = datetime.fromtimestamp(timestamp_s, UTC).isoformat().replace("+00:00", "Z")
        return json_body({"type": event_type(notice), "timestamp": timestamp, "data": data})


def event_type(notice: Notice) -> str:
    """``run.loss_spike``, ``checkpoint.corrupt``, ``incident.resolved``: what a receiver chooses by."""
    if notice.kind in _TYPES:
        return _TYPES[notice.kind]
    rule = notice.rule or notice.kind.value
    if rule.startswith("checkpoint_"):
        return f"checkpoint.{rule.removeprefix('checkpoint_')}"
    return f"node.{rule}" if rule.startswith(_NODE_RULES) else f"run.{rule}"
