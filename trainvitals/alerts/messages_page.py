"""The table of docs/messages.md: what each rule says on the lock screen, in both languages, by an example.

``python -m trainvitals.alerts.messages_page`` rewrites it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainvitals.alerts.notice import Item, NoticeKind, Verb
from trainvitals.alerts.sentences import SENTENCES
from trainvitals.alerts.words import sentence
from trainvitals.records import Severity

BEGIN, END = "<!-- generated: sentences -->\n", "<!-- end: sentences -->"
#: Rules whose example needs numbers of its own kind: (value, expected).
_EXAMPLES: dict[str, tuple[float, float]] = {
    "stall": (900.0, 6.0), "checkpoint_stuck": (900.0, 60.0), "checkpoint_overdue": (1_000.0, 500.0), "checkpoint_too_few_verified": (1.0, 2.0),
    "resume_config_changed": (3.0, 0.0), "rank_silent": (8.0, 0.0), "throughput_drop": (700.0, 1_000.0), "grad_norm_spike": (41.0, 0.9),
    "lr_schedule_mismatch": (0.0006, 0.0003), "resume_lr_mismatch": (0.0006, 0.0003), "loss_implausible_drop": (0.4, 2.31),
    "resume_drop": (2.1, 2.31), "loss_not_learning": (10.4, 10.9),
}  # fmt: skip


def table() -> str:
    """Markdown."""
    rows = ["| rule | English | 中文 |", "|---|---|---|"]
    for rule in SENTENCES:
        value, expected = _EXAMPLES.get(rule, (2.94, 2.31))
        one = Item(NoticeKind.OPENED, Verb.CHECK, Severity.WARNING, rule, "", 0, 48_210, value, expected)
        rows.append(f"| `{rule}` | {sentence(one)} | {sentence(one, 'zh')} |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """The document with its table made anew. Raises ``ValueError`` when its marks are missing."""
    head, found, rest = text.partition(BEGIN)
    _, found_end, tail = rest.partition(END)
    if not (found and found_end):
        raise ValueError("The document lacks the marks of the generated table of sentences.")
    return head + BEGIN + table() + "\n" + END + tail


def main() -> int:
    """Rewrite docs/messages.md of this checkout."""
    path = Path(__file__).parents[2] / "docs" / "messages.md"
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
