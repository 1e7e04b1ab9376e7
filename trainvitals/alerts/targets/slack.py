"""``slack``: an incoming webhook. Untrusted text stands in ``plain_text`` blocks, where Slack reads no markup."""

from __future__ import annotations

from typing import Any

from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import as_lines, fit, harmless
from trainvitals.alerts.targets.protocol import DELIVERED, PERMANENT, RETRY, Letter, Verdict, by_status, excerpt, json_body
from trainvitals.alerts.words import Message

#: Slack, reference/block-kit/blocks: characters of a header and of a section's text.
MAX_HEADER_CHARACTERS, MAX_SECTION_CHARACTERS = 150, 3_000
_OPEN = {"en": "Open the incident", "zh": "打开事件"}


class Slack:
    per_minute = 50
    needs_secret = False

    def __init__(self, language: str = "en") -> None:
        self._language = language

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """``text`` is what the notification shows; the blocks are what the channel shows."""
        title = harmless(message.headline)[:MAX_HEADER_CHARACTERS]
        blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": title or "-", "emoji": False}}]
        text = fit(as_lines(message, with_headline=False), "", MAX_SECTION_CHARACTERS)
        if text:
            blocks.append({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}})
        if message.link:
            opened = f"<{escape(message.link).replace('|', '%7C')}|{_OPEN.get(self._language, _OPEN['en'])}>"
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": opened[:MAX_SECTION_CHARACTERS]}})
        body = json_body(
            {
                "text": escape(title),
                "mrkdwn": False,
                "blocks": blocks,
                "unfurl_links": False,
                "unfurl_media": False,
                "link_names": 0,
            }
        )
        return Letter(credentials.url.reveal(), body, {"Content-Type": "application/json; charset=utf-8"})

    def verdict(self, answer: Answer) -> Verdict:
        """A webhook answers ``ok``; a proxy in front of it may answer 200 with anything."""
        verdict = by_status(answer)
        if verdict.outcome != DELIVERED or answer.body.strip() == b"ok":
            return verdict
        shown = answer.body[:100].decode("utf-8", "replace")
        is_refusal = shown.replace("_", "").isalpha()  # invalid_payload, no_service, …
        return Verdict(
            PERMANENT if is_refusal else RETRY, f"the receiver answered {answer.status} and not ok{excerpt(answer.body)}"
        )


def escape(text: str) -> str:
    """Slack, reference/surfaces/formatting: these three and no others."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
