"""``dingtalk``: a custom robot of a group, as text, which has no markup; nobody is mentioned."""

from __future__ import annotations

from trainvitals.alerts import signing
from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import as_lines, fit
from trainvitals.alerts.targets.protocol import Letter, Verdict, by_code, json_body
from trainvitals.alerts.words import Message

#: The robot takes 20,000 bytes (timonwong/prometheus-webhook-dingtalk issue 30); a chat is no place for more than this.
MAX_TEXT_BYTES = 8_000
#: -1 busy; 130101 "send too fast, exceed 20 times per minute" (ccfos/nightingale issue 369); 90030 "webhook over limit".
_PASSING = frozenset({-1, 130101, 90030})


class DingTalk:
    per_minute = 18
    needs_secret = False

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """With a secret, milliseconds and signature stand in the query, encoded once."""
        url = credentials.url.reveal()
        if credentials.secrets:
            timestamp_ms = now_ns // 1_000_000
            url += f"{'&' if '?' in url else '?'}timestamp={timestamp_ms}&sign={signing.dingtalk(credentials.secrets[0], timestamp_ms)}"
        body = {
            "msgtype": "text",
            "text": {"content": fit(as_lines(message), message.link, MAX_TEXT_BYTES)},
            "at": {"atMobiles": [], "atUserIds": [], "isAtAll": False},
        }
        return Letter(url, json_body(body), {"Content-Type": "application/json; charset=utf-8"})

    def verdict(self, answer: Answer) -> Verdict:
        return by_code(answer, "errcode", _PASSING)
