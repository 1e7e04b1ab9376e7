"""NaN and infinity as the C libraries of all systems write them."""

from __future__ import annotations

import math

import pytest

from trainvitals.logs.values import parse_number


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "-nan", "nan.0", "-nan(ind)", "nan(snan)", "NAN(0x8000000000000)", "1.#QNAN", "-1.#IND", "1.#SNAN00", "'nan'"],
)
def test_a_nan_is_one_however_it_is_written(text):
    found = parse_number(text)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1.#INF", math.inf),
        ("-1.#INF00", -math.inf),
        ("1e400", math.inf),
        ("+inf", math.inf),
    ],
)
def test_an_infinity_keeps_its_sign(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["nanometre", "info", "1.#", "nan(", "infer", "nanny.0", "1.#QNAN7x"])
def test_a_word_is_none(text):
    assert parse_number(text) is None
