"""Tables of a spool file, its counters, and what one transaction does to them. No locks, files or threads here.

``batch`` is the queue (lane 0 in order, lane 1 samples), ``dead_letter`` what the store refused for good, ``state`` what
the sender keeps with its points, ``flight`` the batches of the request on its way (never dropped meanwhile), ``counter``
the exact numbers. Every change of a number stands in the same transaction as what it counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from trainvitals.errors import StoreError
from trainvitals.store.spool_codec import ORDERED, SAMPLES, EncodedBatch

VERSION = 1
APPLICATION_ID = 0x54565350  # "TVSP"
#: What a row costs in the file beside its body.
ROW_BYTES = 64
_SLICE = 500
_TABLES = (
    "CREATE TABLE batch (id INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, appended_ns INTEGER NOT NULL,"
    " points INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX batch_lane ON batch (lane, id)",
    "CREATE TABLE flight (id INTEGER PRIMARY KEY)",
    "CREATE TABLE dead_letter (id INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, refused_ns INTEGER NOT NULL,"
    " points INTEGER NOT NULL, reason TEXT NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One row of the queue."""

    id: int
    lane: int
    points: int
    row_bytes: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """What goes to the dead letters: ``body`` holds ``points`` points, usually one."""

    lane: int
    points: int
    reason: str
    body: bytes


def prepare(connection: sqlite3.Connection, path: Path, owner: str) -> None:
    """Make the tables in a new file. Raises ``StoreError`` for a newer version's file or another program's."""
    connection.execute("PRAGMA journal_size_limit=8388608")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if version == VERSION and application == APPLICATION_ID:
        return
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID and version > VERSION:
        raise StoreError(
            f"The spool {path} was made by a newer version of Trainvitals; use that one, or name another [spool] dir."
        )
    if application != APPLICATION_ID and (tables or version):
        raise StoreError(f"The file {path} is another program's database; name another [spool] dir.")
    if version == 0:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES ('owner', ?)", (owner,))
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def counters(connection: sqlite3.Connection) -> dict[str, int]:
    return {name: int(value) for name, value in connection.execute("SELECT name, value FROM counter")}


def add(connection: sqlite3.Connection, **changes: int) -> None:
    """Add to counters."""
    connection.executemany(
        "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        [(name, change) for name, change in changes.items() if change],
    )


def queue(connection: sqlite3.Connection, batches: Iterable[EncodedBatch], now_ns: int) -> int:
    """Put batches at the end of the queue; returns how many points."""
    points = size = 0
    for batch in batches:
        row_bytes = len(batch.body) + ROW_BYTES
        connection.execute(
            "INSERT INTO batch (lane, appended_ns, points, raw_bytes, bytes, body) VALUES (?, ?, ?, ?, ?, ?)",
            (batch.lane, now_ns, batch.points, batch.raw_bytes, row_bytes, batch.body),
        )
        points += batch.points
        size += row_bytes
    add(connection, waiting=points, bytes=size)
    return points


def keep_state(connection: sqlite3.Connection, state: Mapping[str, bytes | None]) -> None:
    for key, value in state.items():
        if value is None:
            connection.execute("DELETE FROM state WHERE key = ?", (key,))
        else:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, bytes(value)))


def enforce_bounds(connection: sqlite3.Connection, now_ns: int, max_bytes: int, max_age_s: float) -> int:
    """Drop what is too old, then the oldest until the rest fits; returns how many points went.

    Samples go before events and roll-ups: a curve with a gap is worth more than a night without its incidents.
    """
    dropped = 0
    cutoff_ns = now_ns - round(max_age_s * 1e9)
    for lane in (ORDERED, SAMPLES):
        while True:
            old = _oldest(connection, lane, cutoff_ns)
            if not old:
                break
            dropped += _drop(connection, old, "dropped_by_age")
    for lane in (SAMPLES, ORDERED):
        while (over := counters(connection).get("bytes", 0) - max_bytes) > 0:
            too_many = []
            for row in _oldest(connection, lane):
                if over <= 0:
                    break
                too_many.append(row)
                over -= row[2]
            if not too_many:
                break
            dropped += _drop(connection, too_many, "dropped_by_size")
    return dropped


def _oldest(connection: sqlite3.Connection, lane: int, before_ns: int = 2**63 - 1) -> list[tuple[int, int, int]]:
    """(id, points, bytes) of the oldest rows of a lane that are not on their way, up to the first appended at ``before_ns`` or later."""
    rows = connection.execute(
        "SELECT id, points, bytes, appended_ns FROM batch"
        " WHERE lane = ? AND id NOT IN (SELECT id FROM flight) ORDER BY id LIMIT ?",
        (lane, _SLICE),
    ).fetchall()
    return [row[:3] for row in takewhile(lambda row: row[3] < before_ns, rows)]


def _drop(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, int]], counter: str) -> int:
    connection.executemany("DELETE FROM batch WHERE id = ?", [(row[0],) for row in rows])
    points = sum(row[1] for row in rows)
    add(connection, waiting=-points, bytes=-sum(row[2] for row in rows), **{counter: points})
    return points


def pick(
    connection: sqlite3.Connection, newest_samples: bool, max_batches: int, max_points: int, max_raw_bytes: int
) -> list[Batch]:
    """The batches of the next request, put in flight. Each lane gets at most half while the other has something waiting;
    what must stay in order goes oldest first, samples oldest or newest first. Sizes bound the request, one batch always goes."""
    chosen: list[int] = []
    points = raw = 0
    halves = ((ORDERED, "ASC", 2), (SAMPLES, "DESC" if newest_samples else "ASC", 1), (ORDERED, "ASC", 1))
    for lane, order, share in halves:
        rows = connection.execute(
            f"SELECT id, points, raw_bytes FROM batch WHERE lane = ? ORDER BY id {order} LIMIT ?",  # noqa: S608
            (lane, max_batches),
        )
        for identifier, row_points, row_raw in rows.fetchall():
            if identifier in chosen:
                continue
            is_full = (
                len(chosen) + 1 > max(1, max_batches // share)
                or points + row_points > max_points // share
                or raw + row_raw > max_raw_bytes // share
            )
            if chosen and is_full:
                break
            chosen.append(identifier)
            points += row_points
            raw += row_raw
    connection.execute("DELETE FROM flight")
    connection.executemany("INSERT INTO flight VALUES (?)", [(identifier,) for identifier in chosen])
    batches = []
    for identifier in sorted(chosen):
        row = connection.execute("SELECT id, lane, points, bytes, body FROM batch WHERE id = ?", (identifier,)).fetchone()
        batches.append(Batch(*row))
    return batches


def settle(connection: sqlite3.Connection, batches: Sequence[Batch], refused: Sequence[Refused], now_ns: int) -> None:
    """The store answered for these batches: they leave the queue, what was refused goes to the dead letters."""
    points = size = 0
    for batch in batches:
        if connection.execute("DELETE FROM batch WHERE id = ?", (batch.id,)).rowcount:
            points += batch.points
            size += batch.row_bytes
    connection.executemany("DELETE FROM flight WHERE id = ?", [(batch.id,) for batch in batches])
    connection.executemany(
        "INSERT INTO dead_letter (lane, refused_ns, points, reason, body) VALUES (?, ?, ?, ?, ?)",
        [(each.lane, now_ns, each.points, each.reason, each.body) for each in refused],
    )
    lost = sum(each.points for each in refused)
    add(connection, waiting=-points, bytes=-size, delivered=points - lost, refused=lost, dead_letters=lost)
    add(connection, dead_letter_bytes=sum(len(each.body) + ROW_BYTES for each in refused))


def trim_dead_letters(connection: sqlite3.Connection, max_points: int, max_bytes: int) -> None:
    """Drop the oldest dead letters until the rest fits both bounds; what goes is counted."""
    count = counters(connection)
    over = max(0, count.get("dead_letters", 0) - max_points)
    over_bytes = max(0, count.get("dead_letter_bytes", 0) - max_bytes)
    if not over and not over_bytes:
        return
    going = []
    for row in connection.execute("SELECT id, points, length(body) FROM dead_letter ORDER BY id"):
        if over <= 0 and over_bytes <= 0:
            break
        going.append(row)
        over -= row[1]
        over_bytes -= row[2] + ROW_BYTES
    remove_dead_letters(connection, going, "dead_letters_dropped")


def remove_dead_letters(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, int]], counter: str) -> int:
    """Delete (id, points, length of body) rows and count them under ``counter``; returns the points."""
    connection.executemany("DELETE FROM dead_letter WHERE id = ?", [(row[0],) for row in rows])
    points = sum(row[1] for row in rows)
    add(connection, dead_letters=-points, dead_letter_bytes=-sum(row[2] + ROW_BYTES for row in rows), **{counter: points})
    return points
