"""``store setup``: the two databases (1.x, 3) or buckets (2.x) with their retention, and how to make the rights for each program.

Tokens are made by a person with the server's own tools: this program never sees one but the one it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from trainvitals.errors import StoreError
from trainvitals.schema import SCHEMA
from trainvitals.store.influx_check import SCRATCH_PREFIX
from trainvitals.store.influx_connection import Flavour, InfluxConnection
from trainvitals.store.influx_query import Databases, identifier

DAY_S = 86_400
#: Rows are deleted by us at the set age; the server takes what is left a day later, so that a late row is no error.
GRACE_DAYS = 1
#: A request counts for an hour at most; what is older is for people who look for the reason of a refusal.
REQUEST_DAYS = 7


def set_up(
    connection: InfluxConnection, databases: Databases, org: str, hardware_days: int, *, with_requests: bool = False
) -> Iterator[str]:
    """Make what is missing and set the retention; yields a sentence for each. Safe to run again. ``hardware_days`` 0 = for ever.
    with_requests: also the place of signed requests."""
    flavour = connection.flavour()
    days = hardware_days + GRACE_DAYS if hardware_days else 0
    of_requests = ((databases.requests, REQUEST_DAYS),) if with_requests else ()
    for name, kept in ((databases.hardware, days), (databases.long, 0), *of_requests):
        if flavour.major == 1:
            yield _database(connection, name, kept)
        elif flavour.major == 2:
            yield _bucket(connection, name, kept, org)
        else:
            yield _table_database(connection, name, kept)


def _words(days: int) -> str:
    return f"rows go after {days} days" if days else "rows stay for good"


def _others(connection: InfluxConnection, name: str) -> str:
    """A sentence when the database holds measurements that are not ours: a new retention would delete them."""
    (tables,) = connection.query(name, "SHOW MEASUREMENTS")
    found = [str(row[0]) for table in tables for row in table.rows]
    foreign = [one for one in found if one not in SCHEMA and not one.startswith(SCRATCH_PREFIX)]
    if not foreign:
        return ""
    shown = ", ".join(map(repr, foreign[:3]))
    return (
        f"{name}: holds data of others ({shown}), so its retention was left as it is; "
        "name a database of its own in [influxdb] database or database_long."
    )


def _database(connection: InfluxConnection, name: str, days: int) -> str:
    connection.query("", f"CREATE DATABASE {identifier(name)}", changes=True)
    others = _others(connection, name)
    if others:
        return f"database {others}"
    (tables,) = connection.query("", f"SHOW RETENTION POLICIES ON {identifier(name)}")
    policies = [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]
    policy = next((str(each["name"]) for each in policies if each.get("default")), "autogen")
    duration = f"{days}d" if days else "INF"
    # One shard a day (a week for good): old data goes by whole shards.
    statement = f"ALTER RETENTION POLICY {identifier(policy)} ON {identifier(name)} DURATION {duration} SHARD DURATION {'1d' if days else '7d'}"
    connection.query("", statement, changes=True)
    return f"database {name}: {_words(days)} (retention policy {policy})."


def _bucket(connection: InfluxConnection, name: str, days: int, org: str) -> str:
    rules = [{"type": "expire", "everySeconds": days * DAY_S}] if days else []
    found = connection.manage(
        "GET", "/api/v2/buckets", [("name", name), *([("org", org)] if org else [])], f"bucket {name}", missing_ok=True
    )
    buckets = (found or {}).get("buckets") or []
    if buckets:
        others = _others(connection, name)
        if others:
            return f"bucket {others}"
        path = f"/api/v2/buckets/{quote(str(buckets[0]['id']), safe='')}"
        connection.manage("PATCH", path, [], f"bucket {name}", {"retentionRules": rules})
        return f"bucket {name} (id {buckets[0]['id']}): {_words(days)}."
    organizations = (
        connection.manage("GET", "/api/v2/orgs", [("org", org)] if org else [], f"organization {org}").get("orgs") or []
    )
    if not organizations:
        raise StoreError(f"InfluxDB at {connection.url} knows no organization {org!r}; name yours in [influxdb] org.")
    document = {"orgID": organizations[0]["id"], "name": name, "retentionRules": rules}
    made = connection.manage("POST", "/api/v2/buckets", [], f"bucket {name}", document)
    return f"bucket {name} (id {made.get('id', '?')}): made; {_words(days)}."


def _table_database(connection: InfluxConnection, name: str, days: int) -> str:
    document = {"db": name, **({"retention_period": f"{days}d"} if days else {})}
    try:
        connection.manage("POST", "/api/v3/configure/database", [], f"database {name}", document)
    except StoreError as error:
        if "exist" not in str(error):
            raise
        return f"database {name}: is there already; this program leaves its retention as it is."
    return f"database {name}: made; {_words(days)}."


def right_commands(flavour: Flavour, databases: Databases, org: str, *, with_requests: bool = False) -> list[str]:
    """Shell commands and statements that make one right a program: collectors write, watch reads and writes, pages read.

    Collectors write to both: what befalls them (an event) is kept with the other events, and one refused point stops a spool.
    Signed requests (with_requests): the dashboard writes them and cannot read them, watch reads and cannot write.
    """
    hardware, long, requests = databases.hardware, databases.long, databases.requests
    if flavour.major == 1:
        return [
            "-- users of a server with auth-enabled = true; choose the passwords",
            *(f"CREATE USER \"{user}\" WITH PASSWORD '…'" for user in ("collector", "watch", "dashboard")),
            *(f'GRANT WRITE ON {identifier(name)} TO "collector"' for name in (hardware, long)),
            *(f'GRANT ALL ON {identifier(name)} TO "watch"' for name in (hardware, long)),
            *(f'GRANT READ ON {identifier(name)} TO "dashboard"' for name in (hardware, long)),
            *((f'GRANT READ ON {identifier(requests)} TO "watch"', f'GRANT WRITE ON {identifier(requests)} TO "dashboard"')
              if with_requests else ()),
        ]  # fmt: skip
    if flavour.major == 2:
        of_org = f" --org {org}" if org else ""
        reads, writes = (f" --{right}-bucket ID_OF_{requests}" if with_requests else "" for right in ("read", "write"))
        return [
            f"# ids: influx bucket list{of_org}",
            f"influx auth create{of_org} --description collector --write-bucket ID_OF_{hardware} --write-bucket ID_OF_{long}",
            f"influx auth create{of_org} --description watch "
            + " ".join(f"--{right}-bucket ID_OF_{name}" for name in (hardware, long) for right in ("read", "write"))
            + reads,
            f"influx auth create{of_org} --description dashboard --read-bucket ID_OF_{hardware} --read-bucket ID_OF_{long}{writes}",
        ]
    reads, writes = (f" --permission 'db:{requests}:{right}'" if with_requests else "" for right in ("read", "write"))
    return [
        "# Enterprise; Core has admin tokens only: influxdb3 create token --admin",
        f"influxdb3 create token --permission 'db:{hardware},{long}:write' --name collector",
        f"influxdb3 create token --permission 'db:{hardware},{long}:read,write'{reads} --name watch",
        f"influxdb3 create token --permission 'db:{hardware},{long}:read'{writes} --name dashboard",
    ]
