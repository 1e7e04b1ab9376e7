"""``feishu`` and ``lark``: a custom bot of a group, as a card of ``plain_text`` elements, in which no tag is read."""

from __future__ import annotations

from typing import Any

from trainvitals.alerts import signing
from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import as_lines, fit, harmless
from trainvitals.alerts.targets.protocol import Letter, Verdict, by_code, json_body
from trainvitals.alerts.words import Message
from trainvitals.records import Severity

#: The service takes 20 KB in all; the rest is the card around the text, quoted.
MAX_TEXT_BYTES = 8_000
#: 11232 "frequency limited"; 2200 "internal error" (openclaw/openclaw issue 70879).
_PASSING = frozenset({11232, 2200})
_OPEN = {"en": "Open the incident", "zh": "打开事件"}


class Feishu:
    per_minute = 90
    needs_secret = False

    def __init__(self, language: str = "en") -> None:
        self._language = language

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """With a secret the time and the signature stand in the body; only the newest secret signs, a bot has one."""
        title = harmless(message.headline)
        elements: list[dict[str, Any]] = []
        text = fit(as_lines(message, with_headline=False), "", MAX_TEXT_BYTES)
        if text:
            elements.append({"tag": "div", "text": {"tag": "plain_text", "content": text}})
        if message.link:
            opened = {"tag": "plain_text", "content": _OPEN.get(self._language, _OPEN["en"])}
            elements.append(
                {"tag": "action", "actions": [{"tag": "button", "text": opened, "type": "primary", "url": message.link}]}
            )
        body: dict[str, Any] = {
            "msg_type": "interactive",
            "card": {
                "config": {"wide_screen_mode": True},
                "header": {"title": {"tag": "plain_text", "content": title}, "template": _colour(notice)},
                "elements": elements,
            },
        }
        if credentials.secrets:
            timestamp_s = now_ns // 1_000_000_000
            body = {"timestamp": str(timestamp_s), "sign": signing.feishu(credentials.secrets[0], timestamp_s), **body}
        return Letter(credentials.url.reveal(), json_body(body), {"Content-Type": "application/json; charset=utf-8"})

    def verdict(self, answer: Answer) -> Verdict:
        return by_code(answer, "code", _PASSING)


def _colour(notice: Notice) -> str:
    if notice.kind is NoticeKind.RECOVERED and not notice.still_open:
        return "green"
    return {Severity.CRITICAL: "red", Severity.WARNING: "orange"}.get(notice.severity, "blue")
