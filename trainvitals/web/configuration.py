"""What each start of the trainer was made of, out of the ``metadata`` events of a run: sections of keys and values.

Parts of up to 48 KiB come in many events, so they are read only when something new is there, and of the newest starts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals.records import Event
from trainvitals.store.protocol import Store
from trainvitals.web.configuration_files import ConfigurationFiles, made
from trainvitals.web.view import AttemptView, Configuration

DAY_NS = 86_400 * 10**9
#: Newest parts that are read: several starts of a large trainer, many of a usual one; and how many starts are kept of them.
MAX_PARTS_READ = 120
MAX_STARTS = 8
MAX_PARTS = 256
#: A log that tells no times is read a little after it was written.
READ_AFTER_NS = 600 * 10**9
#: Late parts have older times than the newest one when a log is read again.
READ_AGAIN_NS = 60 * 10**9
MASK = "***"
SHOWN_MASK = "•••"
#: Over all keys: another one whenever any of them is.
SUMS = frozenset({"config_sha256"})


@dataclass(frozen=True)
class ConfigurationRow:
    """One key of one section. before: its value at the start before, where it was another; None = the same, or not known."""

    section: str
    key: str
    value: str
    before: str | None = None


def masked(value: str) -> str:
    """A value as it is shown: what was masked before it was written is a secret, not three stars of somebody's."""
    return value.replace(MASK, SHOWN_MASK)


def configurations_of(events: Iterable[Event], attempts: Sequence[AttemptView]) -> tuple[Configuration, ...]:
    """Newest start first. An event without an attempt was told before a first step: it belongs to the next start after it."""
    known: dict[int, dict[str, tuple[int, dict[int, Mapping[str, Any]]]]] = {}
    for event in sorted(events, key=lambda one: (one.time_ns or 0, _part(one))):
        section, values, parts = event.data.get("section"), event.data.get("values"), event.data.get("parts", 1)
        number = event.attempt if event.attempt is not None else _next_start(event.time_ns or 0, attempts)
        if number is None or not isinstance(section, str) or not isinstance(values, Mapping) or not _is_count(parts):
            continue
        sections = known.setdefault(number, {})
        held = sections.get(section)
        if held is None or _part(event) == 0 or held[0] != parts:
            held = sections[section] = (parts, {})
        held[1][_part(event)] = values
    return tuple(_configuration(number, known[number]) for number in sorted(known, reverse=True)[:MAX_STARTS])


def rows_of(
    configuration: Configuration,
    before: Configuration | None = None,
    section: str = "",
    text: str = "",
    changed_only: bool = False,
) -> list[ConfigurationRow]:
    """Keys of one section ("" = all) in which every word of ``text`` stands, in name, value or section."""
    words = text.lower().split()
    rows = []
    for name in configuration.sections if not section else [section]:
        earlier = before.sections.get(name) if before is not None else None
        for key, value in configuration.sections.get(name, {}).items():
            is_same = earlier is None or earlier.get(key) == value or key in SUMS
            was = None if is_same or earlier is None else earlier.get(key, "not set")
            hay = f"{name} {key} {value}".lower()
            if all(word in hay for word in words) and (was is not None or not changed_only):
                rows.append(ConfigurationRow(name, key, masked(value), None if was is None else masked(was)))
    return rows


@dataclass
class ConfigurationReader:
    """One for each poller. The run directory's files come first; without one of the newest start ``of`` asks the store for one
    row at each look, and for the parts only when there is news."""

    _files: ConfigurationFiles = field(default_factory=ConfigurationFiles)
    _held: dict[str, tuple[tuple[Any, ...], int, tuple[Configuration, ...]]] = field(default_factory=dict)

    def of(
        self, store: Store, run: str, attempts: Sequence[AttemptView], now_ns: int, run_dir: str = ""
    ) -> tuple[Configuration, ...]:
        """Configurations of the newest starts. Raises what the store raises."""
        numbers = [attempt.number for attempt in attempts[-MAX_STARTS:]]
        files = self._files.of(run_dir, numbers) if run_dir else {}
        if not files or numbers[-1] not in files:
            files = {**{one.attempt: one for one in self._stored(store, run, attempts, now_ns)}, **files}
        return tuple(files[number] for number in sorted(files, reverse=True)[:MAX_STARTS])

    def _stored(self, store: Store, run: str, attempts: Sequence[AttemptView], now_ns: int) -> tuple[Configuration, ...]:
        newest = store.events(run, ("metadata",), 0, now_ns + DAY_NS, limit=1, newest_first=True)
        if not newest:
            return ()
        mark = (newest[0].time_ns, newest[0].id, tuple(attempt.number for attempt in attempts[-MAX_STARTS:]))
        held = self._held.get(run)
        if held is not None and held[0] == mark and 0 <= now_ns - held[1] < READ_AGAIN_NS:
            return held[2]
        events = store.events(run, ("metadata",), 0, now_ns + DAY_NS, limit=MAX_PARTS_READ, newest_first=True)
        found = configurations_of(events, attempts)
        self._held[run] = (mark, now_ns, found)
        return found


def _configuration(number: int, sections: Mapping[str, tuple[int, Mapping[int, Mapping[str, Any]]]]) -> Configuration:
    whole = {
        name: {key: value for part in sorted(parts) for key, value in parts[part].items()}
        for name, (_, parts) in sections.items()
    }
    return made(number, whole, sorted(name for name, (count, parts) in sections.items() if len(parts) < count))


def _part(event: Event) -> int:
    part = event.data.get("part", 0)
    return part if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < MAX_PARTS else 0


def _is_count(parts: object) -> bool:
    return isinstance(parts, int) and not isinstance(parts, bool) and 0 < parts <= MAX_PARTS


def _next_start(time_ns: int, attempts: Sequence[AttemptView]) -> int | None:
    later = next((attempt.number for attempt in attempts if attempt.started_ns >= time_ns), None)
    if later is None and attempts and time_ns - attempts[-1].started_ns <= READ_AFTER_NS:
        return attempts[-1].number
    return later
