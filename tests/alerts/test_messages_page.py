"""docs/messages.md says what the code says."""

from __future__ import annotations

from pathlib import Path

from trainvitals.alerts import words_zh
from trainvitals.alerts.messages_page import with_table
from trainvitals.alerts.notice import Verb
from trainvitals.alerts.policy import PER_MINUTE
from trainvitals.detect.rules import RULES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")


def test_the_table_of_sentences_is_the_codes():
    assert with_table(DOCUMENT) == DOCUMENT, "run python -m trainvitals.alerts.messages_page"
    for rule in RULES:
        assert f"| `{rule}` |" in DOCUMENT


def test_every_verb_stands_in_the_document_with_its_chinese_and_the_bound_of_a_flood_is_the_codes():
    for verb in set(Verb) - {Verb.TEST}:
        assert f"| `{verb.value}` | {words_zh.VERBS[verb]} |" in DOCUMENT
    assert f"more than {PER_MINUTE} a minute" in DOCUMENT
