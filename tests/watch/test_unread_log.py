"""A log that is found and grows and tells no step is told as such; in a format that is added later its older lines are read, too."""

from __future__ import annotations

from tests.watch.test_watchdog import HOST, Bench, NoCheckpoints
from trainvitals.logs.registry import home_made_grammars
from trainvitals.settings import parse
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.unread_log import LEAST_LINES, reading_digest, unread_words
from trainvitals.watch.watchdog import Watchdog

OURS = r"upd (?P<step>\d+) \| xent (?P<loss>\S+)"


def lines(first, count):
    return "".join(f"2026-01-02 03:04:{n % 60:02d} | upd {n} | xent 2.3\n" for n in range(first, first + count))


def with_formats(bench, tables):
    bench.settings = parse({"store": "sqlite:///nowhere/store.db", "runs": [], "formats": tables}) if tables else bench.settings
    run = bench.run
    custom = home_made_grammars(bench.settings.formats)
    bench.watchdog = Watchdog(
        bench.base, run, bench.store, bench.clock,
        sources=RunSources(run, bench.clock, LocalProcessTable(HOST, lambda _pid: (True, None)), custom=custom),
        scanner=CheckpointScanner(NoCheckpoints(), bench.clock, 10, in_thread=False),
        breaker=BreakerAction(run, lambda _dir: None), node=HOST, say=bench.said.append,
    )  # fmt: skip
    bench.watchdog.restore()


def made(tmp_path):
    bench = Bench(tmp_path, logs=[str(tmp_path / "train.log")])
    bench.base, bench.run = bench.settings, bench.settings.runs[0]
    return bench


def told(bench):
    return [event.text for event in bench.events("watch") if event.data.get("trouble") == "log"]


def turns(bench, count=2):
    for _ in range(count):
        bench.clock.advance(5)
        bench.watchdog.turn()


def test_a_log_that_grows_and_tells_no_step_is_told_with_its_lines_and_the_way_out(tmp_path):
    bench = made(tmp_path)
    log = tmp_path / "train.log"
    log.write_text(lines(1, LEAST_LINES - 1))
    turns(bench)
    assert told(bench) == []
    with log.open("a") as file:
        file.write(lines(LEAST_LINES, 200))
    turns(bench, 3)
    (text,) = told(bench)
    assert str(log) in text and "200 lines" in text and "[formats.NAME]" in text and "docs/formats.md" in text
    assert text in bench.said
    bench.store.close()


def test_a_log_whose_steps_are_read_is_never_told(tmp_path):
    bench = made(tmp_path)
    (tmp_path / "train.log").write_text(
        "hello\n" * 100 + "".join(f"iter {n}: loss 3.0, time 1.0ms, mfu 1.0%\n" for n in range(300))
    )
    turns(bench)
    assert told(bench) == []
    bench.store.close()


def test_lines_that_were_not_understood_are_read_after_a_restart_with_their_format_and_only_once(tmp_path):
    bench = made(tmp_path)
    log = tmp_path / "train.log"
    log.write_text(lines(1, 300))
    turns(bench)
    assert told(bench) and bench.train_rows().empty
    with_formats(bench, {"ours": {"pattern": OURS}})
    turns(bench)
    assert sorted(bench.train_rows()["step"]) == list(range(1, 301))
    with log.open("a") as file:
        file.write(lines(301, 5))
    with_formats(bench, {"ours": {"pattern": OURS}})
    turns(bench)
    assert sorted(bench.train_rows()["step"]) == list(range(1, 306))
    bench.store.close()


def test_a_restart_with_the_same_formats_goes_on_where_it_was(tmp_path):
    bench = made(tmp_path)
    (tmp_path / "train.log").write_text(lines(1, 150))
    turns(bench)
    with_formats(bench, {})
    with (tmp_path / "train.log").open("a") as file:
        file.write(lines(151, 60))
    turns(bench)
    assert "200 lines" in told(bench)[-1]
    bench.store.close()


def test_the_number_of_lines_is_told_again_only_when_there_are_many_more():
    texts = {unread_words([("/a.log", count, None)]) for count in range(LEAST_LINES, 20_000)}
    assert len(texts) == len((50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000))


def test_a_changed_pattern_is_another_way_to_read():
    first, second = (home_made_grammars(parse({"formats": {"ours": {"pattern": p}}}).formats) for p in (OURS, OURS + "$"))
    assert len({reading_digest("auto", {}), reading_digest("auto", first), reading_digest("auto", second)}) == 3
    assert reading_digest("auto", first) != reading_digest("ours", first)
