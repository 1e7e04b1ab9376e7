"""A full-size line of Megatron-LM, and what its grammar makes of lines."""

from trainvitals.logs.grammars.megatron import Megatron
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

FULL = (
    " [2026-01-02 03:04:05.123456] iteration       30/    5000 | consumed samples:          960 | elapsed time per iteration (ms): 900.5 | "
    "throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 3.000000E-05 | global batch size:    32 | lm loss: 4.500000E+00 | "
    "load_balancing_loss: 1.000000E+00 | mtp_1 loss: 5.100000E+00 | loss scale: 1.0 | grad norm: 1.750 | num zeros: 0.0 | "
    "params norm: 123.450 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def read(lines, grammar=Megatron):
    reader = grammar(LineTimes())
    return [record for line in lines for record in reader.feed(line)] + reader.finish()


def steps(lines):
    return [record for record in read(lines) if isinstance(record, Step)]


def events(lines):
    return [record for record in read(lines) if isinstance(record, Event)]


def values(line):
    (step,) = steps([line])
    return step.values


def parse(text):
    parser = Parser()
    records = parser.feed(text.encode()) + parser.finish()
    return [r for r in records if isinstance(r, Step)], [r for r in records if isinstance(r, Event)]
