"""``python -m tests.alerts.target_examples`` writes what each kind of target is sent into docs/targets.md; a test compares the two."""

from __future__ import annotations

import json
from pathlib import Path

from tests.alerts.notices import DIVERGENCE
from trainvitals.alerts.outbox_rows import message_id
from trainvitals.alerts.secret import Credentials, Secret
from trainvitals.alerts.targets.protocol import Target
from trainvitals.alerts.targets.registry import target_of
from trainvitals.alerts.words import body
from trainvitals.settings import TargetSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "targets.md"
KINDS = ("webhook", "slack", "feishu", "dingtalk", "wecom", "pagerduty")
NOW_NS = 1_800_000_007 * 10**9
#: Made up, as everything else in the examples.
_SECRETS = {
    "webhook": "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=",
    "pagerduty": "ROUTING-KEY",
    "feishu": "SECRET",
    "dingtalk": "SECRET",
}


def example(kind: str) -> str:
    """Headers that matter and the body, as it is sent, laid out for people."""
    settings = TargetSettings(kind=kind)
    target: Target = target_of(settings)  # type: ignore[assignment]
    secrets = (Secret(_SECRETS[kind]),) if kind in _SECRETS else ()
    credentials = Credentials(Secret("https://receiver.example/hook"), secrets)
    letter = target.letter(DIVERGENCE, body(DIVERGENCE), credentials, message_id(DIVERGENCE.id, "example"), NOW_NS)
    lines = [f"POST {letter.url.removeprefix('https://receiver.example')}"]
    lines += [f"{name}: {value}" for name, value in letter.headers.items() if name.startswith("webhook-")]
    return "\n".join([*lines, "", json.dumps(json.loads(letter.body), indent=1, ensure_ascii=False)])


def page_part(kind: str) -> str:
    """What stands in the page for a kind, between its markers."""
    return f"<!-- example {kind} -->\n```\n{example(kind)}\n```\n<!-- end -->"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for each in KINDS:
        before, _, rest = page.partition(f"<!-- example {each} -->")
        page = before + page_part(each) + rest.partition("<!-- end -->")[2]
    PAGE.write_text(page, encoding="utf-8")
