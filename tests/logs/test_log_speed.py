"""Reading must not become several times as slow unnoticed; the numbers themselves are those of ``bench/logs.py``."""

import time

from bench.logs import CHUNK_BYTES, megatron_line
from trainvitals.logs.parser import Parser

LINES = 8000
#: About 30 is usual. One literal too general in one table made it 90.
MOST_SPLITS = 70


def cpu_s(work):
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def test_a_line_is_read_in_the_time_of_a_few_dozen_splits():
    text = "".join(megatron_line(step) for step in range(1, LINES + 1))
    data, lines = text.encode(), text.split("\n")

    def split():
        for _ in range(5):
            for line in lines:
                line.split("|")

    def parse():
        parser = Parser()
        for start in range(0, len(data), CHUNK_BYTES):
            parser.feed(data[start : start + CHUNK_BYTES])

    # The best of several turns of each, side by side: what else the machine does hits both.
    turns = [(cpu_s(split) / 5, cpu_s(parse)) for _ in range(6)]
    assert min(took for _, took in turns) < MOST_SPLITS * min(took for took, _ in turns)
