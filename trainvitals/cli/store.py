"""``store check|setup|copy``: the store that the settings name, looked at, prepared or moved by a person."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
from itertools import chain
from typing import TYPE_CHECKING

from trainvitals import settings as settings_module
from trainvitals.clock import SystemClock
from trainvitals.errors import SettingsError, StoreError
from trainvitals.settings import Settings
from trainvitals.store.open import is_remote, open_store

if TYPE_CHECKING:
    from trainvitals.store.influx import InfluxStore

_COPY = "trainvitals.cli.store_copy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run_part=None)
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    check = parts.add_parser("check", help="try what the product asks of the store, in a measurement made for it")
    check.add_argument("--config", help="settings file")
    check.add_argument("--json", action="store_true", help="one object a check")
    check.set_defaults(run_part=_check)
    setup = parts.add_parser("setup", help="make the databases or buckets with their retention; say how to make the tokens")
    setup.add_argument("--config", help="settings file")
    setup.add_argument("--admin-token-file", metavar="FILE", help="a token that may make buckets, for this call only")
    setup.set_defaults(run_part=_setup)
    if importlib.util.find_spec(_COPY) is not None:
        module = importlib.import_module(_COPY)
        copy = parts.add_parser("copy", help="move history from one store to another")
        module.add_arguments(copy)
        copy.set_defaults(run_part=module.run)


def run(options: argparse.Namespace) -> int:
    code: int = options.run_part(options)
    return code


def _check(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    if not is_remote(settings.store):
        store = open_store(settings.store, read_only=True)
        try:
            health = store.health()
        finally:
            store.close()
        _tell(options.json, f"{health.flavour} {health.version}", "" if health.is_reachable else health.text, health.text)
        return 0 if health.is_reachable else 1

    from trainvitals.store.influx_check import request_checks, run_checks

    store = _influx(settings)
    faults = 0
    try:
        databases = (settings.influxdb.database, settings.influxdb.database_long)
        clock = SystemClock()
        has_requests = any(run.control_road == "store" for run in settings.runs)
        of_requests = request_checks(store.connection, settings.influxdb.database_requests, clock) if has_requests else ()
        for check in chain(run_checks(store.connection, databases, clock), of_requests):
            faults += not check.is_good
            _tell(options.json, check.name, check.fault)
        if not faults and store.connection.flavour().major == 3 and not options.json:
            print("The tables trainvitals_check_… stay: InfluxDB 3 cannot delete rows; drop them with `influxdb3 delete table`.")  # noqa: T201
    finally:
        store.close()
    return 1 if faults else 0


def _tell(as_json: bool, name: str, fault: str, text: str = "") -> None:
    if as_json:
        print(json.dumps({"check": name, "ok": not fault, "fault": fault, "text": text}, ensure_ascii=False), flush=True)  # noqa: T201
    else:
        line = f"FAULT {name}: {fault}" if fault else f"ok    {name}{': ' if text else ''}{text}"
        print("".join(c if c.isprintable() else "?" for c in line), flush=True)  # noqa: T201


def _setup(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    if not is_remote(settings.store):
        raise SettingsError("The embedded store needs no setup: its file is made by the first program that writes to it.")

    from trainvitals.store.influx_query import Databases
    from trainvitals.store.influx_rights import Rights
    from trainvitals.store.influx_setup import right_commands, set_up

    store = _influx(settings)
    if options.admin_token_file:  # given by hand: it wins over the everyday token, also over one in the environment
        store.connection.take_rights(Rights(options.admin_token_file, environ={}))
    databases = Databases(
        settings.influxdb.database, settings.influxdb.database_long, settings.influxdb.database_requests
    )  # fmt: skip
    has_requests = any(run.control_road == "store" for run in settings.runs)
    days = settings.retention.hardware_days
    try:
        for sentence in set_up(store.connection, databases, settings.influxdb.org, days, with_requests=has_requests):
            print(sentence)  # noqa: T201
        print("\nRights, one for each program (collectors write, watch reads and writes, the dashboard reads):")  # noqa: T201
        commands = right_commands(store.connection.flavour(), databases, settings.influxdb.org, with_requests=has_requests)
        print("\n".join(commands))  # noqa: T201
    finally:
        store.close()
    return 0


def _influx(settings: Settings) -> InfluxStore:
    # Imported late: the client library costs a second that the embedded store need not pay.
    from trainvitals.store.influx import InfluxStore

    store = open_store(settings.store, influxdb=settings.influxdb)
    if not isinstance(store, InfluxStore):
        raise StoreError(f"The store {settings.store[:80]!r} is no InfluxDB server.")
    return store
