"""The file of a spool: appended to by any number of processes, shipped by one at a time, bounded, and never in memory whole.

What was appended survives ``kill -9`` (``synchronous=NORMAL``: a power loss may take the last appends). A file that turns
out damaged is set aside under another name and a new one is begun; how many points it held cannot be known, so it is said.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import StoreUnavailable
from trainvitals.records import Point
from trainvitals.store import spool_tables as tables
from trainvitals.store.encode import check_point
from trainvitals.store.spool_codec import EncodedBatch, encode_batches
from trainvitals.store.spool_tables import Batch, Refused
from trainvitals.store.sqlite_connection import Connections

MAX_REQUEST_BATCHES = 50
MAX_REQUEST_POINTS = 5_000
MAX_REQUEST_BYTES = 4 * 1024 * 1024  # before encoding as line protocol; InfluxDB 3 Core takes 10 MiB
DEFAULT_MAX_BYTES = 256 * 1024 * 1024
DEFAULT_MAX_AGE_S = 7 * 86_400.0
DEFAULT_MAX_DEAD_LETTERS = 10_000
_DAMAGE_MARK = ".damaged-"
_T = TypeVar("_T")


@dataclass(frozen=True)
class SpoolStats:
    """Counts of points since the file was begun, unless said otherwise.

    waiting, bytes, oldest_age_s: the queue now. dropped: by size, by age, and dead letters beyond their bound.
    dead_letters: kept now. damaged_files: files set aside. fault: why nothing is delivered now, "" when all is well.
    """

    owner: str = ""
    waiting: int = 0
    bytes: int = 0
    oldest_age_s: float = 0.0
    appended: int = 0
    delivered: int = 0
    dropped: int = 0
    dead_letters: int = 0
    damaged_files: int = 0
    fault: str = ""


@dataclass(frozen=True)
class DeadLetter:
    """What the store refused for good. ``points`` is 1, or the size of a batch whose bytes cannot be read any more."""

    id: int
    refused_ns: int
    points: int
    reason: str
    body: bytes


class SpoolFile:
    """One file. Every method raises ``StoreUnavailable`` when the file cannot be used now; then nothing was changed."""

    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        *,
        owner: str = "",
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_age_s: float = DEFAULT_MAX_AGE_S,
        max_dead_letters: int = DEFAULT_MAX_DEAD_LETTERS,
        busy_timeout_s: float = 10.0,
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock or SystemClock()
        self._owner = owner
        self._max_bytes, self._max_age_s, self._max_dead_letters = max_bytes, max_age_s, max_dead_letters
        self._connections = Connections(
            self.path,
            read_only=False,
            busy_timeout_s=busy_timeout_s,
            prepare=lambda connection: tables.prepare(connection, self.path, owner),
            what="spool",
        )

    @property
    def replaced(self) -> tuple[int, str]:
        """How often the file was deleted, set aside or replaced while this instance used it, and where it is."""
        return self._connections.replaced, f"The spool {self.path}"

    def append(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        """Queue points and keep state, both or neither. Raises ``StoreError`` when a point does not fit the schema."""
        for point in points:
            check_point(point)
        batches = list(encode_batches(points))

        def change(connection: sqlite3.Connection) -> None:
            now_ns = self._clock.time_ns()
            added = tables.queue(connection, batches, now_ns)
            tables.keep_state(connection, state)
            tables.add(connection, appended=added)
            tables.enforce_bounds(connection, now_ns, self._max_bytes, self._max_age_s)

        self._change(change)

    def load_state(self, prefix: str) -> dict[str, bytes]:
        """All kept state whose key starts with ``prefix``."""

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            rows = connection.execute(
                "SELECT key, value FROM state WHERE key >= ? AND substr(key, 1, ?) = ?", (prefix, len(prefix), prefix)
            )
            return {key: bytes(value) for key, value in rows}

        return self._with_connection(read)

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._with_connection(lambda connection: connection.execute("SELECT 1 FROM batch LIMIT 1").fetchone() is None)

    def take(self, newest_samples: bool = False) -> list[Batch]:
        """The batches of the next request, in the order they were appended; they are not dropped until the next take.
        Call it only inside ``shipping``."""

        def change(connection: sqlite3.Connection) -> list[Batch]:
            connection.execute("DELETE FROM flight")
            tables.enforce_bounds(connection, self._clock.time_ns(), self._max_bytes, self._max_age_s)
            return tables.pick(connection, newest_samples, MAX_REQUEST_BATCHES, MAX_REQUEST_POINTS, MAX_REQUEST_BYTES)

        return self._change(change)

    def settle(self, batches: Sequence[Batch], refused: Sequence[Refused] = ()) -> None:
        """The store took these batches, except what it refused: forget them, keep what was refused as dead letters."""

        def change(connection: sqlite3.Connection) -> None:
            tables.settle(connection, batches, refused, self._clock.time_ns())
            tables.trim_dead_letters(connection, self._max_dead_letters, self._max_bytes // 4)

        self._change(change)

    def release(self) -> None:
        """The request failed: its batches wait on, and may be dropped again."""
        self._change(lambda connection: connection.execute("DELETE FROM flight"))

    @contextmanager
    def shipping(self) -> Iterator[bool]:
        """True while this process alone may ship; False when another one does. A killed process lets go by itself."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(self.path.with_name(self.path.name + ".lock"), fcntl.LOCK_EX | fcntl.LOCK_NB) as is_mine:
            yield is_mine

    def dead_letters(self, limit: int, after_id: int = 0) -> list[DeadLetter]:
        """The oldest dead letters with a larger id."""
        rows = self._with_connection(
            lambda connection: connection.execute(
                "SELECT id, refused_ns, points, reason, body FROM dead_letter WHERE id > ? ORDER BY id LIMIT ?", (after_id, limit)
            ).fetchall()
        )
        return [DeadLetter(*row) for row in rows]

    def resend(self, ids: Sequence[int] | None) -> int:
        """Queue dead letters again (None: all), at the end; returns the points."""

        def change(connection: sqlite3.Connection) -> int:
            rows = self._chosen(connection, ids)
            now_ns = self._clock.time_ns()
            for identifier, points, _size in rows:
                query = "SELECT lane, body FROM dead_letter WHERE id = ?"
                lane, body = connection.execute(query, (identifier,)).fetchone()
                tables.queue(connection, [EncodedBatch(lane, points, len(body), body)], now_ns)
            tables.enforce_bounds(connection, now_ns, self._max_bytes, self._max_age_s)
            return tables.remove_dead_letters(connection, rows, "resent")

        return self._change(change)

    def forget(self, ids: Sequence[int] | None) -> int:
        """Delete dead letters (None: all); returns the points."""

        def change(connection: sqlite3.Connection) -> int:
            return tables.remove_dead_letters(connection, self._chosen(connection, ids), "forgotten")

        return self._change(change)

    def counters(self) -> dict[str, int]:
        """All counters by name, for tests and for people who look closer: see docs/spool.md."""
        return self._with_connection(tables.counters)

    def stats(self, fault: str = "") -> SpoolStats:
        def read(connection: sqlite3.Connection) -> SpoolStats:
            count = tables.counters(connection)
            oldest = connection.execute("SELECT appended_ns FROM batch ORDER BY id LIMIT 1").fetchone()
            owner = connection.execute("SELECT value FROM about WHERE key = 'owner'").fetchone()
            return SpoolStats(
                owner=owner[0] if owner else self._owner,
                waiting=count.get("waiting", 0),
                bytes=count.get("bytes", 0),
                oldest_age_s=max(0.0, (self._clock.time_ns() - oldest[0]) / 1e9) if oldest else 0.0,
                appended=count.get("appended", 0),
                delivered=count.get("delivered", 0),
                dropped=sum(count.get(name, 0) for name in ("dropped_by_size", "dropped_by_age", "dead_letters_dropped")),
                dead_letters=count.get("dead_letters", 0),
                damaged_files=len(self.damaged_files()),
                fault=fault,
            )

        return self._with_connection(read)

    def damaged_files(self) -> list[Path]:
        """Files that were set aside."""
        found = self.path.parent.glob(f"{self.path.name}{_DAMAGE_MARK}*")
        return sorted(path for path in found if not path.name.endswith(("-wal", "-shm")))

    def close(self) -> None:
        self._connections.close()

    @staticmethod
    def _chosen(connection: sqlite3.Connection, ids: Sequence[int] | None) -> list[tuple[int, int, int]]:
        columns = "SELECT id, points, length(body) FROM dead_letter"
        if ids is None:
            return connection.execute(columns + " ORDER BY id").fetchall()
        found = (connection.execute(columns + " WHERE id = ?", (each,)).fetchone() for each in ids)
        return [row for row in found if row is not None]

    def _change(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        def transaction(connection: sqlite3.Connection) -> _T:
            connection.execute("BEGIN IMMEDIATE")
            result = change(connection)
            connection.execute("COMMIT")
            return result

        return self._with_connection(transaction)

    def _with_connection(self, use: Callable[[sqlite3.Connection], _T]) -> _T:
        identity = self._identity()
        try:
            with self._connections.lend() as (connection, _generation):
                return use(connection)
        except StoreUnavailable as error:
            if not _is_damage(error.__cause__):
                raise
            self._set_aside(identity)
        with self._connections.lend() as (connection, _generation):
            return use(connection)

    def _identity(self) -> tuple[int, int] | None:
        with suppress(OSError):
            status = self.path.stat()
            return status.st_dev, status.st_ino
        return None

    def _set_aside(self, identity: tuple[int, int] | None) -> None:
        """Rename the damaged file, unless another process already did so and this is a new one."""
        with _lock(self.path.with_name(self.path.name + ".damage-lock"), fcntl.LOCK_EX):
            if identity is None or self._identity() != identity:
                return
            name = f"{self.path.name}{_DAMAGE_MARK}{self._clock.time_ns()}"
            try:
                for suffix in ("-wal", "-shm", ""):
                    with suppress(FileNotFoundError):
                        self.path.with_name(self.path.name + suffix).rename(self.path.with_name(name + suffix))
            except OSError as error:
                raise StoreUnavailable(
                    f"The spool {self.path} is damaged and could not be set aside: {error.strerror or error}; move it away."
                ) from error


def _is_damage(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def _lock(path: Path, how: int) -> Iterator[bool]:
    """Holds an ``flock``: the kernel releases it whenever the process ends. False when it is held and ``how`` does not wait."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise StoreUnavailable(f"The spool's lock {path} cannot be opened: {error.strerror or error}.") from error
    try:
        with suppress(OSError):  # the umask must not take the group's rights; only the owner can and need do this
            os.fchmod(descriptor, 0o660)
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
