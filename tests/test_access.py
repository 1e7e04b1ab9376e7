"""Who may act on a run: the most specific table counts, and without one everybody at this machine is an operator."""

from __future__ import annotations

import pytest

from trainvitals.access import Identity, may_somebody_act, refusal, role_of, rule_of
from trainvitals.errors import SettingsError
from trainvitals.settings import parse

ANA, BEN, EVE = Identity("ana"), Identity("ben"), Identity("eve")


def test_without_a_table_everybody_is_an_operator():
    assert role_of({}, "llama-70b", Identity("")) == "operator"
    assert refusal({}, "llama-70b", EVE) == ""


def test_only_the_named_operators_may_act():
    found = parse({"access": {"runs": {"llama-*": {"operators": ["ana"]}}}}).access
    assert refusal(found, "llama-70b", ANA) == ""
    assert refusal(found, "llama-70b", EVE).startswith("eve may look at 'llama-70b', but not act on it")
    assert refusal(found, "llama-70b", Identity("  "))
    assert refusal(found, "bert", EVE) == ""


def test_the_most_specific_pattern_counts_alone():
    found = parse({"access": {"runs": {
        "*": {"operators": ["eve"]}, "llama-*": {"operators": ["ana"]}, "llama-70b": {"operators": ["ben"]}, "llama-7?b": {"operators": ["x"]},
    }}}).access  # fmt: skip
    assert rule_of(found, "llama-70b")[0] == "llama-70b"
    assert [refusal(found, "llama-70b", who) == "" for who in (ANA, BEN, EVE)] == [False, True, False]
    assert [refusal(found, "llama-8b", who) == "" for who in (ANA, BEN, EVE)] == [True, False, False]
    assert [refusal(found, "bert", who) == "" for who in (ANA, BEN, EVE)] == [False, False, True]


def test_a_table_without_operators_lets_nobody_act():
    found = parse({"access": {"runs": {"old-*": {}}}}).access
    assert refusal(found, "old-1", ANA)
    assert not may_somebody_act(found, "old-1")
    assert may_somebody_act(found, "new-1")


def test_listed_viewers_are_the_only_ones_and_a_star_is_everybody():
    found = parse({"access": {"runs": {"a": {"operators": ["ana"], "viewers": ["ben"]}, "b": {"operators": ["*"]}}}}).access
    assert [role_of(found, "a", who) for who in (ANA, BEN, EVE)] == ["operator", "viewer", ""]
    assert role_of(found, "b", EVE) == "operator"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"run": {}}, "Did you mean 'runs'"),
        ({"runs": {"a": {"operator": ["x"]}}}, "Did you mean 'operators'"),
        ({"runs": {"a": {"operators": "ana"}}}, "a list of texts"),
        ({"runs": {"a": {"operators": [" ana"]}}}, "is no name"),
        ({"runs": {"": {"operators": ["ana"]}}}, "pattern"),
        ({"runs": {"a": ["ana"]}}, "must be a table"),
        ("ana", "must be written as"),
    ],
)
def test_a_wrong_table_is_named(table, says):
    with pytest.raises(SettingsError, match=says):
        parse({"access": table})
