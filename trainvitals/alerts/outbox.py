"""What is to be told, on this machine's disk until it is delivered: one row per notice and target, at least once, in order.

Any number of processes add and deliver at the same time. A row is claimed with a lease; whoever dies with it is followed by
another when the lease ends, and the receiver gets the same id again. What the targets refused for good stays as dead letter.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from trainvitals.alerts import outbox_rows as rows
from trainvitals.alerts import outbox_tables as tables
from trainvitals.alerts.notice import Notice, NoticeKind
from trainvitals.alerts.outbox_rows import Attempt, Claim, Message, TargetHealth, boot_id, bounded, message_id
from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import StoreError
from trainvitals.records import Severity
from trainvitals.store.sqlite_connection import Connections, refuse_network_file_system

#: Longer than a delivery may take, so that a lease ends only when its holder is gone or hangs.
LEASE_S = 45.0
#: A claim that nobody settled is no try, because a killed sender says nothing of the receiver; but a row may be what kills it.
MOST_CLAIMS_WITHOUT_ANSWER = 25
#: Nobody's quiet hours are longer. A time beyond came from a clock that was wrong and would hold the message for ever.
LONGEST_HOLD_S = 26 * 3600.0
KEEP = {tables.WAITING: 5_000, tables.SENT: 10_000, tables.OVERTAKEN: 2_000, tables.DEAD: 2_000}
_TRIM_EVERY = 100
_T = TypeVar("_T")


class Outbox:
    """One file. Every method raises ``StoreUnavailable`` or ``StoreError`` when the file cannot be used; then nothing changed."""

    def __init__(
        self, path: str | Path, clock: Clock | None = None, *, boot: str | None = None, busy_timeout_s: float = 10.0
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock or SystemClock()
        self._boot = boot_id() if boot is None else boot
        self._since_trim = 0
        self._is_local = False
        self._connections = Connections(
            self.path, read_only=False, busy_timeout_s=busy_timeout_s, prepare=tables.prepare, what="outbox"
        )

    def enqueue(self, notice: Notice, target: str, not_before_ns: int = 0) -> bool:
        """Tell ``target``; False when this notice was added for it before (then nothing changes).

        not_before_ns: UTC, at most 26 hours ahead; what lies further ahead is sent at once.
        """
        notice = bounded(notice)
        now_ns = self._clock.time_ns()

        def change(connection: sqlite3.Connection) -> bool:
            added = connection.execute(
                "INSERT OR IGNORE INTO message (id, target, incident, kind, is_critical, notice, created_ns, not_before_ns, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    message_id(notice.id, target), target, f"{notice.run}\0{notice.incident_id}", notice.kind.value,
                    notice.severity is Severity.CRITICAL, json.dumps(notice.to_mapping()), now_ns, not_before_ns, tables.WAITING,
                ),
            ).rowcount  # fmt: skip
            if added:
                # What is worth telling now must not wait behind the long pause of an earlier try.
                connection.execute(
                    "UPDATE message SET retry_at_s = 0 WHERE target = ? AND incident = ? AND state = 'waiting'",
                    (target, f"{notice.run}\0{notice.incident_id}"),
                )
            return bool(added)

        added = self._change(change)
        self._since_trim += 1
        if self._since_trim >= _TRIM_EVERY:
            self.trim()
        return added

    def trim(self) -> None:
        """Keep the newest rows of each state only; what nobody was told of is counted in ``lost``."""

        def change(connection: sqlite3.Connection) -> None:
            lost = tables.trim(connection, KEEP)
            if lost:
                tables.count(connection, "lost", lost)

        self._change(change)
        self._since_trim = 0

    def claim(self, target: str, per_minute: int) -> Claim | None:
        """The next message of ``target`` whose time has come, leased to the caller; None when there is none.

        per_minute: attempts that the target takes in any minute, of all senders of this machine together.
        """
        now_ns, now_s, lease = self._clock.time_ns(), self._clock.monotonic_s(), uuid4().hex
        times = {
            "target": target, "now_ns": now_ns, "now_s": now_s, "boot": self._boot, "longest_hold_ns": round(LONGEST_HOLD_S * 1e9),
        }  # fmt: skip

        def change(connection: sqlite3.Connection) -> Claim | None:
            while True:
                row = connection.execute(tables.READY, times).fetchone()
                if row is None:
                    return None
                seq, id, text, tries, claims, is_asked_again, incident = row
                if not is_asked_again and self._is_overtaken(connection, target, incident, seq):
                    self._settle(connection, seq, tables.OVERTAKEN, "the incident was over before this could be told")
                    continue
                if claims - tries >= MOST_CLAIMS_WITHOUT_ANSWER:
                    self._settle(connection, seq, tables.DEAD, f"{claims - tries} senders ended while they sent it")
                    continue
                try:
                    notice = Notice.from_mapping(json.loads(text))
                except (KeyError, TypeError, ValueError):
                    self._settle(connection, seq, tables.DEAD, "this version of Trainvitals cannot read it")
                    continue
                (lately,) = connection.execute(
                    "SELECT count(*) FROM attempt WHERE target = ? AND boot = ? AND started_s > ?",
                    (target, self._boot, now_s - 60.0),
                ).fetchone()
                if lately >= per_minute:
                    return None
                attempt = (connection.execute("SELECT max(number) FROM attempt WHERE message = ?", (seq,)).fetchone()[0] or 0) + 1
                connection.execute("UPDATE attempt SET outcome = 'expired' WHERE message = ? AND outcome = 'sending'", (seq,))
                connection.execute(
                    "INSERT INTO attempt (message, number, target, at_ns, boot, started_s, outcome) VALUES (?, ?, ?, ?, ?, ?, 'sending')",
                    (seq, attempt, target, now_ns, self._boot, now_s),
                )
                connection.execute(
                    "UPDATE message SET claims = claims + 1, lease = ?, leased_until_s = ?, boot = ? WHERE seq = ?",
                    (lease, now_s + LEASE_S, self._boot, seq),
                )
                return Claim(seq, id, target, notice, tries, attempt, lease)

        # A look without the write lock first: senders look several times a second, and mostly there is nothing.
        if not self._with_connection(lambda connection: connection.execute(tables.READY, times).fetchone()):
            return None
        return self._change(change)

    def settle(
        self, claim: Claim, outcome: str, *, status: int | None, duration_ms: float, error: str, wait_s: float | None
    ) -> None:
        """Write down how the attempt ended. outcome: delivered, retry, permanent or gone; wait_s: until the next try, None = no more.

        A delivery counts even when the lease had passed on; a failure then says nothing of the attempt of its new holder.
        """
        now_ns, now_s = self._clock.time_ns(), self._clock.monotonic_s()

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE attempt SET status = ?, duration_ms = ?, outcome = ?, error = ? WHERE message = ? AND number = ?",
                (status, duration_ms, outcome, error, claim.seq, claim.attempt),
            )
            self._judge(connection, claim.target, outcome, error, now_ns)
            row = connection.execute("SELECT lease, state FROM message WHERE seq = ?", (claim.seq,)).fetchone()
            if row is None or row[1] != tables.WAITING:
                return
            if outcome == "delivered":
                connection.execute("UPDATE message SET tries = tries + 1 WHERE seq = ?", (claim.seq,))
                self._settle(connection, claim.seq, tables.SENT, "")
                # It answers again: what waited out a long pause goes now.
                connection.execute(
                    "UPDATE message SET retry_at_s = 0 WHERE target = ? AND state = 'waiting' AND tries > 0", (claim.target,)
                )
            elif row[0] == claim.lease:
                connection.execute(
                    "UPDATE message SET tries = tries + 1, error = ?, lease = '', leased_until_s = 0, retry_at_s = ? WHERE seq = ?",
                    (error, now_s + (wait_s or 0.0), claim.seq),
                )
                if wait_s is None:
                    self._settle(connection, claim.seq, tables.DEAD, error)

        self._change(change)

    def disable(self, target: str, reason: str, fingerprint: str) -> None:
        """Send nothing to ``target`` until its settings (``fingerprint``) change or a person enables it."""
        self._change(
            lambda connection: connection.execute(
                "INSERT INTO target (name, disabled_ns, disabled_as, error) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "disabled_ns = excluded.disabled_ns, disabled_as = excluded.disabled_as, error = excluded.error",
                (target, self._clock.time_ns(), fingerprint, reason),
            )
        )

    def is_disabled(self, target: str, fingerprint: str) -> bool:
        """Whether nothing may be sent to it; other settings than those that it was disabled with enable it."""
        row = self._with_connection(
            lambda connection: connection.execute(
                "SELECT disabled_as FROM target WHERE name = ? AND disabled_ns IS NOT NULL", (target,)
            ).fetchone()
        )
        if row is None or row[0] == fingerprint:
            return row is not None
        self.enable(target)
        return False

    def enable(self, target: str) -> bool:
        """Use it again; returns whether it was disabled."""
        return self._change(
            lambda connection: bool(
                connection.execute(
                    "UPDATE target SET disabled_ns = NULL, disabled_as = '', failures_in_a_row = 0, error = '' "
                    "WHERE name = ? AND disabled_ns IS NOT NULL",
                    (target,),
                ).rowcount
            )
        )

    def refuse_waiting(self, target: str, error: str) -> int:
        """Make dead letters of all that waits for ``target``; returns how many."""

        def change(connection: sqlite3.Connection) -> int:
            waiting = connection.execute("SELECT seq FROM message WHERE target = ? AND state = 'waiting'", (target,)).fetchall()
            for (seq,) in waiting:
                self._settle(connection, seq, tables.DEAD, error)
            return len(waiting)

        return self._change(change)

    def send_again(self, id: str) -> bool:
        """Put a dead letter back with all its tries; False when there is none of that id."""
        return self._change(
            lambda connection: bool(
                connection.execute(
                    "UPDATE message SET state = 'waiting', settled_ns = NULL, tries = 0, claims = 0, retry_at_s = 0, leased_until_s = 0, "
                    "lease = '', not_before_ns = 0, is_asked_again = 1, is_announced = 0 WHERE id = ? AND state = 'dead'",
                    (id,),
                ).rowcount
            )
        )

    def forget(self, id: str) -> bool:
        """Delete a dead letter; False when there is none of that id."""

        def change(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT seq FROM message WHERE id = ? AND state = 'dead'", (id,)).fetchone()
            if row is not None:
                connection.execute("DELETE FROM attempt WHERE message = ?", row)
                connection.execute("DELETE FROM message WHERE seq = ?", row)
            return row is not None

        return self._change(change)

    def take_unannounced(self, announce: Callable[[str, Notice, str], None]) -> int:
        """Call ``announce(target, notice, error)`` for each dead letter that nobody was told of; marked when it has returned."""

        def read(connection: sqlite3.Connection) -> list[tuple[int, str, str, str]]:
            return connection.execute(
                "SELECT seq, target, notice, error FROM message WHERE state = 'dead' AND is_announced = 0 AND kind NOT IN (?, ?) "
                "ORDER BY seq LIMIT 100",
                (NoticeKind.NOT_DELIVERED.value, NoticeKind.TEST.value),
            ).fetchall()

        letters = self._with_connection(read)
        for seq, target, text, error in letters:
            try:
                notice = Notice.from_mapping(json.loads(text))
            except (KeyError, TypeError, ValueError):
                notice = None
            if notice is not None:
                announce(target, notice, error)
            self._change(partial(tables.mark_announced, seq=seq))
        return len(letters)

    def messages(self, state: str = "", target: str = "", limit: int = 100) -> list[Message]:
        """The newest ones first."""
        return self._with_connection(lambda connection: rows.messages(connection, state, target, limit))

    def attempts(self, id: str) -> list[Attempt]:
        """All of one message, in order."""
        found = self._with_connection(
            lambda connection: connection.execute(
                "SELECT a.number, a.at_ns, a.status, a.duration_ms, a.outcome, a.error FROM attempt a JOIN message m ON m.seq = a.message "
                "WHERE m.id = ? ORDER BY a.number",
                (id,),
            ).fetchall()
        )
        return [Attempt(*row) for row in found]

    def health(self, targets: Iterable[str]) -> list[TargetHealth]:
        """Of each of these targets, in their order."""

        return self._with_connection(lambda connection: rows.health(connection, targets))

    def lost(self) -> int:
        """Messages that were dropped undelivered because too many waited, since the file was begun."""
        row = self._with_connection(
            lambda connection: connection.execute("SELECT value FROM kept WHERE name = 'lost'").fetchone()
        )
        return int(row[0]) if row else 0

    def close(self) -> None:
        """A later call raises ``StoreError``."""
        self._connections.close()

    @staticmethod
    def _is_overtaken(connection: sqlite3.Connection, target: str, incident: str, seq: int) -> bool:
        return (
            connection.execute(
                "SELECT 1 FROM message WHERE target = ? AND incident = ? AND seq > ? AND state = 'sent' AND kind = ? LIMIT 1",
                (target, incident, seq, NoticeKind.RECOVERED.value),
            ).fetchone()
            is not None
        )

    def _settle(self, connection: sqlite3.Connection, seq: int, state: str, error: str) -> None:
        connection.execute(
            "UPDATE message SET state = ?, settled_ns = ?, error = ?, lease = '', leased_until_s = 0 WHERE seq = ?",
            (state, self._clock.time_ns(), error, seq),
        )

    @staticmethod
    def _judge(connection: sqlite3.Connection, target: str, outcome: str, error: str, now_ns: int) -> None:
        connection.execute("INSERT OR IGNORE INTO target (name) VALUES (?)", (target,))
        if outcome == "delivered":
            connection.execute(
                "UPDATE target SET last_ok_ns = ?, failures_in_a_row = 0, error = '' WHERE name = ?", (now_ns, target)
            )
        else:
            connection.execute(
                "UPDATE target SET last_failure_ns = ?, failures_in_a_row = failures_in_a_row + 1, error = ? WHERE name = ?",
                (now_ns, error, target),
            )

    def _with_connection(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        self._check_place()
        with self._connections.lend() as (connection, _):
            return act(connection)

    def _change(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        self._check_place()
        with self._connections.lend() as (connection, _), _transaction(connection):
            return act(connection)

    def _check_place(self) -> None:
        if self._is_local:
            return
        try:
            refuse_network_file_system(self.path)
        except StoreError as error:
            raise StoreError(
                f"The outbox {self.path} would lie on a network file system, where SQLite loses data; "
                "name a file on a local disk in [alerts] outbox."
            ) from error
        self._is_local = True


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
