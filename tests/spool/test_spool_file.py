"""The spool's file: exact bytes, exact counts, both or neither, and what happens to a full disk and a damaged file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spool_fakes import event, step, steps

from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.records import Point
from trainvitals.store.encode import check_point
from trainvitals.store.spool_codec import MAX_BATCH_POINTS, ORDERED, decode_batch, encode_batches
from trainvitals.store.spool_file import MAX_REQUEST_POINTS, SpoolFile
from trainvitals.store.spool_tables import Refused

ROOT = Path(__file__).resolve().parents[2]


def waiting_points(file: SpoolFile) -> list[Point]:
    """All points of the queue, taken as a shipper takes them."""
    found = []
    while batches := file.take():
        found.extend(point for batch in batches for point in decode_batch(batch.body))
        file.settle(batches)
    return found


texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=50)
finite = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**63), 2**63 - 1)
times = st.integers(-(2**62), 2**62)
train_points = st.builds(
    lambda run, time_ns, number, loss, tokens: Point(
        "train", {"run": run, "attempt": "1"}, time_ns, {"step": number, "loss": loss, "tokens": tokens, "nonfinite": 0}
    ),
    texts, times, whole, finite, finite | whole,
)  # fmt: skip
event_points = st.builds(
    lambda run, time_ns, text, data: Point(
        "event", {"run": run, "kind": "message", "source": "x"}, time_ns, {"severity": 1, "id": text, "text": text, "json": data}
    ),
    texts, times, st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])),
)  # fmt: skip
node_points = st.builds(
    lambda node, time_ns, flag: Point("node", {"node": node}, time_ns, {"state": "ok", "is_simulated": flag, "gpus": 8}),
    texts, times, st.booleans(),
)  # fmt: skip


@given(st.lists(train_points | event_points | node_points, max_size=20))
def test_points_come_back_bit_by_bit_with_their_types(points):
    for point in points:
        check_point(point)
    batches = list(encode_batches(points))
    back = [point for batch in batches for point in decode_batch(batch.body)]
    assert sorted(map(repr, back)) == sorted(map(repr, points))
    assert [p for p in back if p.measurement == "event"] == [p for p in points if p.measurement == "event"]
    assert all((batch.lane == ORDERED) == (decode_batch(batch.body)[0].measurement == "event") for batch in batches)


@given(st.binary(max_size=200))
def test_damaged_bytes_are_a_value_error_and_nothing_else(body):
    with pytest.raises(ValueError, match="damaged"):
        decode_batch(body)


def test_what_was_appended_is_there_after_the_file_is_opened_again(open_file):
    open_file().append(steps(0, 3), {"watch/r/state": b"\x00\xff"})
    again = open_file()
    assert [point.fields["step"] for point in waiting_points(again)] == [0, 1, 2]
    assert again.load_state("watch/") == {"watch/r/state": b"\x00\xff"}


def test_state_is_forgotten_with_none_and_a_prefix_is_no_pattern(file):
    file.append([], {"a%/x": b"1", "a%/y": b"2", "ab/z": b"3"})
    file.append([], {"a%/y": None})
    assert file.load_state("a%/") == {"a%/x": b"1"}


def test_a_point_that_does_not_fit_refuses_the_whole_append_and_its_state(file):
    with pytest.raises(StoreError, match="no step"):
        file.append([step(1), Point("train", {"run": "r", "attempt": "1"}, 1, {"loss": 1.0})], {"k": b"v"})
    assert file.is_empty() and file.load_state("") == {} and file.counters() == {}


def test_a_request_is_bounded_however_much_waits(file):
    file.append(steps(0, 3 * MAX_REQUEST_POINTS), {})
    batches = file.take()
    assert sum(batch.points for batch in batches) == MAX_REQUEST_POINTS
    assert all(batch.points <= MAX_BATCH_POINTS for batch in batches)


def test_large_points_make_small_requests(file):
    file.append([event(number, "x" * 60_000) for number in range(200)], {})
    batches = file.take()
    assert len(batches) > 1 and sum(batch.points for batch in batches) < 100


def test_the_newest_samples_may_overtake_but_events_never_do(file):
    for number in range(200):
        file.append([step(number), event(number, "e")], {})
    newest = [point for batch in file.take(newest_samples=True) for point in decode_batch(batch.body)]
    assert [p.fields["step"] for p in newest if p.measurement == "train"] == list(range(175, 200))
    assert [p.time_ns for p in newest if p.measurement == "event"] == list(range(25))
    oldest = [point for batch in file.take() for point in decode_batch(batch.body)]
    assert [p.fields["step"] for p in oldest if p.measurement == "train"] == list(range(25))


def test_beyond_the_bound_the_oldest_are_dropped_and_counted_exactly(open_file):
    file = open_file(max_bytes=20_000)
    for first in range(0, 5_000, 10):
        file.append(steps(first, 10), {})
    left = [point.fields["step"] for point in waiting_points(file)]
    count = file.counters()
    assert left == list(range(5_000 - len(left), 5_000)) and 0 < len(left) < 5_000
    assert count["dropped_by_size"] == 5_000 - len(left)
    assert count["appended"] == 5_000 == count["delivered"] + count["dropped_by_size"]
    assert count["waiting"] == count["bytes"] == 0


def test_samples_are_dropped_before_events(open_file):
    file = open_file(max_bytes=20_000)
    file.append([event(number, "kept") for number in range(20)], {})
    for first in range(0, 5_000, 10):
        file.append(steps(first, 10), {})
    kept = waiting_points(file)
    assert sum(point.measurement == "event" for point in kept) == 20


def test_events_alone_are_bounded_too(open_file):
    file = open_file(max_bytes=20_000)
    for number in range(1_000):
        file.append([event(number, f"some text of event {number}")], {})
    kept = [point.time_ns for point in waiting_points(file)]
    assert kept == list(range(1_000 - len(kept), 1_000)) and file.counters()["dropped_by_size"] == 1_000 - len(kept)


def test_one_append_larger_than_the_bound_keeps_its_newest_part(open_file):
    file = open_file(max_bytes=30_000)
    file.append([step(number, loss=number / 7) for number in range(20_000)], {})
    left = [point.fields["step"] for point in waiting_points(file)]
    assert left and left[-1] == 19_999 and file.counters()["dropped_by_size"] == 20_000 - len(left)


def test_points_that_waited_too_long_are_dropped_and_counted(open_file, clock):
    file = open_file(max_age_s=100.0)
    file.append(steps(0, 5), {})
    clock.advance(60)
    file.append(steps(5, 5), {})
    clock.advance(60)
    assert [point.fields["step"] for point in waiting_points(file)] == list(range(5, 10))
    assert file.counters()["dropped_by_age"] == 5


def test_what_is_on_its_way_is_not_dropped(open_file):
    file = open_file(max_bytes=20_000)
    file.append(steps(0, 5), {})
    on_its_way = file.take()
    for first in range(5, 5_005, 10):
        file.append([step(number, loss=number / 7) for number in range(first, first + 10)], {})
    file.settle(on_its_way)
    count = file.counters()
    assert count["delivered"] == 5
    assert count["appended"] == 5 + count["waiting"] + count["dropped_by_size"]


ACTIONS = ["append", "take", "settle", "refuse", "release", "resend", "forget", "later"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 40)), max_size=25))
def test_every_appended_point_is_waiting_delivered_or_counted_as_dropped(tmp_path_factory, actions):
    from trainvitals.clock import ManualClock

    clock = ManualClock()
    file = SpoolFile(tmp_path_factory.mktemp("spool") / "a.spool", clock, max_bytes=3_000, max_age_s=50.0, max_dead_letters=60)
    try:
        number, taken = 0, []
        for action, amount in actions:
            if action == "append":
                points = [step(number + each) if each % 3 else event(number + each, "e") for each in range(amount)]
                file.append(points, {})
                number += amount
            elif action == "take":
                taken = file.take(newest_samples=amount % 2 == 0)
            elif action == "settle":
                file.settle(taken)
                taken = []
            elif action == "refuse":
                file.settle(taken, [Refused(batch.lane, batch.points, "no", batch.body) for batch in taken[:1]])
                taken = []
            elif action == "resend":
                file.resend(None)
            elif action == "forget":
                file.forget([letter.id for letter in file.dead_letters(1)])
            elif action == "release":
                file.release()
                taken = []
            else:
                clock.advance(amount)
            count = file.counters()

            def total(*names, count=count):
                return sum(count.get(name, 0) for name in names)

            assert total("appended") == number
            left = total("waiting", "delivered", "refused", "dropped_by_size", "dropped_by_age")
            assert left == number + total("resent")
            assert total("refused") == total("dead_letters", "resent", "forgotten", "dead_letters_dropped")
            assert total("dead_letters") == sum(letter.points for letter in file.dead_letters(1_000))
            assert count.get("bytes", 0) <= 3_000 + sum(batch.row_bytes for batch in taken)
    finally:
        file.close()


WRITER = """
import json, sys
sys.path.insert(0, sys.argv[2])
from spool_fakes import step
from trainvitals.store.spool_file import SpoolFile
file = SpoolFile(sys.argv[1])
known = file.load_state("last").get("last")
number = int(known) + 1 if known else 0
while True:
    file.append([step(number)], {"last": str(number).encode()})
    print(number, flush=True)
    number += 1
"""


def test_twenty_kills_of_a_writer_lose_no_acknowledged_point_and_tear_no_state(tmp_path):
    path = tmp_path / "a.spool"
    acknowledged = []
    for kill in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        acknowledged.extend(int(process.stdout.readline()) for _ in range(1 + kill * 7 % 31))
        process.send_signal(signal.SIGKILL)
        acknowledged.extend(int(line) for line in process.stdout.read().split("\n")[:-1])
        process.wait()
        process.stdout.close()
    file = SpoolFile(path)
    try:
        last = int(file.load_state("last")["last"])
        kept = [point.fields["step"] for point in waiting_points(file)]
        assert set(acknowledged) <= set(kept)
        assert kept == list(range(last + 1)), "points and state were not kept together"
    finally:
        file.close()


def test_a_full_disk_is_a_sentence_and_the_spool_goes_on_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    file = SpoolFile(disk / "spool" / "a.spool")
    try:
        appended = 0
        with pytest.raises(StoreUnavailable, match=r"The spool .*(full|cannot be read or written)"):
            while True:
                file.append([event(appended, os.urandom(4_000).hex())], {"n": str(appended).encode()})
                appended += 1
        assert appended > 10
        assert file.load_state("n")["n"] == str(appended - 1).encode()
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        file.append([event(appended, "there is room again")], {})
        assert [point.time_ns for point in waiting_points(file)] == list(range(appended + 1))
    finally:
        file.close()
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("damage", ["header", "page", "emptied tables"])
def test_a_damaged_file_is_set_aside_and_a_new_one_takes_over(open_file, damage):
    file = open_file()
    for first in range(0, 3_000, 100):
        file.append([event(number, os.urandom(50).hex()) for number in range(first, first + 100)], {})
    file.close()
    raw = bytearray(file.path.read_bytes())
    if damage == "header":
        raw[:100] = b"\xff" * 100
    elif damage == "page":
        for page in range(1, len(raw) // 4096):
            raw[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    else:
        raw[100:4096] = b"\xff" * 3996
    file.path.write_bytes(raw)
    again = open_file()
    again.append(steps(0, 2), {"k": b"v"})
    assert len(again.damaged_files()) == again.stats().damaged_files == 1
    assert again.damaged_files()[0].read_bytes()[:100] == bytes(raw[:100])
    assert again.load_state("") == {"k": b"v"} and len(waiting_points(again)) == 2


def test_another_programs_database_and_a_newer_version_are_left_alone(tmp_path):
    import sqlite3

    for name, statement in (("other", "CREATE TABLE t (x)"), ("newer", "PRAGMA user_version=99")):
        path = tmp_path / name
        connection = sqlite3.connect(path)
        if name == "newer":
            connection.execute("PRAGMA application_id=1414943568")
        connection.execute(statement)
        connection.commit()
        connection.close()
        file = SpoolFile(path)
        with pytest.raises(StoreError, match="newer version" if name == "newer" else "another program"):
            file.append([step(1)], {})
        file.close()
        assert not list(tmp_path.glob("*damaged*"))


def test_the_numbers_are_plain_json_for_people_who_look_closer(file):
    file.append(steps(0, 3), {})
    assert json.dumps(file.counters())
    stats = file.stats()
    assert (stats.owner, stats.waiting, stats.appended, stats.dropped) == ("test", 3, 3, 0)


def test_a_group_that_shares_a_spool_may_append_and_ship_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        file = SpoolFile(tmp_path / "spool" / "a.spool")
        file.append(steps(0, 1), {})
        with file.shipping() as is_mine:
            assert is_mine
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()}
        file.close()
    finally:
        os.umask(before)
    assert {"a.spool", "a.spool.lock"} <= set(modes) and set(modes.values()) == {0o660}
