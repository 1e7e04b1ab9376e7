"""Formats that people write down themselves, and patterns that would hang another engine."""

import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import SettingsError
from trainvitals.logs.grammars.home_made import make_grammar
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

PATTERN = r"update (?P<step>[\d,]+): (?:xent (?P<loss>\S+) lr (?P<lr>\S+) took (?P<step_time_ms>\S+)ms(?: sps (?P<Words_Per_s>\S+))?|dev (?P<validation_loss>\S+))"


def grammar(pattern, name="ours"):
    return make_grammar(name, SimpleNamespace(pattern=pattern))


def parse(text, pattern=PATTERN, format="auto"):
    parser = Parser(format, custom={"ours": grammar(pattern)})
    records = parser.feed(text.encode()) + parser.finish()
    return (
        parser,
        [r for r in records if isinstance(r, Step)],
        [r for r in records if isinstance(r, Event) and r.kind == "message"],
    )


def test_a_home_made_log_is_found_by_itself_and_its_groups_are_metrics():
    parser, steps, events = parse(
        "starting\n2026-01-02 03:04:05 update 1,200: xent 2.5 lr 1e-4 took 250.0ms sps 11.5K\nupdate 1,201: dev 2.75\n"
        "update 1,202: xent nan lr 1e-4 took 250.0ms\n"
    )
    assert parser.format == "ours"
    assert [(step.step, dict(step.values), step.nonfinite) for step in steps] == [
        (1200, {"loss": 2.5, "lr": 1e-4, "step_time_s": 0.25, "words_per_s": 11500.0}, {}),
        (1202, {"lr": 1e-4, "step_time_s": 0.25}, {"loss": "nan"}),
    ]
    assert steps[0].time_ns == 1_767_323_045_000_000_000
    assert [(event.step, event.data) for event in events] == [(1201, {"validation_loss": 2.75})]


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1770000000.5", 1_770_000_000_500_000_000), ("2026-02-02T02:40:00Z", 1_770_000_000_000_000_000), ("never", None)],
)
def test_a_group_named_time_is_the_time(text, ns):
    _, steps, _ = parse(f"{text} s=1 l=2\n", r"(?P<time>\S+) s=(?P<step>\d+) l=(?P<loss>\S+)", "ours")
    assert [step.time_ns for step in steps] == [ns]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", r"\[formats.ours\] needs a pattern"),
        (r"(?P<loss>\S+)", "needs a group named step"),
        (r"(?P<step>\d+)", "names no metric"),
        (r"(?P<step>\d+", "missing \\)"),
        (r"(?=x)(?P<step>\d+) (?P<loss>\d+)", "Look-around and back-references do not exist"),
        (r"(?P<step>\d+) (?P<step_time_s>\d+) (?P<step_time_ms>\d+)", "two groups of the pattern name the same metric"),
        (r"(?P<step>\d+) (?P<loss>\d+) " + "x" * 3000, "at most 2000"),
        (r"(?P<step>\d+) (?P<loss>((a{1,100}){1,100}){1,100})", "no regular expression of RE2"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_table_and_what_to_do(pattern, told):
    with pytest.raises(SettingsError, match=told):
        grammar(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+(?P<step>\d+) (?P<loss>\S+)$",
        r"(?P<step>\d+)(.*.*.*.*.*)=(?P<loss>\d+)$",
        r"(\w*\s*)*(?P<step>\d+)\s(?P<loss>x)$",
        r"^(([a-z0-9 ])+.)+[A-Z]([a-z0-9 ])+(?P<step>\d+)(?P<loss>\d+)$",
        r"(?:a?){200}(?:a|1| ){200}(?P<step>\d+)!(?P<loss>\d+)",
    ],
)
@pytest.mark.parametrize("unit", ["a", "1", "1 ", "a1", " "])
def test_a_hostile_line_against_a_nasty_pattern_takes_less_than_50_ms(pattern, unit):
    ours = grammar(pattern)(LineTimes())
    line = (unit * 65536)[:65535] + "!"
    ours.feed(line)
    start = time.process_time()
    ours.feed(line)
    assert time.process_time() - start < 0.05


def test_a_step_that_is_no_whole_number_is_counted_and_a_line_without_a_value_is_nothing():
    ours = grammar(r"s (?P<step>\S+) l (?P<loss>\S+)")(LineTimes())
    assert ours.feed("s x l 1") == []
    assert ours.bad_records == 1
    assert ours.feed("s 1 l n/a") == []
    assert not ours.claims("s 1 l n/a")


@given(st.text(max_size=100))
def test_no_line_raises(line):
    grammar(PATTERN)(LineTimes()).feed("update " + line)


def test_state_is_kept_by_the_parser_over_a_restart():
    ours = {"ours": grammar(PATTERN)}
    first, second = Parser(custom=ours), Parser(custom=ours)
    first.feed(b"update 1: xent 2.5 lr 1 took 1ms\nupdate 2: xent 2.")
    second.restore(first.to_state())
    assert [record.step for record in second.feed(b"25 lr 1 took 1ms\n") if isinstance(record, Step)] == [2]


def test_a_group_that_is_named_twice_is_refused_with_the_way_out():
    with pytest.raises(SettingsError, match=r"the group step is named twice.*\(\?P<step>"):
        grammar(r"upd=(?P<step>\d+) ce=(?P<loss>\S+)|heldout ce=(?P<validation_loss>\S+) at upd=(?P<step>\d+)")
    pattern = r"(?:heldout ce=(?P<validation_loss>\S+) at )?upd=(?P<step>\d+)(?: ce=(?P<loss>\S+))?"
    _, steps, messages = parse("upd=5 ce=2.5\nheldout ce=2.25 at upd=5\nupd=6 ce=2.375\n", pattern, format="ours")
    assert [(step.step, step.values) for step in steps] == [(5, {"loss": 2.5}), (6, {"loss": 2.375})]
    assert [event.data["validation_loss"] for event in messages] == [2.25]
