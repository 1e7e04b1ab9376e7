"""``import FILE… --run RUN``: back-fill logs into the store, with progress, as often and as interrupted as one likes."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainvitals import settings as settings_module
from trainvitals.attempts import hold_watch_lock
from trainvitals.cli.contents import names_instead
from trainvitals.cli.import_files import Inputs, find_inputs, text_size
from trainvitals.cli.parse import FORMAT_HELP, OWN_FORMAT
from trainvitals.clock import Clock, SystemClock
from trainvitals.detect.findings import format_count
from trainvitals.errors import InputError, SettingsError, StoreUnavailable
from trainvitals.logs.registry import home_made_grammars
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Store
from trainvitals.store.rollup_driver import GRACE_NS, DirtyNotes, RollupDriver
from trainvitals.store.sink import open_sink, spool_stats, waiting_s
from trainvitals.watch.importer import Counts, Importer
from trainvitals.watch.sources import HOOK_FILE

SOME_REFUSED = 1
BAR_WIDTH = 24
DRAW_EVERY_S = 0.2
LINE_EVERY_S = 10.0
#: Points that may wait in a spool before the reading waits too.
MAX_WAITING_POINTS = 50_000
#: A server that takes nothing for so long ends the import; what was read waits in the spool.
PATIENCE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE",
        help="log, trainer_state.json, CSV, JSON lines or event file (.gz is fine), a quoted glob, or a directory of event files",
    )  # fmt: skip
    parser.add_argument("--run", required=True, help="name of the run, as in the settings")
    parser.add_argument("--format", default=None, metavar="NAME", help=FORMAT_HELP)
    parser.add_argument(
        "--timezone", default=None, metavar="ZONE", help="time zone of times that name none (default: the run's, else UTC)"
    )
    parser.add_argument("--config", metavar="FILE", help="settings file (default: $TRAINVITALS_CONFIG, else ./trainvitals.toml)")
    parser.add_argument("--run-dir", metavar="DIR", help="run directory; with it the run needs no settings file")
    parser.add_argument("--no-detect", action="store_true", help="store the steps and events only; look for no findings in them")
    parser.add_argument("--again", action="store_true", help="read files again that were imported to their end before")
    parser.epilog = (
        "Exit code 0: imported, or nothing new. 1: the store refused some of the rows. 2: a file cannot be read or holds no training step, the run is not known, "
        "a watch holds the run directory, or the store takes nothing."
    )


def run(options: argparse.Namespace) -> int:
    """Prints one JSON object: what was read, and how much of it was new."""
    settings = settings_module.load(options.config)
    run_settings = _run_settings(settings, options)
    custom = home_made_grammars(settings.formats)
    clock = SystemClock()
    progress = Progress(clock)
    format = options.format or run_settings.log_format
    timezone = options.timezone or run_settings.log_timezone
    inputs = find_inputs(options.files, format, timezone, custom, progress.read)
    for note in [*inputs.notes, *_about_the_hook(run_settings, inputs)]:
        _say(note)
    try:
        Path(run_settings.dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The run directory {run_settings.dir} cannot be made: {error.strerror or error}.") from error
    with hold_watch_lock(run_settings.dir):
        importer, refused = _import(settings, run_settings, inputs, custom, (format, timezone), options, progress, clock)
    counts = importer.counts
    for name, found in importer.empty:
        how = f"it was read as {found}" if found else "no known format was recognised"
        _say(f"no training step in {name}; {how}. {names_instead(name)}".rstrip())
    if importer.empty and not counts.steps and not counts.events:
        raise InputError(
            f"No file holds a training step in a format that is known. Check the files, or name their --format. {OWN_FORMAT}."
        )
    told = {"run": run_settings.name, "files": list(inputs.sizes), **vars(counts), "refused": refused}
    sys.stdout.write(json.dumps(told) + "\n")
    if refused:
        _say(f"the store refused {format_count(refused, 'row')}; `python -m trainvitals spool list` shows why.")
    return SOME_REFUSED if refused else 0


def _import(
    settings: Settings, run_settings: RunSettings, inputs: Inputs, custom: Mapping[str, type[Any]], reading: tuple[str, str],
    options: argparse.Namespace, progress: Progress, clock: Clock,
) -> tuple[Importer, int]:  # fmt: skip
    """The importer, done, and how many rows the store refused."""
    # Under the watch lock this is the run's only writer, so it shares the watchdog's spool and the notes in it.
    sink = open_sink(settings, f"watch/{run_settings.name}", _say, clock)
    reader = open_store(settings.store, influxdb=settings.influxdb)
    notes = DirtyNotes(sink, clock)
    before = _refused(sink)
    try:
        importer = Importer(
            settings, run_settings, notes, reader, inputs.logs, format=reading[0], timezone=reading[1], custom=custom,
            detect=not options.no_detect,
        )  # fmt: skip
        if importer.was_done and not options.again:
            _say("these files were imported before: nothing new. --again reads them once more.")
            is_done = True
        else:
            progress.begin(inputs.sizes)
            is_done = False
            for counts in importer.run():
                progress.counted(counts)
                _wait_for_server(sink, MAX_WAITING_POINTS, progress, clock)
            progress.end()
        _wait_for_server(sink, 0, progress, clock)
        _roll_up(run_settings.name, reader, notes, sink, progress, clock)
        if not is_done:
            _say(_summary(importer.counts))
        return importer, _refused(sink) - before
    except KeyboardInterrupt:
        progress.end()
        _say("stopped; the same command goes on where it was.")
        raise
    finally:
        progress.end()
        reader.close()
        sink.close()


def _about_the_hook(run_settings: RunSettings, inputs: Inputs) -> Iterator[str]:
    """One start is one attempt only as long as one source tells its steps."""
    is_from_hook = run_settings.steps_from == "hook" or (
        run_settings.steps_from == "auto" and (Path(run_settings.dir) / HOOK_FILE).exists()
    )
    if is_from_hook and any(not Path(name).name.startswith("metrics.rank") for name in inputs.sizes):
        yield (
            f"the steps of {run_settings.name} come from the hook's file; a log of the same starts is stored as attempts of its own."
        )


def _refused(sink: object) -> int:
    """Rows that a spool could not deliver for good, since it was begun."""
    stats = spool_stats(sink)
    return 0 if stats is None else stats.dead_letters + stats.dropped


def _summary(counts: Counts) -> str:
    old = counts.steps - counts.new_steps
    text = f"{format_count(counts.steps, 'step')} in {format_count(len(counts.attempts), 'attempt')}; {counts.new_steps:,} new"
    if old:
        text += f", {old:,} stored already"
    text += f"; {format_count(counts.new_events, 'new event')}, {format_count(counts.findings, 'finding')}"
    if counts.estimated_times:
        text += f"; {format_count(counts.estimated_times, 'step')} without a time: estimated from when the file was last written"
    if counts.left_out:
        text += f"; {counts.left_out:,} values or lines left out"
    if counts.detector_errors:
        text += f"; {format_count(counts.detector_errors, 'record')} not judged, because a rule failed (please report it)"
    return text + "."


def _wait_for_server(sink: object, most: int, progress: Progress, clock: Clock) -> None:
    """Until no more than ``most`` points wait in the spool; the embedded store has none."""
    waiting_before, moved_s = None, clock.monotonic_s()
    while (stats := spool_stats(sink)) is not None and stats.waiting > most:
        now_s = clock.monotonic_s()
        if waiting_before is None or stats.waiting < waiting_before:
            waiting_before, moved_s = stats.waiting, now_s
        elif now_s - moved_s > PATIENCE_S:
            raise StoreUnavailable(
                f"The store took nothing for {PATIENCE_S:.0f} s ({stats.fault or 'no answer'}); {stats.waiting:,} points wait in the "
                "spool of this machine. Run the same command again when it answers: it goes on where it was."
            )
        progress.say(f"{stats.waiting:,} points wait for the store")
        clock.sleep(0.1)


class _Ahead:
    """A clock that is ahead by the roll-ups' patience: under the watch lock no row of the run is still on its way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def time_ns(self) -> int:
        return self._clock.time_ns() + GRACE_NS

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def _roll_up(run: str, reader: Store, notes: DirtyNotes, sink: object, progress: Progress, clock: Clock) -> None:
    driver = RollupDriver(run, reader, notes, _Ahead(clock), lambda: waiting_s(sink))
    while driver.step().is_behind:
        progress.say("making roll-ups")
        _wait_for_server(sink, MAX_WAITING_POINTS, progress, clock)
    _wait_for_server(sink, 0, progress, clock)
    progress.end()


class Progress:
    """A bar on a terminal, a line now and then anywhere else; on stderr."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._sizes: Mapping[str, int] = {}
        self._read: dict[str, int] = {}
        self._position: dict[str, int] = {}
        self._steps = 0
        self._began = (clock.monotonic_s(), 0)
        self._drawn_s = clock.monotonic_s()
        self._is_drawn = False

    def begin(self, sizes: Mapping[str, int]) -> None:
        """sizes: bytes that will be read, by file."""
        self._sizes, self._read, self._position = sizes, dict.fromkeys(sizes, 0), {}
        self._began = (self._clock.monotonic_s(), 0)

    def read(self, name: str, position: int) -> None:
        """So far a file was read; it begins anew when it is read twice."""
        if name not in self._read or position < 0:
            return
        before = self._position.get(name, 0)
        self._read[name] += position - before if position >= before else position
        self._position[name] = position
        self._draw()

    def counted(self, counts: Counts) -> None:
        if self._steps == 0:
            self._began = (self._began[0], 0)
        self._steps = counts.steps
        self._draw()

    def say(self, what: str) -> None:
        """What is waited for."""
        self._draw(what)

    def end(self) -> None:
        """Leave the bar's line."""
        if self._is_drawn:
            self._is_drawn = False
            _write("\r\x1b[K")

    def _draw(self, what: str = "") -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._drawn_s < (DRAW_EVERY_S if self._is_terminal else LINE_EVERY_S):
            return
        self._drawn_s = now_s
        if self._is_terminal:
            self._is_drawn = True
            _write(f"\r\x1b[K{what or self.text(now_s)}")
        else:
            _say(what or self.text(now_s))

    def text(self, now_s: float) -> str:
        """``[####····] 43 % · 1.2 of 2.8 GB · 430,000 steps · 41,000 steps/s · 0:18 left``"""
        total, read = sum(self._sizes.values()), sum(self._read.values())
        share = min(1.0, read / total) if total else 0.0
        elapsed_s = max(now_s - self._began[0], 1e-3)
        filled = round(share * BAR_WIDTH)
        parts = [
            f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:.0%}",
            f"{text_size(read)} of {text_size(total)}",
            f"{self._steps:,} steps",
        ]
        if self._steps and elapsed_s > 1:
            parts.append(f"{self._steps / elapsed_s:,.0f} steps/s")
        if share > 0.01 and elapsed_s > 1:
            left_s = round(elapsed_s * (1 - share) / share)
            parts.append(f"{left_s // 60}:{left_s % 60:02d} left")
        return " · ".join(parts)


def _run_settings(settings: Settings, options: argparse.Namespace) -> RunSettings:
    if any(known.name == options.run for known in settings.runs):
        chosen = settings.run(options.run)
        return replace(chosen, dir=str(Path(options.run_dir).absolute())) if options.run_dir else chosen
    if options.run_dir:
        return settings_module.parse({"runs": [{"name": options.run, "dir": str(Path(options.run_dir).absolute())}]}).runs[0]
    raise SettingsError(f"Run {options.run!r} stands in no settings file; give --config FILE, or --run-dir DIR.")


def _say(sentence: str) -> None:
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence)
    _write(f"trainvitals import: {printable}\n")


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the import
        sys.stderr.write(text)
        sys.stderr.flush()
