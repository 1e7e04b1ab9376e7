"""Bytes to lines: ends, prefixes, terminal codes, torn and overlong lines."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.framing import MAX_LINE_BYTES, LineFramer, strip_noise


@pytest.mark.parametrize(
    "prefix",
    [
        "[default7]:",
        "[default7]: ",
        "[rank3]:",
        "[node12:3]:",
        "12: ",
        " 0: ",
        "gpu250: ",
        "node-r7i4n5: ",
        "[17] ",
        "[70001] ",
        "(Actor pid=123) ",
        "(TrainWorker(x) pid=1, ip=10.0.0.1) ",
        "03:04:05.123 ",
        "[1,0]<stdout>:",
        "[1,12]<stderr>: ",
        "[1,mpirank:3,algo-2]<stdout>:",
        "[pod/llama-worker-3/trainer] ",
        "[default7]:gpu250: ",
        "\x1b[32m[rank3]:\x1b[0m",
    ],
)
def test_a_launcher_prefix_is_taken_off(prefix):
    assert strip_noise(prefix + "iteration 1/ 2 | x: 1 |") == "iteration 1/ 2 | x: 1 |"


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-02 03:04:05,386] [INFO] x",
        "1: 2",
        "12: 0.5",
        "3: -0.5",
        "step1: loss 3.0",
        "iter12: loss",
        "iter 120: loss 3.9000, time 500.25ms",
        "s:150 trl:5.4321",
        '{"type":"step","step":1}',
        "2026-01-02,1,2",
        "time (ms) | forward: 1.0",
        "[1][40/500] lr: 1",
        "step-100 | loss: 2.5",
    ],
)
def test_real_content_is_never_taken_for_a_prefix(line):
    assert strip_noise(line) == line


def test_a_carriage_return_ends_a_piece_and_colours_vanish():
    framer = LineFramer()
    assert framer.feed(b"\r 8%|#  | 38/500 [1:10<14:11]\r\x1b[1mnext\x1b[0m\r\nlast\n") == [
        " 8%|#  | 38/500 [1:10<14:11]",
        "next",
        "last",
    ]


def test_a_torn_last_line_is_read_when_it_is_complete():
    framer = LineFramer()
    assert framer.feed(b"iteration 3") == []
    assert framer.has_torn_line
    assert framer.feed(b"0/ 50\n") == ["iteration 30/ 50"]


def test_an_overlong_line_is_cut_and_counted_and_the_next_one_is_whole():
    framer = LineFramer()
    assert [len(text) for text in framer.feed(b"a" * (MAX_LINE_BYTES * 3) + b"\nnext\n")] == [MAX_LINE_BYTES, 4]
    assert framer.capped_lines == 1


def test_the_hole_of_a_truncated_log_is_no_overlong_line():
    framer = LineFramer()
    assert framer.feed(b"\0" * (MAX_LINE_BYTES * 2) + b"iteration\n") == ["iteration"]
    assert framer.capped_lines == 0


def test_invalid_utf8_is_replaced():
    assert LineFramer().feed(b"loss \xff\xfe 1\n") == ["loss \ufffd\ufffd 1"]


def test_the_mark_that_some_editors_put_in_front_of_a_file_is_taken_off():
    assert LineFramer().feed(b'\xef\xbb\xbf{"step": 1}\nx\xef\xbb\xbf\n') == ['{"step": 1}', "x\ufeff"]


_NOISY = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\0",
            b"\x1b[0m",
            b"12: ",
            b"[rank1]:",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\xef\xbb",
            "é".encode(),
            b"x" * 40_000,
            b" ",
        ]
    )
    | st.binary(max_size=30),
    max_size=30,
).map(b"".join)


@given(data=_NOISY, cuts=st.lists(st.integers(0, 400_000), max_size=8))
def test_pieces_do_not_depend_on_the_chunking_nor_on_a_restart(data, cuts):
    whole = LineFramer()
    expected = [*whole.feed_located(data), *whole.finish()]
    framer = LineFramer()
    pieces = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        pieces += framer.feed_located(data[start:end])
        state = json.loads(json.dumps(framer.to_state()))
        framer = LineFramer()
        framer.restore(state)
    assert [*pieces, *framer.finish()] == expected
    assert framer.capped_lines == whole.capped_lines
