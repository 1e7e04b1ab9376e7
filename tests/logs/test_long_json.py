"""A document on one line is broken into lines by its brackets, and brackets alone are no lines."""

from __future__ import annotations

import json

import pytest

from trainvitals.logs.long_json import broken_into_lines


def broken(text, size=7):
    data = text.encode()
    return b"".join(broken_into_lines(data[at : at + size] for at in range(0, len(data), size))).decode()


def test_brackets_without_end_are_no_lines():
    for text in ("[" * 200_000, "[{" * 100_000, '{"log_history":' + "[" * 100_000 + "," * 100_000):
        found = broken(text, 1000)
        assert found.count("\n") < 100 and found.replace("\n", "") == text


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_what_is_behind_a_deep_value_is_broken_as_before_and_is_the_same_document(size):
    document = {"a": [1, 'x{[,\\"]'], "deep": json.loads("[" * 50 + "]" * 50), "log_history": [{"step": 1, "loss": 2.5}]}
    found = broken(json.dumps(document), size)
    assert json.loads(found) == document
    assert [line.strip() for line in found.split("\n")][-6:] == ["{", '"step": 1,', '"loss": 2.5', "}", "]", "}"]
