"""The command line's own JSON writer prints what json.dumps prints."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.cli.record_json import RecordLines, as_json
from trainvitals.records import Event, Step

_NUMBERS = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.just(10**400)
    | st.booleans()
    | st.sampled_from([0.0, -0.0, 1.7e308])
)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["loss", "100%", 'a"b', "%s"])
_TIMES = (
    st.none() | st.integers(1, 4_102_444_800 * 10**9) | st.sampled_from([1_767_323_045_000_000_000, 1_767_323_045_000_000_999])
)
_STEPS = st.builds(
    Step,
    step=st.integers(0, 10**15),
    attempt=st.integers(0, 9),
    time_ns=_TIMES,
    values=st.dictionaries(_NAMES, _NUMBERS, max_size=5),
    nonfinite=st.dictionaries(_NAMES, st.sampled_from(["nan", "inf", "-inf"]), max_size=2),
)
_EVENTS = st.builds(
    Event, kind=st.just("message"), time_ns=_TIMES, text=st.text(max_size=9), data=st.dictionaries(_NAMES, _NUMBERS, max_size=2)
)


@given(records=st.lists(_STEPS | _EVENTS, max_size=6))
def test_a_line_is_what_json_dumps_prints(records):
    lines = RecordLines()
    for record in records:
        assert (
            lines.line(record) == json.dumps(as_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_an_error(value):
    with pytest.raises(ValueError, match="JSON"):
        RecordLines().line(Step(1, 1, None, {"loss": value, "x": 1.0}))
