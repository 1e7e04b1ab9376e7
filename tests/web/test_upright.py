"""A character that turns the direction of writing turns no sentence of ours on a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.records import Event
from trainvitals.web import upright as module
from trainvitals.web.upright import upright

TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
COMMON = Path(__file__).parents[2] / "pages" / "_shared" / "components" / "common.js"


@given(st.text())
def test_no_such_character_is_left_and_every_other_one_stays(text: str) -> None:
    shown = upright(text)
    assert not set(shown) & set(TURNS)
    assert [a for a in text if a not in TURNS] == [b for a, b in zip(text, shown, strict=True) if a not in TURNS]


@pytest.mark.parametrize("character", TURNS)
def test_each_of_them_is_seen_as_something_that_is_not_a_letter(character: str) -> None:
    assert upright(f"safe{character}dam") == "safe\ufffddam"


def test_the_browser_takes_the_same_characters_away() -> None:
    script = COMMON.read_text(encoding="utf-8")
    assert r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]" in script


def test_an_event_s_paths_stay_because_something_is_found_by_them_and_its_sentences_are_upright() -> None:
    event = Event(
        "control", 1, text="\u202ea", data={"reason": ["\u2066b"], "path": "/x/\u202ey", "n": 3, "by": {"who": "\u200fc"}}
    )
    made = module._event(event)
    assert (made.text, made.data) == ("\ufffda", {"reason": ["\ufffdb"], "path": "/x/\u202ey", "n": 3, "by": {"who": "\ufffdc"}})
    clean = replace(event, text="a", data={"reason": "b"})
    assert module._event(clean) is clean
