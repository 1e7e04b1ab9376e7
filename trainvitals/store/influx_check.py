"""``store check``: what the product asks of an InfluxDB server, tried on the user's own one in a measurement made for it.

Each check is a sentence and what was found. The measurement is called ``trainvitals_check_…`` and is deleted at the end where
the version can delete; no row of the product is read or touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.clock import Clock
from trainvitals.errors import StoreError, StoreRejected
from trainvitals.store.influx_connection import Flavour, InfluxConnection
from trainvitals.store.line_protocol import stored_tag

OLDEST = {1: (1, 6), 2: (2, 5), 3: (3, 0)}
SCRATCH_PREFIX = "trainvitals_check_"
MINUTE_NS = 60 * 10**9
_HOSTILE_NAME = "a b,c=d\\e%'; DROP MEASUREMENT x; --"
_HOSTILE_TEXT = 'say "hi"\\ \n, =;'


@dataclass(frozen=True)
class Check:
    """One sentence; ``fault`` is empty when it holds."""

    name: str
    fault: str = ""

    @property
    def is_good(self) -> bool:
        return not self.fault


@dataclass
class _Scratch:
    """A measurement of one database."""

    connection: InfluxConnection
    database: str
    start_ns: int
    name: str = field(default_factory=lambda: f"{SCRATCH_PREFIX}{uuid.uuid4().hex[:12]}")

    def write(self, *lines: str) -> None:
        self.connection.write(self.database, "\n".join(f"{self.name},{line}" for line in lines).encode())

    def line(self, host: str, fields: str, at_ns: int = 0) -> str:
        escaped = stored_tag(host).replace(",", "\\,").replace(" ", "\\ ").replace("=", "\\=")
        return f"host={escaped} {fields} {self.start_ns + at_ns}"

    def rows(self, what: str, tail: str = "", more: str = "", values: Mapping[str, str] | None = None) -> list[list[Any]]:
        bounds = f"time >= {self.start_ns} AND time < {self.start_ns + 60 * MINUTE_NS}"
        statement = f'SELECT {what} FROM "{self.name}" WHERE {bounds}{more} {tail}'  # noqa: S608 (our own names)
        (tables,) = self.connection.query(self.database, statement, values)
        return [list(row) for table in tables for row in table.rows]


def run_checks(connection: InfluxConnection, databases: tuple[str, ...], clock: Clock) -> Iterator[Check]:
    """All checks in order; those that need an earlier one end with it. Raises nothing that the server may cause."""
    try:
        flavour = connection.flavour()
    except StoreError as error:
        yield Check("the server answers", str(error))
        return
    too_old = (flavour.major, flavour.minor) < OLDEST.get(flavour.major, (0, 0))
    yield Check(
        f"the server answers as InfluxDB {flavour.version}",
        "this version is older than what is supported: 1.6, 2.5, 3.0." if too_old else "",
    )
    for database in databases:
        yield from _database_checks(connection, database, flavour, clock)


def request_checks(connection: InfluxConnection, database: str, clock: Clock) -> Iterator[Check]:
    """Of the database of requests, where a dashboard's token only writes and a watchdog's only reads: each may do one of both. What a
    token without the right to read wrote goes with the database's retention."""
    scratch = _Scratch(connection, database, clock.time_ns() // (60 * MINUTE_NS) * 60 * MINUTE_NS)
    writes, reads = _tried("", lambda: _is_written(scratch)), _tried("", lambda: _is_read(scratch))
    if not writes.is_good and not reads.is_good:
        yield Check(f"{database}: requests are written or read", f"writing: {writes.fault} Reading: {reads.fault}")
        return
    rights = "writes and reads" if writes.is_good and reads.is_good else "writes" if writes.is_good else "reads"
    who = {"writes": "a dashboard's", "reads": "a watchdog's"}.get(
        rights, "one for both, which only one machine for all may have"
    )
    yield Check(f"{database}: the token {rights} requests ({who})")


def _is_written(scratch: _Scratch) -> str:
    scratch.write(scratch.line("plain", "whole=1i"))
    return ""


def _is_read(scratch: _Scratch) -> str:
    scratch.rows('"whole"')
    return ""


def _database_checks(connection: InfluxConnection, database: str, flavour: Flavour, clock: Clock) -> Iterator[Check]:
    start_ns = (clock.time_ns() // (60 * MINUTE_NS) - 1) * 60 * MINUTE_NS
    scratch = _Scratch(connection, database, start_ns)
    first = _tried(f"{database}: points are taken", lambda: _takes(scratch))
    yield first
    if not first.is_good:
        return
    for name, check in (
        ("rows come back with their text, types and nanoseconds", _round_trip),
        ("the same point again adds nothing and merges its fields", _merges),
        ("a bound value is a value, whatever stands in it", _binds),
        ("windows of time are aligned and hold every extreme", _windows),
        ("the newest rows come first when asked", _newest_first),
        ("a value that no version stores is refused", _refuses),
        ("a field keeps its type", _keeps_types),
    ):
        yield _tried(f"{database}: {name}", lambda check=check: check(scratch))  # type: ignore[misc]
    yield _tried(f"{database}: what was written for this check is deleted", lambda: _deletes(scratch, flavour))


def _tried(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, check())
    except StoreError as error:
        return Check(name, str(error))


def _takes(scratch: _Scratch) -> str:
    scratch.write(
        scratch.line(_HOSTILE_NAME, f'whole={2**63 - 1}i,number=0.1,text="{_escaped(_HOSTILE_TEXT)}",flag=true', 123_456_789),
        *(scratch.line("plain", f"whole={at}i,number={99.5 if at == 77 else 1.5}", at * 10**9 * 6) for at in range(200)),
    )
    return ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _round_trip(scratch: _Scratch) -> str:
    wanted = [scratch.start_ns + 123_456_789, 2**63 - 1, 0.1, _HOSTILE_TEXT, True]
    found = scratch.rows(
        '"whole", "number", "text", "flag"', more=' AND "host" = $name', values={"name": stored_tag(_HOSTILE_NAME)}
    )
    return "" if found == [wanted] else f"wrote {wanted!r}, read {found!r}."


def _merges(scratch: _Scratch) -> str:
    scratch.write(scratch.line("plain", "number=1.5"), scratch.line("plain", "other=5i"))
    found = scratch.rows('"whole", "number", "other"', "ORDER BY time ASC LIMIT 1", ' AND "host" = $name', {"name": "plain"})
    count = scratch.rows('count("number")', more=' AND "host" = $name', values={"name": "plain"})
    wanted = [[scratch.start_ns, 0, 1.5, 5]]
    if found != wanted:
        return f"expected {wanted!r}, read {found!r}."
    return "" if count and count[0][1] == 200 else f"expected 200 rows, the server counts {count!r}."


def _binds(scratch: _Scratch) -> str:
    for name in ("plain' OR '1'='1", '\' OR "host" =~ /.*/ --', "$name"):
        found = scratch.rows('"whole"', more=' AND "host" = $name', values={"name": name})
        if found:
            return f"the name {name!r} found {len(found)} rows."
    return ""


def _windows(scratch: _Scratch) -> str:
    tail = "GROUP BY time(60000000000ns) fill(none)"
    found = scratch.rows('count("whole"), max("number"), last("whole")', tail, ' AND "host" = $name', {"name": "plain"})
    wanted = [[scratch.start_ns + window * MINUTE_NS, 10, 99.5 if window == 7 else 1.5, window * 10 + 9] for window in range(20)]
    return "" if found == wanted else f"expected {wanted[:3]!r} and so on, read {found[:3]!r}."


def _newest_first(scratch: _Scratch) -> str:
    found = scratch.rows('"whole"', "ORDER BY time DESC LIMIT 3", ' AND "host" = $name', {"name": "plain"})
    return "" if [row[1] for row in found] == [199, 198, 197] else f"read {found!r}."


def _refuses(scratch: _Scratch) -> str:
    try:
        scratch.write(scratch.line("nan", "number=NaN"))
    except StoreRejected:
        return ""
    return "NaN was accepted as a number."


def _keeps_types(scratch: _Scratch) -> str:
    try:
        scratch.write(scratch.line("types", 'whole="text"', 1))
    except StoreRejected:
        return ""
    return "text was accepted for a field of whole numbers in the same hour."


def _deletes(scratch: _Scratch, flavour: Flavour) -> str:
    if flavour.major == 3:
        return ""  # cannot delete: the caller says that the table is left
    scratch.connection.query(scratch.database, f'DELETE FROM "{scratch.name}"', changes=True)  # noqa: S608 (our own name)
    left = scratch.rows('count("whole")')
    return "" if not left else f"{left!r} rows of {scratch.name} are still there."
