"""Of one run: whether its newest logs tell steps in a format that is known."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.doctor.check import Finding, fault, ok, warning
from trainvitals.errors import SettingsError
from trainvitals.logs.registry import home_made_grammars
from trainvitals.logs.tail import LogSource
from trainvitals.records import Step
from trainvitals.settings import RunSettings, Settings

#: The newest files are read, each from its start up to so many bytes: the first step is not far from there.
NEWEST_FILES = 3
MAX_BYTES = 8 << 20
MAX_FILES = 10_000
#: Less says nothing yet; so much without a step is no start any more.
FEW_LINES, MANY_LINES = 50, 200
HOOK_FILE = "metrics.rank00000.jsonl"
ADVICE = (
    "if the trainer already trains: write a [formats.NAME] table for its lines (docs/formats.md, Home-made formats), try it with "
    "python -m trainvitals parse FILE --config FILE --format NAME, and start watch again."
)


def log_format(settings: Settings, run: RunSettings, clock: Clock) -> Iterator[Finding]:
    """Reads the logs as ``watch`` would. What has no step is a warning, and a fault when it is long."""
    has_hook = (Path(run.dir) / HOOK_FILE).exists()
    if run.steps_from == "hook" or (run.steps_from == "auto" and has_hook):
        yield ok("not needed: the steps come from the hook")
        return
    try:
        custom = home_made_grammars(settings.formats)
    except SettingsError as error:
        yield fault(str(error), "correct the pattern.")
        return
    names = itertools.islice(itertools.chain.from_iterable(glob.iglob(one, recursive=True) for one in run.logs), MAX_FILES)  # noqa: PTH207
    found = sorted((path.stat().st_mtime_ns, path) for path in map(Path, names) if path.is_file())
    unread: list[tuple[str, int, str | None]] = []
    for _, path in reversed(found[-NEWEST_FILES:]):
        source = LogSource([glob.escape(str(path))], run.log_format, run.log_timezone, clock, custom=custom)
        steps = sum(isinstance(record, Step) for _, record in source.poll(MAX_BYTES))
        unread += source.without_steps
        source.close()
        if steps:
            yield ok(f"steps are read in {path}")
            return
    yield _of_unread(unread, run)


def _of_unread(unread: list[tuple[str, int, str | None]], run: RunSettings) -> Finding:
    path, lines, format = max(unread, key=lambda one: one[1], default=("", 0, None))
    if lines < FEW_LINES:
        return ok("no log with steps yet" if not path else f"{path}: {lines:,} lines and no step yet")
    how = f"read as {format}" if format is not None else "in no format that is known"
    text = f"log found: {lines:,} lines of {path} and no step in them, {how}"
    is_certain = lines >= MANY_LINES and (format is None or run.log_format != "auto")
    return fault(text, ADVICE) if is_certain else warning(text, ADVICE)
