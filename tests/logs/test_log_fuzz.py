"""Random bytes, damaged lines, hostile lines, endless lines, binary files and a writer that rotates: nothing breaks, nothing grows.

``python bench/logs.py --fuzz`` does the first of these with a million lines.
"""

import json
import random
import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logs.mutations import mutated_lines, real_lines
from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.framing import MAX_LINE_BYTES, strip_noise
from trainvitals.logs.parser import Parser
from trainvitals.logs.registry import GRAMMARS
from trainvitals.logs.tail import LogSource
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

FORMATS = ["auto", *GRAMMARS]
MAX_STATE_CHARACTERS = 2 << 20


def checked(records):
    """Each is what the contract says: no NaN among the values, a name for every number, JSON in the data."""
    for record in records:
        if isinstance(record, Step):
            assert record.step >= 0
            assert record.attempt >= 1
            assert all(value - value == 0 for value in record.values.values())
            assert not set(record.values) & set(record.nonfinite)
        else:
            assert isinstance(record, Event)
            json.dumps(record.data, allow_nan=False)
    return records


@pytest.mark.parametrize("format", FORMATS)
def test_thousands_of_damaged_lines_break_nothing_and_what_is_kept_stays_small(format):
    generator = random.Random(f"{format} 1")
    known = real_lines()
    parser = Parser(format)
    for _ in range(5):
        checked(parser.feed(b"\n".join(mutated_lines(generator, 1000, known)) + b"\n"))
        assert len(json.dumps(parser.to_state())) < MAX_STATE_CHARACTERS
    checked(parser.idle() + parser.finish())
    assert parser.counters["failed_lines"] == 0


def test_memory_is_flat_over_tens_of_thousands_of_damaged_lines():
    generator = random.Random(2)
    known = real_lines()
    parser = Parser()
    batches = [b"\n".join(mutated_lines(generator, 1000, known)) + b"\n" for _ in range(10)]
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(3):
            for batch in batches:
                parser.feed(batch)
            sizes.append(tracemalloc.get_traced_memory()[0])
            assert parser.counters["failed_lines"] == 0
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 1 << 20


_EXAMPLES = {name: grammar.example.encode() + b"\n" for name, grammar in GRAMMARS.items()}
_DAMAGED = st.integers(0, 10**6).map(lambda seed: b"\n".join(mutated_lines(random.Random(seed), 6, real_lines())) + b"\n")


@pytest.mark.parametrize("name", GRAMMARS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_records_depend_neither_on_the_chunking_nor_on_a_restart(name, data):
    example = _EXAMPLES[name]
    log = b"".join(
        data.draw(st.lists(st.just(example) | _DAMAGED | st.just(b"\r") | st.binary(max_size=9), min_size=1, max_size=5))
    )
    format = data.draw(st.sampled_from(["auto", name]))
    whole = Parser(format)
    expected = checked(whole.feed(log) + whole.finish())
    assert whole.counters["failed_lines"] == 0
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=6))
    parser = Parser(format)
    records = []
    for start, end in pairwise([0, *sorted(cuts), len(log)]):
        records += parser.feed(log[start:end])
        state = json.loads(json.dumps(parser.to_state()))
        parser = Parser(format)
        parser.restore(state)
    assert records + parser.finish() == expected
    assert parser.counters == whole.counters


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_format_can_be_restarted_at_any_byte_of_its_example(name):
    log = _EXAMPLES[name] * 2
    whole = Parser(name)
    expected = whole.feed(log) + whole.finish()
    for cut in range(0, len(log), 1 if len(log) < 600 else len(log) // 300):
        first, second = Parser(name), Parser(name)
        records = first.feed(log[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert records + second.feed(log[cut:]) + second.finish() == expected


_FILLERS = ("0", " ", "|", "'", '"', "{", "[", "(", "a", ",", ":", "=", "\t", "1e", "a: 1 ", "'a': 1, ", "a=1, ", "0.", "é", "e+")
#: A regular expression that backtracks takes minutes at this length; all that were measured took less than a fiftieth of it.
MAX_LINE_S = 0.5


def hostile(text):
    """The start of a line, then one thing over and over up to the length at which lines are cut, and the end of the line."""
    cuts = [0, *(at for at, sign in enumerate(text) if sign in " |:=,'\"[({"), len(text)]
    for cut in cuts[:: max(1, len(cuts) // 6)]:
        for filler in _FILLERS:
            yield text[:cut] + (filler * MAX_LINE_BYTES)[: MAX_LINE_BYTES - len(text)] + text[cut:]
        if cut:
            yield (text[:cut] * MAX_LINE_BYTES)[:MAX_LINE_BYTES]


def slowest(read, texts):
    took = []
    for text in texts:
        began_s = time.process_time()
        read(text)
        took.append((time.process_time() - began_s, text[:100]))
    return max(took)


@pytest.mark.parametrize("name", GRAMMARS)
def test_no_line_takes_a_format_long(name):
    grammar = GRAMMARS[name]
    reader = grammar(LineTimes())

    def read(text):
        grammar.claims(text)
        reader.feed(text)

    took_s, text = slowest(read, (text for line in grammar.example.splitlines()[:4] for text in hostile(line)))
    assert took_s < MAX_LINE_S, text


def test_no_line_takes_the_fault_table_the_times_or_the_framing_long():
    faults, times = Faults(LineTimes()), LineTimes()
    literals = [text for literal in Faults.LITERALS for text in (literal * 4000, *(f"{literal} {filler * MAX_LINE_BYTES}" for filler in "0 a:'"), f"{'a' * MAX_LINE_BYTES} {literal}")]  # fmt: skip
    took_s, text = slowest(faults.feed, literals)
    assert took_s < MAX_LINE_S, text
    noise = ["\x1b]" * 30_000, "\x1b[" * 30_000, "\x1b[" + "0;" * 30_000, "\x1b]" + "a" * 60_000, *hostile("[node12:3]: 12: [rank3]: "), *hostile("(Actor(x) pid=1, ip=1) 03:04:05.123 ")]  # fmt: skip
    took_s, text = slowest(strip_noise, noise)
    assert took_s < MAX_LINE_S, text
    took_s, text = slowest(times.find, hostile("2026-01-02 03:04:05.123456 01/02 03:04:05 W0102 03:04:05.1"))
    assert took_s < MAX_LINE_S, text


def test_a_line_of_200_mb_is_cut_and_counted_and_takes_no_memory():
    parser = Parser()
    parser.feed(b"iter 1: loss 3.0, time 1.0ms\n")
    chunk = b"step 2 of what never ends, loss " * (1 << 15)
    tracemalloc.start()
    try:
        for _ in range(200):
            assert parser.feed(chunk) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    records = parser.feed(b"\niter 3: loss 3.0, time 1.0ms\n")
    assert [record.step for record in records if isinstance(record, Step)] == [3]
    assert parser.counters["capped_lines"] == 1
    assert peak < 16 << 20


def test_a_binary_file_in_the_middle_of_a_log_costs_no_step_after_it():
    line = "iter {}: loss 3.0, time 1.0ms, mfu 1.0%\n"
    before = "".join(line.format(step) for step in range(1, 50)).encode()
    behind = "".join(line.format(step) for step in range(50, 100)).encode()
    binary = random.Random(3).randbytes(3 << 20)
    parser = Parser()
    data = before + binary + b"\n" + behind
    records = [record for start in range(0, len(data), 1 << 16) for record in parser.feed(data[start : start + (1 << 16)])]
    steps = [(record.attempt, record.step) for record in checked(records) if isinstance(record, Step)]
    assert steps == [(1, step) for step in range(1, 100)]


_WRITER = """
import os, sys
path, steps, lines, shifts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "shift"
file = open(path, "a")
rotated = 0
for step in range(steps):
    file.write(f"iter {step}: loss 3.0, time 1.0ms, mfu 1.0%\\n")
    if step % 7 == 0:
        file.flush()
    if step % lines == lines - 1:
        file.close()
        if shifts:
            for number in range(rotated, 0, -1):
                os.rename(f"{path}.{number}", f"{path}.{number + 1}")
            os.rename(path, f"{path}.1")
        else:
            os.rename(path, f"{path}.{rotated}")
        rotated += 1
        file = open(path, "a")
file.close()
"""


@pytest.mark.parametrize("how", ["keep", "shift"])
def test_a_writer_that_rotates_while_it_is_followed_loses_nothing_and_doubles_nothing(how, tmp_path):
    path = tmp_path / "train.log"
    total = 40_000
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(total), "1000", how]) as writer:
        source = LogSource([str(tmp_path / "train.log*")])
        seen = []
        quiet, until_s = 0, time.monotonic() + 60
        # A busy machine lists the files less often: some looks may find nothing although more is there.
        while quiet < 3 and time.monotonic() < until_s:
            is_over = writer.poll() is not None
            records = [record for _, record in source.poll()]
            seen += [record.step for record in records if isinstance(record, Step)]
            quiet = quiet + 1 if is_over and not records and len(seen) >= total else 0
        counters = source.counters
        source.close()
    assert writer.returncode == 0
    assert sorted(seen) == list(range(total))
    assert counters["files_beyond_limit"] == counters["unreadable"] == 0


def test_a_log_that_is_read_by_the_command_survives_what_the_parser_survives(tmp_path):
    path = Path(tmp_path / "damaged.log")
    path.write_bytes(b"iter 1: loss 3.0, time 1.0ms\n" * 300 + b"\n".join(mutated_lines(random.Random(4), 3000)))
    done = subprocess.run([sys.executable, "-m", "trainvitals", "parse", str(path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["type"] in ("step", "event") for line in done.stdout.decode().splitlines())
