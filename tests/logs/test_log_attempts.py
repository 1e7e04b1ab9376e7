"""Starts of the trainer: numbers, keys, rewinds, repetitions; and records that do not depend on how bytes arrive."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"


def lines(steps, loss=3.0):
    return "".join(f"iter {step}: loss {loss}, time 1.0ms, mfu 1.0%\n" for step in steps).encode()


def attempts_of(data):
    parser = Parser()
    records = parser.feed(data) + parser.finish()
    steps = [(record.attempt, record.step) for record in records if isinstance(record, Step)]
    starts = [record for record in records if isinstance(record, Event) and record.kind == "attempt_start"]
    return parser, steps, starts


def test_a_large_rewind_is_a_new_attempt():
    _, steps, starts = attempts_of(lines([*range(190, 213), 201, 202, 203]))
    assert steps[-4:] == [(1, 212), (2, 201), (2, 202), (2, 203)]
    assert [(start.attempt, start.data["first_step"], start.data["source"]) for start in starts] == [
        (1, 190, "log"),
        (2, 201, "log"),
    ]


def test_lines_that_all_ranks_print_are_one_point_even_out_of_order():
    parser, steps, starts = attempts_of(lines([1, 1, 1, 2, 3, 2, 2, 4, 3, 5]))
    assert steps == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]
    assert len(starts) == 1
    assert parser.counters["repeated_steps"] == 5
    assert parser.ranks_seen == 3


def test_the_first_of_repeated_lines_is_kept():
    parser = Parser()
    records = parser.feed(lines([4], loss=7.6) + lines([4], loss=9.9))
    assert [record.values["loss"] for record in records if isinstance(record, Step)] == [7.6]


def test_a_late_point_stays_in_its_attempt():
    _, steps, _ = attempts_of(lines([100, 110, 120, 140, 130, 150]))
    assert steps == [(1, step) for step in (100, 110, 120, 140, 130, 150)]


def test_one_step_beyond_the_buffer_is_a_rewind():
    run = list(range(1, 21))
    assert attempts_of(lines([*run, 15]))[1][-1] == (1, 20)
    assert attempts_of(lines([*run, 14]))[1][-1] == (2, 14)


def test_a_restart_after_a_few_points_is_seen_by_their_spacing():
    assert attempts_of(lines([500, 510, 1]))[1] == [(1, 500), (1, 510), (2, 1)]


def titan(steps, rank="", seconds=0):
    return "".join(
        f"{rank}[titan] 2026-01-02 03:{step // 60 + seconds // 60:02d}:{(step + seconds) % 60:02d},{len(rank):03d} - root - INFO - step: {step:2d}  loss:  7.60000  "
        "grad_norm:  3.5000  memory: 40.50GiB(51.20%)  tps: 9,050  tflops: 280.71  mfu: 28.39%\n"
        for step in steps
    )


def test_old_steps_of_a_rank_that_writes_in_blocks_are_no_rewind():
    burst = "".join(titan(range(start, start + 20)) * 8 for start in range(1, 200, 20))
    parser, steps, starts = attempts_of(burst.encode())
    assert steps == [(1, step) for step in range(1, 201)]
    assert len(starts) == 1
    assert parser.counters["repeated_steps"] == 7 * 200


def test_a_rewind_is_newer_than_what_it_repeats():
    data = titan(range(100, 160)) + titan(range(120, 140), seconds=300)
    _, steps, starts = attempts_of(data.encode())
    assert [step for attempt, step in steps if attempt == 2] == list(range(120, 140))
    assert len(starts) == 2


def test_a_restart_in_a_container_of_another_time_zone_is_a_rewind():
    line = "2026-01-02 {:02d}:04:{:02d},001 - root - INFO - step: {}  loss:  7.6  grad_norm:  3.5  memory: 40.5GiB(51.20%)  tps: 9,050  tflops: 2.7  mfu: 28.39%\n"
    data = "".join(line.format(11, step, step) for step in range(1, 50)) + "".join(
        line.format(3, step, step) for step in range(20, 40)
    )
    _, steps, _ = attempts_of(data.encode())
    assert [step for attempt, step in steps if attempt == 2] == list(range(20, 40))


@pytest.mark.parametrize("prefix", ["[rank{}]:", "{}: ", "[default{}]:", "gpu{}: ", "[17] [rank{}]: ", "(Actor pid={}) "])
def test_old_steps_of_another_rank_are_no_rewind_where_a_launcher_names_ranks(prefix):
    def block(rank, start, end):
        return "".join(prefix.format(rank) + line + "\n" for line in lines(range(start, end)).decode().splitlines())

    data = "".join(block(rank, start, start + 20) for start in range(1, 200, 20) for rank in range(8))
    _, steps, starts = attempts_of(data.encode())
    assert steps == [(1, step) for step in range(1, 201)]
    assert len(starts) == 1
    _, steps, starts = attempts_of((data + block(3, 101, 110)).encode())
    assert [step for attempt, step in steps if attempt == 2] == list(range(101, 110))
    assert len(starts) == 2


def test_one_rank_that_prints_rewinds_even_after_a_restart_elsewhere():
    first = "".join("[default7]:" + line + "\n" for line in lines(range(1, 60)).decode().splitlines())
    second = "".join("[default3]:" + line + "\n" for line in lines(range(31, 60)).decode().splitlines())
    _, steps, _ = attempts_of((first + second).encode())
    assert [step for attempt, step in steps if attempt == 2] == list(range(31, 60))


def test_what_is_remembered_of_ranks_that_repeat_a_step_is_bounded():
    parser = Parser()
    parser.feed(lines(range(10)))
    for first in range(0, 20_000, 4_000):
        parser.feed(b"".join(b"[rank%d]: %s" % (rank, lines([9])) for rank in range(first, first + 4_000)))
    assert parser.counters["repeated_steps"] == 20_000
    assert len(json.dumps(parser.to_state())) < 400_000


def test_a_load_line_makes_even_the_same_step_a_new_attempt():
    line = " iteration {}/ 900 | lm loss: 2.0E+00 | number of skipped iterations: 0 |\n"
    load = "  successfully loaded checkpoint from /c [ t 0 ] at iteration 211\n"
    _, steps, starts = attempts_of((line.format(211) + line.format(212) + load + line.format(212)).encode())
    assert steps == [(1, 211), (1, 212), (2, 212)]
    assert starts[1].data["key"] != starts[0].data["key"]


def test_an_attempt_column_names_the_attempts():
    _, steps, _ = attempts_of((DATA / "curve_attempts.csv").read_bytes())
    assert steps == [(1, 210), (1, 211), (1, 212), (2, 201), (2, 202)]


def test_the_keys_of_a_log_stay_when_it_grows():
    data = lines([*range(300), *range(100, 400)])
    short = [start.data["key"] for start in attempts_of(data[:9000])[2]]
    long = [start.data["key"] for start in attempts_of(data)[2]]
    assert long[: len(short)] == short
    assert long[0].rpartition("/")[0] == long[1].rpartition("/")[0]
    assert [key.rpartition("/")[2] for key in long] == ["0", "1"]


def test_each_header_of_the_hook_is_an_attempt_and_a_smaller_step_a_rewind():
    _, steps, starts = attempts_of((DATA / "hook.jsonl").read_bytes())
    assert [attempt for attempt, _ in steps] == [1] * 6 + [2] * 3 + [3]
    assert [start.data["key"] for start in starts] == [
        "node1/100/1767323045000000000",
        "node1/200/1767323145000000000",
        "node1/200/1767323145000000000/1",
    ]
    assert starts[1].data | {"source": "hook", "pid": 200, "host": "node1", "first_step": 4} == starts[1].data


def test_events_before_the_first_step_of_an_attempt_have_no_number():
    parser = Parser()
    header = '{"type":"header","schema":1,"pid":1,"host":"a","started_ns":5}\n'
    event = '{"type":"event","kind":"phase","data":{"phase":"start","state":"begin"}}\n'
    step = '{"type":"step","step":1,"values":{"loss":1}}\n'
    records = parser.feed((header + event + step + event + header.replace("5", "6") + event).encode())
    assert [(r.kind, r.attempt) for r in records if isinstance(r, Event)] == [
        ("phase", None), ("attempt_start", 1), ("phase", 1), ("phase", None),
    ]  # fmt: skip


_SAMPLES = sorted(DATA.iterdir())
_PIECES = [line for path in _SAMPLES for line in path.read_bytes().splitlines(keepends=True)]
_LOGS = st.one_of(
    st.sampled_from([path.read_bytes() for path in _SAMPLES]),
    st.lists(st.sampled_from(_PIECES) | st.binary(max_size=40), max_size=40).map(b"".join),
    st.lists(st.sampled_from(_PIECES).flatmap(lambda line: st.integers(0, len(line)).map(lambda cut: line[:cut] + b"\n")), max_size=30).map(b"".join),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(data=_LOGS, cuts=st.lists(st.integers(0, 1_000_000), max_size=6))
def test_records_do_not_depend_on_the_chunking_nor_on_a_restart(data, cuts):
    whole = Parser()
    expected = whole.feed(data) + whole.finish()
    json.dumps([record.data for record in expected if isinstance(record, Event)], allow_nan=False)
    assert all(value - value == 0 for record in expected if isinstance(record, Step) for value in record.values.values())
    parser = Parser()
    records = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        records += parser.feed(data[start:end])
        state = json.loads(json.dumps(parser.to_state()))
        parser = Parser()
        parser.restore(state)
    assert records + parser.finish() == expected
    assert parser.counters == whole.counters


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=400), format=st.sampled_from(["megatron", "huggingface", "nanogpt", "hook", "csv", "trainer_state"])
)
def test_no_bytes_make_a_grammar_raise(data, format):
    parser = Parser(format)
    assert all(isinstance(record, Event) or record.step >= 0 for record in parser.feed(data) + parser.finish())
    assert parser.counters["failed_lines"] == 0


def test_every_byte_of_a_log_is_a_good_place_to_restart():
    data = (DATA / "huggingface_bar.log").read_bytes()[:900]
    whole = Parser()
    expected = whole.feed(data) + whole.finish()
    for cut in range(len(data)):
        first = Parser()
        records = first.feed(data[:cut])
        second = Parser()
        second.restore(json.loads(json.dumps(first.to_state())))
        assert records + second.feed(data[cut:]) + second.finish() == expected


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["step", "event", "header", "nan"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = (
    "type",
    "step",
    "kind",
    "time_ns",
    "values",
    "nonfinite",
    "data",
    "text",
    "severity",
    "lost",
    "errors",
    "schema",
    "host",
    "pid",
)


@settings(max_examples=120, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.sampled_from(["step", "event", "header"]), st.dictionaries(st.sampled_from(_KEYS), _JSON)), max_size=6
    )
)
def test_no_hook_record_raises_or_lets_through_what_json_or_the_store_cannot_hold(records):
    parser = Parser("hook")
    data = "\n".join(json.dumps({"type": kind} | fields) for kind, fields in records) + "\n"
    for record in parser.feed(data.encode()):
        if isinstance(record, Step):
            assert all(value - value == 0 for value in record.values.values())
        else:
            json.dumps(record.data, allow_nan=False, ensure_ascii=False).encode()
            record.text.encode()


def test_a_deeply_nested_hook_record_is_cut_and_half_a_character_replaced():
    parser = Parser("hook")
    nested = '{"a":' * 900 + "1" + "}" * 900
    text = f'{{"type":"event","kind":"message","text":"\\ud83d","data":{nested}}}\n'
    (event,) = parser.feed(text.encode())
    assert event.text == "?"
    json.dumps(event.data)


def test_a_format_that_was_set_since_wins_over_the_one_that_was_found():
    found = Parser()
    found.feed(lines([1, 2]))
    again = Parser("megatron")
    again.restore(found.to_state())
    assert again.format == "megatron"
