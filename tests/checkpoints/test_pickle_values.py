import contextlib
import os
import pathlib
import pickle
import time
import tracemalloc

import dcp_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import dcp_metadata, inspect, pickle_values
from trainvitals.checkpoints.dcp_metadata import BadMetadata, PickleTooLarge
from trainvitals.checkpoints.pickle_values import BadPickle, Instance

METADATA = make.parts(make.TORCHTITAN, 3, make.TORCHTITAN_OBJECTS)[".metadata"]
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=40,
)


def metadata_of(raw):
    return dcp_metadata.read(lambda offset, length: raw[offset : offset + length], len(raw))


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(0, 5))
def test_plain_values_are_read_as_pickle_reads_them(value, protocol):
    assert pickle_values.read_bytes(pickle.dumps(value, protocol)).value == value


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_where_the_windows_of_a_long_pickle_end_makes_no_difference(value):
    raw = pickle.dumps([value] * 3 + ["x" * 900, b"y" * 5000] + [list(range(600))], 4)
    window = pickle_values._WINDOW
    try:
        pickle_values._WINDOW = 512
        found = pickle_values.read_bytes(raw).value
    finally:
        pickle_values._WINDOW = window
    assert found[:3] == [value] * 3
    assert found[3] == "x" * 900
    assert found[5] == list(range(600))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_its_own_errors(raw):
    for read in (pickle_values.read_bytes, metadata_of):
        with contextlib.suppress(BadPickle, BadMetadata, PickleTooLarge):
            read(b"\x80\x04" + raw + b".")


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_mutated_metadata_raises_only_its_own_errors_and_never_hangs(data):
    raw = bytearray(METADATA)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        kind = data.draw(st.sampled_from(["byte", "cut", "insert", "copy"]))
        if kind == "byte":
            raw[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del raw[at : at + data.draw(st.integers(1, 40))]
        elif kind == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=12))
        else:
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 200))]
        if not raw:
            return
    begun_s = time.monotonic()
    with contextlib.suppress(BadMetadata, PickleTooLarge):
        metadata_of(bytes(raw))
    assert time.monotonic() - begun_s < 2


def test_metadata_cut_at_every_byte_is_noticed():
    for kept in range(len(METADATA)):
        with pytest.raises(BadMetadata):
            metadata_of(METADATA[:kept])


def endless(piece, size, start=b"\x80\x04", end=b"."):
    """A pickle of ``size`` bytes that repeats a piece, without holding it."""
    pieces = piece * (300_000 // len(piece) + 2)

    def source(offset, length):
        at = offset % len(piece)
        body = pieces[at : at + length]
        if offset < len(start):
            body = (start + pieces)[offset : offset + length]
        return body[: max(0, size - offset)]

    return source, size


BOMBS = {
    "lists on the stack": b"]",
    "lists in a list": b"]a",
    "dicts in lists": b"]}a",
    "marks": b"(",
    "nested tuples": b"\x85",
    "doubled tuples": b"2\x86",
    "texts": b"\x8c\x04abcd\x94",
    "long texts": b"X\xf0\x03\x00\x00" + "😀".encode() * 252 + b"\x94",
    "memo numbers": b"j\xff\xff\xff\x7f",
    "objects": b")\x81",
    "references": b"h\x00",
    "tuples in a list": b"h\x00\x85a",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_made_to_fill_memory_or_to_never_end_does_neither(name, monkeypatch):
    # A tenth of the real limits, and of the memory that they are for.
    for limit in ("MAX_LIVE_BLOCKS", "MAX_STACK", "MAX_ITEMS", "MAX_LONG_TEXT_BYTES"):
        monkeypatch.setattr(pickle_values, limit, getattr(pickle_values, limit) // 10)
    start = b"\x80\x04]\x94" if BOMBS[name] != b"]a" else b"\x80\x04]"
    source, size = endless(BOMBS[name], 3_000_000, start)
    tracemalloc.start(1)
    try:
        with pytest.raises((BadPickle, PickleTooLarge)):
            pickle_values.read(source, size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000, peak


def test_a_deep_or_widely_shared_tuple_as_a_key_costs_nothing():
    deep = b"\x80\x04})" + b"\x85" * 300_000 + b"K\x01s."
    shared = b"\x80\x04})" + b"2\x86" * 200_000 + b"K\x01s."
    as_state = b"\x80\x04}(" + b")" + b"2\x86" * 200_000 + b"K\x01u."
    for raw in (deep, shared, as_state):
        assert isinstance(pickle_values.read_bytes(raw).value, dict)


def test_lengths_that_no_file_has_are_refused_before_anything_is_allocated():
    for raw in (
        b"\x80\x04r\xff\xff\xff\xff.", b"\x80\x04\x8e" + b"\xff" * 8 + b".", b"\x80\x04\x8d" + b"\x7f" * 8 + b".",
        b"\x80\x04\x8b\xff\xff\xff\x7f.", b"\x80\x04\x96" + b"\xff" * 8 + b".", b"\x80\x04B\xff\xff\xff\x7f.",
    ):  # fmt: skip
        with pytest.raises(BadPickle):
            pickle_values.read_bytes(raw)
    assert pickle_values.read_bytes(b"\x80\x02K\x07r\xf0\xff\xff\xff.").value == 7


class _Calls:
    """Pickled as a call of any function with any arguments, and then any state."""

    def __init__(self, function, *arguments, state=None):
        self.function, self.arguments, self.state = function, arguments, state

    def __reduce__(self):
        return (self.function, self.arguments) if self.state is None else (self.function, self.arguments, self.state)


class _Setter:
    def __setstate__(self, state):
        pathlib.Path(state).touch()


def payloads(target):
    import functools
    import operator

    command = f"touch {target}"
    yield _Calls(os.system, command)
    yield _Calls(open, str(target), "w")
    yield _Calls(eval, f"open({str(target)!r}, 'w')")
    yield _Calls(_Calls(getattr, pathlib.Path(target), "touch"))
    yield _Calls(_Calls(functools.partial, os.system, command))
    yield _Calls(operator.methodcaller("touch"), pathlib.Path(target))
    yield _Calls(_Calls(operator.attrgetter("touch"), pathlib.Path(target)))
    yield _Calls(map, os.system, [command])
    yield _Calls(_Setter, state=str(target))
    yield _Calls(functools.reduce, os.system, [command, ""])


@pytest.mark.parametrize("place", ["root", "planner", "key", "state"])
def test_a_pickle_that_would_write_a_file_does_not_write_it_and_is_not_verified(tmp_path, place):
    target = tmp_path / "written"
    for number, payload in enumerate(payloads(target)):
        state = {"w": make.TensorStorageMetadata(properties=make.TensorProperties(), size=make.Size((1,)), chunks=[])}
        info = make.StorageInfo(relative_path="__0_0.distcp", offset=0, length=len(make.entry_bytes(1)))
        fields = {"state_dict_metadata": state, "planner_data": {}, "storage_data": {make.MetadataIndex(fqn="w"): info}}
        root = make.Metadata(**fields)
        if place == "root":
            root = payload
        elif place == "planner":
            fields["planner_data"]["x"] = payload
        elif place == "key":
            fields["storage_data"][make.MetadataIndex(fqn=payload)] = info
        else:
            state["w"].chunks.append(payload)
        try:
            raw = make.dump(root)
        except (pickle.PicklingError, TypeError, AttributeError):
            continue  # Python itself does not pickle this one
        directory = make.write(tmp_path / place / str(number) / "step-5", {"__0_0.distcp": make.entry_bytes(1), ".metadata": raw})
        report = inspect(str(directory))
        assert report.state in ("corrupt", "complete"), (number, report)
        assert not target.exists()
        if number == 0:
            pickle.loads(pickle.dumps(payload))
            assert target.exists()  # the payload is a real one
            target.unlink()


def test_objects_are_symbols_with_their_class_arguments_and_state():
    found = pickle_values.read_bytes(pickle.dumps(_Calls(os.path.join, "a", state={"x": 1})))
    assert type(found.value) is Instance
    assert (found.value.name, found.value.arguments, found.value.state) == ("posixpath.join", ("a",), {"x": 1})
    assert found.globals == {"posixpath.join"}
