"""The tables of the outbox, and the queries that several of its methods need. Times of this boot are monotonic seconds.

Wall time is only for people and for ``not_before_ns`` (the end of somebody's quiet hours): leases and waits count in the
monotonic time of one boot, which all processes of a machine share and which nobody sets.
"""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 1
WAITING, SENT, DEAD, OVERTAKEN = "waiting", "sent", "dead", "overtaken"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    incident TEXT NOT NULL,
    kind TEXT NOT NULL,
    is_critical INTEGER NOT NULL,
    notice TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    not_before_ns INTEGER NOT NULL,
    state TEXT NOT NULL,
    settled_ns INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    boot TEXT NOT NULL DEFAULT '',
    retry_at_s REAL NOT NULL DEFAULT 0,
    lease TEXT NOT NULL DEFAULT '',
    leased_until_s REAL NOT NULL DEFAULT 0,
    is_asked_again INTEGER NOT NULL DEFAULT 0,
    is_announced INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS message_by_target ON message (target, state, seq);
CREATE INDEX IF NOT EXISTS message_by_incident ON message (target, incident, seq);
CREATE INDEX IF NOT EXISTS message_by_state ON message (state, seq);
CREATE TABLE IF NOT EXISTS attempt (
    message INTEGER NOT NULL,
    number INTEGER NOT NULL,
    target TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    boot TEXT NOT NULL,
    started_s REAL NOT NULL,
    status INTEGER,
    duration_ms REAL,
    outcome TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (message, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempt_by_target ON attempt (target, boot, started_s);
CREATE TABLE IF NOT EXISTS target (
    name TEXT PRIMARY KEY,
    last_ok_ns INTEGER,
    last_failure_ns INTEGER,
    failures_in_a_row INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    disabled_ns INTEGER,
    disabled_as TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

#: Nothing of this target is ready before what was told earlier of the same incident: a receiver that hears "over" before
#: "began" keeps an incident open for ever. What quiet hours hold back holds nothing else back.
READY = """
SELECT m.seq, m.id, m.notice, m.tries, m.claims, m.is_asked_again, m.incident FROM message m
WHERE m.target = :target AND m.state = 'waiting'
  AND (m.not_before_ns <= :now_ns OR m.not_before_ns > :now_ns + :longest_hold_ns)
  AND (m.boot != :boot OR (m.retry_at_s <= :now_s AND m.leased_until_s <= :now_s))
  AND NOT EXISTS (
    SELECT 1 FROM message e INDEXED BY message_by_incident WHERE e.target = m.target AND e.incident = m.incident AND e.seq < m.seq AND e.state = 'waiting'
      AND (e.not_before_ns <= :now_ns OR e.not_before_ns > :now_ns + :longest_hold_ns))
ORDER BY m.is_critical DESC, m.seq LIMIT 1
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables. Raises ``sqlite3.DatabaseError`` for a file of a newer version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise sqlite3.DatabaseError(f"it was written by a newer version of Trainvitals (schema {version})")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def trim(connection: sqlite3.Connection, keep: dict[str, int]) -> int:
    """Delete the oldest rows of each state beyond ``keep``; returns how many that nobody was told of went."""
    lost = 0
    for state, most in keep.items():
        found = connection.execute(
            "SELECT seq FROM message WHERE state = ? ORDER BY seq DESC LIMIT 1 OFFSET ?", (state, most)
        ).fetchone()
        if found is None:
            continue
        connection.execute(
            "DELETE FROM attempt WHERE message IN (SELECT seq FROM message WHERE state = ? AND seq <= ?)", (state, found[0])
        )
        gone = connection.execute("DELETE FROM message WHERE state = ? AND seq <= ?", (state, found[0])).rowcount
        lost += gone if state in (WAITING, DEAD) else 0
    return lost


def count(connection: sqlite3.Connection, name: str, more: int) -> None:
    """Add to a number that is kept."""
    connection.execute(
        "INSERT INTO kept VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value", (name, more)
    )


def mark_announced(connection: sqlite3.Connection, seq: int) -> None:
    """Somebody else was told that this one was not delivered."""
    connection.execute("UPDATE message SET is_announced = 1 WHERE seq = ?", (seq,))
