"""Megatron-LM's golden values, and documents that stand on one long line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.cli.parse import read_log
from trainvitals.logs.grammars.golden_json import GoldenJson
from trainvitals.logs.long_json import broken_into_lines, is_long_document
from trainvitals.logs.parser import Parser
from trainvitals.records import Step

GOLDEN = {
    "lm loss": {
        "start_step": 1,
        "end_step": 6,
        "step_interval": 5,
        "values": {"1": 10.5, "2": "nan", "3": 10.25, "4": float("nan")},
    },
    "num-zeros": {"start_step": 1, "end_step": 6, "step_interval": 5, "values": {"1": 7.0, "2": "nan", "3": 9.0}},
    "iteration-time": {"start_step": 1, "end_step": 6, "step_interval": 5, "values": {"1": 4.5, "2": "nan", "3": 0.5}},
}


def steps_of(data):
    parser = Parser()
    records = parser.feed(data if isinstance(data, bytes) else data.encode()) + parser.finish()
    return parser, [record for record in records if isinstance(record, Step)]


@pytest.mark.parametrize("options", [{"indent": 4}, {"indent": 1}, {}, {"separators": (",", ":")}])
def test_golden_values_are_read_however_they_are_printed_and_text_nan_is_not_logged(options):
    parser, steps = steps_of(json.dumps(GOLDEN, **options))
    assert parser.format == "golden_json"
    assert [(step.step, dict(step.values)) for step in steps] == [
        (1, {"loss": 10.5, "num_zeros": 7.0, "step_time_s": 4.5}),
        (3, {"loss": 10.25, "num_zeros": 9.0, "step_time_s": 0.5}),
        (4, {}),
    ]
    assert steps[2].nonfinite == {"loss": "nan"}


def test_older_files_list_their_values_at_an_interval():
    old = {
        "lm loss": {"start_step": 0, "end_step": 15, "step_interval": 5, "values": [10.5, 10.25, 10.0]},
        "iteration_timing_avg": 0.5,
    }
    for indent in (None, 2):
        assert [(step.step, step.values["loss"]) for step in steps_of(json.dumps(old, indent=indent))[1]] == [
            (0, 10.5),
            (5, 10.25),
            (10, 10.0),
        ]


@pytest.mark.parametrize(
    "line",
    ['"lm loss": {', '{"step": 1, "loss": 2}', '{"start_step": 1, "loss": 2}', "start_step: 1, end_step: 5", '"start_step": x'],
)
def test_what_only_resembles_golden_values_is_not_claimed(line):
    assert not GoldenJson.claims(line)


def test_documents_on_one_line_beyond_the_cap_are_read_whole(tmp_path):
    golden = {
        "lm loss": {
            "start_step": 1,
            "end_step": 9000,
            "step_interval": 1,
            "values": {str(n): 10 - n / 1000 for n in range(1, 9001)},
        }
    }
    state = {
        "best_metric": None,
        "log_history": [{"epoch": n / 10, "loss": 3.0, "step": n, "note": 'a "{[,]}" b\\'} for n in range(1, 9001)],
    }
    for name, document in (("golden.json", golden), ("trainer_state.json", state)):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        assert path.stat().st_size > 65536
        steps = [record for _, records in read_log(str(path)) for record in records if isinstance(record, Step)]
        assert [step.step for step in steps] == list(range(1, 9001))


@given(
    st.recursive(
        st.text(alphabet='ab"\\{}[],: é', max_size=6) | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\{,', max_size=3), inner, max_size=3),
        max_leaves=12,
    ),
    st.integers(1, 7),
)
def test_breaking_a_document_into_lines_changes_nothing_of_it(document, size):
    data = json.dumps(document).encode()
    broken = b"".join(broken_into_lines(data[at : at + size] for at in range(0, len(data), size)))
    assert json.loads(broken) == document
    assert not is_long_document(data)


@given(st.data())
def test_any_cut_with_state_saved_and_restored_gives_the_same_records(data):
    text = json.dumps(GOLDEN, indent=data.draw(st.sampled_from([None, 2]))).encode()
    at = data.draw(st.integers(0, len(text)))
    first, second = Parser(), Parser()
    first.feed(text[:at])
    second.restore(json.loads(json.dumps(first.to_state(), allow_nan=False)))
    second.feed(text[at:])
    assert [record.step for record in second.finish() if isinstance(record, Step)] == [1, 3, 4]
