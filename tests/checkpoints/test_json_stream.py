"""Long JSON documents read in little memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from checkpoint_makers import huggingface
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.checkpoints import inspect, json_stream, parts
from trainvitals.checkpoints.json_file import BadJson
from trainvitals.records import CheckpointState


class Bytes:
    """A reader of bytes in memory."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.size = len(raw)

    def read(self, offset: int, length: int) -> bytes:
        return self._raw[offset : offset + length]


def read(raw: bytes | str, monkeypatch=None, chunk=None):
    if chunk:
        monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    return json_stream.read(Bytes(raw.encode() if isinstance(raw, str) else raw))


def abridged(document: dict) -> dict:
    return {
        key: {} if isinstance(value, dict) else value[-json_stream.KEPT_ELEMENTS :] if isinstance(value, list) else value
        for key, value in document.items()
    }


SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=25) | st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=40
)


@settings(deadline=None, max_examples=100)
@given(
    document=st.dictionaries(st.text(max_size=8), VALUES, max_size=6), chunk=st.integers(1, 60), indent=st.sampled_from([None, 2])
)
def test_what_is_kept_is_what_the_whole_document_says(document, chunk, indent):
    raw = json.dumps(document, indent=indent, ensure_ascii=bool(chunk % 2)).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        assert read(raw, patch, chunk) == abridged(document)


@settings(deadline=None, max_examples=150)
@given(
    document=st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
    at=st.floats(0, 1),
    other=st.sampled_from(list('{}[],:"0.eE-+ntf\\\x00 ')),
    chunk=st.integers(1, 60),
)
def test_a_changed_character_is_judged_as_the_strict_reader_judges_it(document, at, other, chunk):
    text = json.dumps(document)
    place = int(at * len(text))
    text = text[:place] + other + text[place + 1 :]
    try:
        whole = json.loads(text)
        is_good = isinstance(whole, dict) and len(json.loads(text, object_pairs_hook=list)) == len(whole)
        # Only keys at the top are compared.
    except ValueError:
        is_good = False
    with pytest.MonkeyPatch.context() as patch:
        try:
            found = read(text, patch, chunk)
        except BadJson:
            assert not is_good
        else:
            assert is_good
            assert found == abridged(whole)


@pytest.mark.parametrize(
    "text",
    ["", "1", '"a"', "{", '{"a":1', '{"a":1}x', '{"a":1}{}', '{"a":1,}', '{"a" 1}', '{a:1}', '{"a":[1,]}', '{"a":[1}', '{"a":01}',
     '{"a":1,"a":2}', '{"a":tru}', '{"a":"\n"}', '{"a":"\\x"}', "{" * 5, '{"a":' + "[" * 300 + "]" * 300 + "}", '{"a":' + "9" * 5000 + "}"],
)  # fmt: skip
def test_what_is_no_object_is_refused(text):
    with pytest.raises(BadJson):
        read(text)


@pytest.mark.parametrize("text", ["[]", '[1,[2,{}],{"a":[3]}]'])
def test_a_list_is_well_formed_and_keeps_nothing(text):
    assert read(text) == {}


def test_names_of_python_for_what_json_has_no_number_for_are_accepted():
    assert read('{"a":[NaN,-Infinity],"b":Infinity}')["b"] == float("inf")


def test_a_long_history_costs_little_memory():
    line = b'{"epoch": 0.1, "grad_norm": 1.25, "learning_rate": 0.0003, "loss": 2.5, "step": 100},\n'
    raw = b'{"global_step": 7, "log_history": [' + line * 40_000 + b'{"loss": 1.5, "step": 7}], "max_steps": 9}'
    tracemalloc.start()
    found = read(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["global_step"] == 7
    assert found["max_steps"] == 9
    assert len(found["log_history"]) == json_stream.KEPT_ELEMENTS
    assert found["log_history"][-1] == {"loss": 1.5, "step": 7}
    assert peak < 8 * json_stream.CHUNK_BYTES


def test_a_long_trainer_state_is_read_and_its_step_is_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "STREAMED_FROM_BYTES", 1000)
    root = huggingface(tmp_path, 500)
    history = ",".join(f'{{"step": {step}, "loss": 2.5}}' for step in range(500))
    marker = root / "trainer_state.json"
    marker.write_text(f'{{"global_step": 500, "log_history": [{history}]}}')
    assert inspect(str(root)).state is CheckpointState.VERIFIED
    assert inspect(str(root)).loss == 2.5
    marker.write_text(f'{{"global_step": 400, "log_history": [{history}]}}')
    assert inspect(str(root)).state is CheckpointState.CORRUPT
    marker.write_text(f'{{"global_step": 500, "log_history": [{history}')
    assert inspect(str(root)).state is CheckpointState.CORRUPT
