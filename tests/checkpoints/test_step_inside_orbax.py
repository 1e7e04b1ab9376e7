"""The step in Orbax's arrays that disagrees with the directory's name, read from the leaf of the tree of names."""

import layout_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import inspect, ocdbt_names

DATA = "0" * 31 + "1"


def small_frame(value, count=4):
    number = value.to_bytes(count, "little", signed=True)
    return b"\x28\xb5\x2f\xfd\x20" + bytes([count, count << 3 | 1, 0, 0]) + number


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def leaf(entries, height=0):
    """entries: key -> value, or None for one that lies elsewhere."""
    keys = [key.encode() for key in entries]
    body = bytes([height]) + make.ocdbt_table([DATA]) + number(len(keys)) + bytes(len(keys) - 1)
    body += b"".join(number(len(key)) for key in keys) + b"".join(keys)
    body += b"".join(number(1000 if value is None else len(value)) for value in entries.values())
    body += bytes(int(value is None) for value in entries.values())
    outside = sum(1 for value in entries.values() if value is None)
    body += number(0) * outside + number(300) * outside
    body += b"".join(value for value in entries.values() if value is not None)
    return make.ocdbt_record(make.NODE, b"\x00\x00" + body)


def step_of(*records):
    steps = ocdbt_names.Steps()
    for record in records:
        assert ocdbt_names.names(record, 10_000, steps)[0] == frozenset([DATA])
    return steps.one


def state(value, key="step/0", **more):
    return {"params.w/.zarray": b"{}", "params.w/0.0": None, key: value, "z/0": b"\x01", **more}


@pytest.mark.parametrize("key", ["step/0", "step/c"])
@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**31 - 1])
def test_the_number_is_read_from_zarr_2_and_3(key, count, value):
    assert step_of(leaf(state(small_frame(value, count), key))) == value
    # A shard of zarr 3 ends with an index.
    assert step_of(leaf(state(small_frame(value, count) + bytes(20), key))) == value


@pytest.mark.parametrize(
    "record",
    [
        leaf(state(None)),
        leaf(state(b"")),
        leaf(state(small_frame(5)[:-1])),
        leaf(state(small_frame(5).replace(b"\x21", b"\x41"))),
        leaf(state(small_frame(5), "params.step/0")),
        leaf(state(small_frame(5), "stepper/0")),
        leaf(state(small_frame(5)), height=1),
    ],
)
def test_what_is_no_small_number_of_that_name_tells_nothing(record):
    assert step_of(record) is None


def test_two_different_numbers_tell_nothing_and_the_same_twice_tells_it():
    first, second = leaf(state(small_frame(5))), leaf(state(small_frame(6)))
    assert step_of(first, first) == 5
    assert step_of(first, second) is None


def test_a_tree_with_inner_nodes_tells_nothing_because_names_in_its_leaves_are_cut():
    assert step_of(leaf(state(small_frame(5))), leaf({"opt": b"x"}, height=1)) is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_leaf_makes_the_reader_raise(body):
    record = make.ocdbt_record(make.NODE, b"\x00\x00\x00" + make.ocdbt_table([DATA]) + body)
    ocdbt_names.names(record, 10_000, ocdbt_names.Steps())


def said(tmp_path, name, item, value):
    content = leaf(state(small_frame(value)))
    parts = {f"{item}/d/{DATA}": content, f"{item}/manifest.ocdbt": make.ocdbt_manifest([DATA])}
    parts |= {f"{item}/_METADATA": b'{"tree_metadata": {}}', "_CHECKPOINT_METADATA": b"{}"}
    report = inspect(str(make.write(tmp_path / name, parts)))
    return str(report.state), " ".join(report.reasons)


@pytest.mark.parametrize("value", [100, 101])
@pytest.mark.parametrize("item", ["items", "state"])
def test_the_step_of_the_name_or_the_next_one_contradicts_nothing(tmp_path, item, value):
    assert said(tmp_path, "100", item, value) == ("verified", "")


def test_another_step_of_maxtext_is_never_verified(tmp_path):
    state_of_it, reasons = said(tmp_path, "100", "items", 80)
    assert (state_of_it, "step in its state is 80, its name says 100" in reasons) == ("complete", True)


def test_another_step_of_anybody_else_is_told(tmp_path):
    state_of_it, reasons = said(tmp_path, "100", "state", 5000)
    assert (state_of_it, "step in its state is 5000, its name says 100" in reasons) == ("verified", True)
