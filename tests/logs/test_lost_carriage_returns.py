"""Logs whose carriage returns were lost on the way: bar stands behind bar in one endless line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs.framing import MAX_LINE_BYTES, LineFramer
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

BAR = "{:>3}%|{}| {}/{} [00:{:02}<01:00,  1.67s/it]"


def bar(done, total=500, width=10):
    return BAR.format(100 * done // total, "█" * (width * done // total), done, total, done % 60)


def test_each_bar_is_a_piece_of_its_own():
    text = bar(1) + bar(2) + bar(3) + " " * 40 + "{'loss': 2.5}\n" + bar(3) + "\n"
    assert LineFramer().feed(text.encode()) == [bar(1), bar(2), bar(3) + " " * 40 + "{'loss': 2.5}", bar(3)]


def test_bars_with_a_name_and_values_are_pieces_of_their_own():
    draws = [f"Epoch 0:  {n}%|#  | {n}/95 [00:10<00:15,  3.70it/s, v_num=0, train_loss={n}.5]" for n in range(1, 9)]
    validation = "Validation DataLoader 0: 100%|###| 2/2 [00:00<00:00,  9.00it/s]"
    text = "".join(draws[:4]) + " " * 8 + validation + " " * 60 + "".join(draws[4:])
    assert [piece.strip() for piece in LineFramer().feed(text.encode() + b"\n")] == [*draws[:4], validation, *draws[4:]]


def test_a_bar_that_the_terminal_cut_ends_where_lightnings_next_one_begins():
    text = "Epoch 0:  10%|#  | 1/95 [00:10<00:15,  3.70it/s, train_lossEpoch 0:  20%|#  | 2/95 [00:10<00:15,  3.70it/s]\n"
    assert [piece[:20] for piece in LineFramer().feed(text.encode())] == ["Epoch 0:  10%|#  | 1", "Epoch 0:  20%|#  | 2"]


@pytest.mark.parametrize("name", ["1|{}|Loss: 1.5: ", "Steps: ", "Train: ", "Fetching 8 files: ", ""])
def test_bars_of_any_name_are_split(name):
    draws = [name.format(done) + bar(done) for done in (7, 8, 9)]
    assert LineFramer().feed("".join(draws).encode() + b"\n") == draws


def test_the_bracket_of_a_prefix_ends_no_bar():
    assert LineFramer().feed(("[22:14:10] " + bar(7) + bar(8) + "\n").encode()) == ["[22:14:10] " + bar(7), bar(8)]


@pytest.mark.parametrize("prefix", ["0: ", " 12: ", "node-3: ", "[17] ", "trainer-1  | "])
def test_a_launchers_prefix_before_a_bar_is_taken_off(prefix):
    assert LineFramer().feed((prefix + bar(7) + "\n" + prefix + "  5% 7/500 [00:10<00:10]\n").encode()) == [
        bar(7), "  5% 7/500 [00:10<00:10]",
    ]  # fmt: skip


def test_a_line_of_bars_beyond_any_cap_is_given_out_whole_and_in_time():
    framer = LineFramer()
    total = 20_000
    text = "".join(bar(n, total) for n in range(1, total + 1)).encode()
    assert len(text) > 10 * MAX_LINE_BYTES
    pieces = framer.feed(text)
    assert len(pieces) > total * 0.9
    pieces += framer.feed(b"  {'loss': 2.5}\n")
    assert pieces[-1].endswith("{'loss': 2.5}")
    assert len(pieces) == total
    assert framer.capped_lines == 0


def test_the_prefix_of_a_line_is_that_of_all_its_bars():
    assert [prefix for _, _, prefix in LineFramer().feed_located(("[rank3]:" + bar(1) + bar(2) + "\n").encode())] == [
        "[rank3]: "
    ] * 2


@given(st.lists(st.sampled_from([bar(7), bar(500), " " * 30, "text", "\n", "Epoch 3:  5%|#| ", "x" * 30_000, "]", "]  9%|"]), max_size=30),
       st.lists(st.integers(1, 40_000), max_size=8))  # fmt: skip
def test_pieces_and_their_places_do_not_depend_on_the_chunks(parts, sizes):
    data = "".join(parts).encode()
    whole = LineFramer()
    expected = whole.feed_located(data) + whole.finish()
    framer, found, start = LineFramer(), [], 0
    for size in sizes:
        found += framer.feed_located(data[start : start + size])
        start += size
        state = json.loads(json.dumps(framer.to_state()))
        framer = LineFramer()
        framer.restore(state)
    found += framer.feed_located(data[start:]) + framer.finish()
    assert found == expected
    assert framer.capped_lines == whole.capped_lines


WATCHDOG = (
    "[rank1]:[E102 03:04:05.123456789 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
)


@pytest.mark.parametrize("size", [1, 50, 10_000])
@pytest.mark.parametrize("end", ["", "\r", "\n"])
def test_a_fault_behind_the_last_bar_is_found_and_the_step_of_that_bar_is_no_sign_of_life(size, end):
    draws = [f"Epoch 0:  {n}%|#  | {n}/95 [00:10<00:15,  3.70it/s, v_num=0, train_loss={n}.5]" for n in range(1, 9)]
    data = (end.join(draws) + end + WATCHDOG + WATCHDOG.replace("ank1", "ank0").replace("Rank 1", "Rank 0")).encode()
    parser, records = Parser(), []
    for start in range(0, len(data), size):
        records += parser.feed(data[start : start + size])
    records += parser.finish()
    assert [record.step for record in records if isinstance(record, Step)] == list(range(1, 9))
    faults = [record for record in records if isinstance(record, Event) and record.kind == "fault"]
    assert [(fault.data["class"], fault.data["ranks_seen"]) for fault in faults] == [("nccl_timeout", [0, 1])]
    assert "survived" not in faults[0].data
