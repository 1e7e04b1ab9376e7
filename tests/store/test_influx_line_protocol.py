"""Lines as InfluxDB reads them: whatever text the outside puts into names and fields comes back as it was."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.services.fake_influx import parse_line, split_lines
from tests.services.fixtures import InfluxPlace
from trainvitals.errors import StoreError
from trainvitals.records import Point
from trainvitals.store.line_protocol import decode_tag, encode_point, encode_points, stored_tag

T0 = 1_767_323_045 * 10**9
EVER = (0, 2**62)

printable = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
tag_text = st.one_of(
    st.text(printable, max_size=40),
    st.text(st.sampled_from("ab ,=\\\"'%\\\\$;/*-{}é🧨"), max_size=12),
    st.sampled_from(
        ["", " ", "\\", "a\\", "%", "%00", "%5C", "%25", "\\,", "a=b,c=d e", "'; DROP DATABASE x; --", "$run", "#", '"', ","]
    ),
)
field_text = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=80),
    st.text(st.sampled_from('ab\\"\n\r\t ,=\0'), max_size=20),
    st.sampled_from(["", "\\", '"', '\\"', "a\nnode,node=x gpus=1i 5", "\n", 'x" 1', "<script>", "\x1b[31m"]),
)


@given(tag_text)
def test_a_stored_tag_is_never_empty_holds_no_backslash_and_decodes_to_itself(value: str) -> None:
    stored = stored_tag(value)
    assert stored and "\\" not in stored
    assert decode_tag(stored) == value


@given(tag_text, st.dictionaries(st.sampled_from(["state", "text", "run", "job"]), field_text, max_size=4))
def test_every_line_parses_by_the_rules_of_the_format_and_is_one_line(name: str, texts: dict[str, str]) -> None:
    point = Point("node", {"node": name}, T0, {"gpus": 8, "is_simulated": False, "temperature_max_c": 61.5, **texts})
    lines = split_lines(encode_points([point, point]))
    assert len(lines) == 2
    parsed = parse_line(lines[0])
    assert parsed is not None and parsed.measurement == "node" and parsed.tags == ("node",) and parsed.time_ns == T0
    assert parsed.kinds == {
        "gpus": "int", "is_simulated": "bool", "temperature_max_c": "float", "row": "int", **dict.fromkeys(texts, "str")
    }  # fmt: skip


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hostile_text_goes_through_a_real_server_and_comes_back_as_it_was(influx_place: InfluxPlace, data: st.DataObject) -> None:
    store = influx_place.open()
    names = data.draw(st.lists(tag_text, min_size=1, max_size=6, unique=True))
    mark = uuid.uuid4().hex[:8]
    texts = [data.draw(field_text) for _ in names]
    floats = [data.draw(st.floats(allow_nan=False, allow_infinity=False)) for _ in names]
    ints = [data.draw(st.integers(-(2**63), 2**63 - 1)) for _ in names]
    points = [
        Point(
            "event", {"run": mark, "kind": name, "source": name}, T0 + at, {"text": text, "id": "x", "severity": 0, "step": whole}
        )
        for at, (name, text, whole) in enumerate(zip(names, texts, ints, strict=True))
    ]
    points += [
        Point(
            "train", {"run": mark + name, "attempt": "1"}, T0 + at, {"step": at, "loss": number, "nonfinite": 0, "time": number}
        )
        for at, (name, number) in enumerate(zip(names, floats, strict=True))
    ]
    store.write(points)
    frame = store.raw("event", ["text", "step"], {"run": mark}, *EVER)
    assert frame["kind"].to_list() == frame["source"].to_list() == names
    assert frame["text"].to_list() == texts and frame["step"].to_list() == ints
    for at, (name, number) in enumerate(zip(names, floats, strict=True)):
        found = store.raw("train", ["loss", "time"], {"run": mark + name}, *EVER)
        assert found["run"].to_list() == [mark + name] and found["time_ns"].to_list() == [T0 + at]
        assert found["loss"].to_list() == found["time"].to_list() == [number]
        (event,) = store.events(mark, [name], *EVER)
        assert (event.kind, event.source) == (name, name)
    store.close()


INJECTIONS = [
    "' OR '1'='1", "r' OR run =~ /.*/ --", '" OR "run" != \'\'', "'; DROP MEASUREMENT train; --", "x'); DELETE FROM train; SELECT ('",
    "/.*/", "$run", "r\\' OR 1=1", "*", "run' OR time > 0 OR 'a'='a", "%", "r%00",
]  # fmt: skip


@pytest.mark.parametrize("name", INJECTIONS)
def test_an_injection_as_a_name_finds_nothing_and_changes_nothing(influx_place: InfluxPlace, name: str) -> None:
    store = influx_place.open()
    point = Point("train", {"run": "r", "attempt": "1"}, T0, {"step": 1, "loss": 1.0, "nonfinite": 0})
    store.write([point, Point("node", {"node": "n"}, T0, {"gpus": 1})])
    for where in ({"run": name}, {"run": [name, name + "x"]}, {"attempt": name}):
        assert store.raw("train", ["loss"], where, *EVER).empty
        assert store.latest("train", ["loss"], where, 10**12, T0).empty
        assert store.buckets("train", ["loss"], where, *EVER, 10).empty
    assert store.events(name, [name], *EVER) == [] and store.time_of_step(name, 1, 1) is None
    assert len(store.raw("train", ["loss"], {}, *EVER)) == 1 and len(store.raw("node", ["gpus"], {}, *EVER)) == 1


def test_numbers_keep_their_declared_type_whatever_they_look_like() -> None:
    line = encode_point(Point("train", {"run": "r", "attempt": "1"}, T0, {"step": 7, "loss": 2, "tokens": 2**60, "lr": 1e-300}))
    assert line == b"train,attempt=1,run=r step=7i,loss=2.0,tokens=1.152921504606847e+18,lr=1e-300 %d" % T0


@pytest.mark.parametrize(
    "fields",
    [{"gpus": 2**63}, {"gpus": -(2**63) - 1}, {"temperature_max_c": math.nan}, {"temperature_max_c": math.inf}, {"state": 5}, {}],
)
def test_what_no_server_can_hold_is_refused_before_it_is_sent(fields: dict[str, float]) -> None:
    with pytest.raises(StoreError):
        encode_point(Point("node", {"node": "n"}, T0, fields))


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "nul\0", "tab\t"])
def test_a_tag_with_a_line_break_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="control characters"):
        encode_point(Point("node", {"node": name}, T0, {"gpus": 1}))


def test_a_time_that_influxdb_does_not_keep_is_refused() -> None:
    with pytest.raises(StoreError, match="outside"):
        encode_point(Point("node", {"node": "n"}, -(2**63) + 1, {"gpus": 1}))
