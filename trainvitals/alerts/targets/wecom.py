"""``wecom``: a robot of a WeCom group, as text, which has no markup; nobody is mentioned. Its address holds its only secret."""

from __future__ import annotations

from trainvitals.alerts.http import Answer
from trainvitals.alerts.notice import Notice
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.targets.plain import as_lines, fit
from trainvitals.alerts.targets.protocol import Letter, Verdict, by_code, json_body
from trainvitals.alerts.words import Message

#: developer.work.weixin.qq.com/document/path/99110: a text has at most 2,048 bytes of UTF-8.
MAX_TEXT_BYTES = 2_048
#: -1 busy; 45009 and 45033: too many calls.
_PASSING = frozenset({-1, 45009, 45033})


class WeCom:
    per_minute = 18
    needs_secret = False

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        body = {
            "msgtype": "text",
            "text": {
                "content": fit(as_lines(message), message.link, MAX_TEXT_BYTES), "mentioned_list": [], "mentioned_mobile_list": [],
            },
        }  # fmt: skip
        return Letter(credentials.url.reveal(), json_body(body), {"Content-Type": "application/json; charset=utf-8"})

    def verdict(self, answer: Answer) -> Verdict:
        return by_code(answer, "errcode", _PASSING)
