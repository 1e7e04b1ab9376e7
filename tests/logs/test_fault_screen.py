"""A chunk of a healthy log is cleared of faults at one look, or reading would cost three times as much."""

import pytest

from tests.logs.mutations import real_lines
from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.registry import GRAMMARS
from trainvitals.logs.screen import FaultScreen, shape


def test_every_literal_keeps_enough_letters_to_be_told_from_a_line_of_numbers():
    assert [literal for literal in Faults.LITERALS if len(shape(literal.encode())) < 2] == []


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_lines_of_a_healthy_trainer_are_harmless(name):
    assert FaultScreen().is_harmless(GRAMMARS[name].example.encode() * 3)


def test_no_line_that_may_concern_is_ever_cleared():
    screen = FaultScreen()
    lines = [*real_lines(), *(f"12: [rank3]: {literal}".encode() for literal in Faults.LITERALS)]
    for line in lines:
        for data in (line, b"x\n" + line + b"\n", b"\x1b[31m" + line + b"\x1b[0m"):
            if screen.may_concern(line.decode("utf-8", "replace")):
                assert not screen.is_harmless(data)
