"""``store check`` tries the database of requests, in which a program may write or read, but hardly one both."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.services.influx_server import InfluxServer
from trainvitals.__main__ import main
from trainvitals.clock import SystemClock
from trainvitals.errors import StoreUnavailable
from trainvitals.store.influx_check import request_checks


class Guarded:
    """A server whose rights say no."""

    def __init__(self, *, writes: bool, reads: bool) -> None:
        self.may = {"write": writes, "query": reads}
        self.asked: list[str] = []

    def write(self, database: str, body: bytes) -> None:
        self._ask("write")

    def query(self, database: str, statement: str, values=None, changes: bool = False):
        self._ask("query")
        return [[]]

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if not self.may[what]:
            raise StoreUnavailable(f"the server refused the rights to {what} (403).")


@pytest.mark.parametrize(
    ("writes", "reads", "said"),
    [
        (True, False, "writes requests (a dashboard's)"),
        (False, True, "reads requests (a watchdog's)"),
        (True, True, "one for both"),
    ],
)
def test_what_the_token_may_is_said_and_each_half_is_enough(writes: bool, reads: bool, said: str) -> None:
    (check,) = request_checks(Guarded(writes=writes, reads=reads), "requests", SystemClock())  # type: ignore[arg-type]
    assert check.is_good and said in check.name


def test_a_token_that_may_neither_is_a_fault_that_says_why() -> None:
    (check,) = request_checks(Guarded(writes=False, reads=False), "requests", SystemClock())  # type: ignore[arg-type]
    assert not check.is_good and "rights to write" in check.fault and "rights to query" in check.fault


@pytest.mark.parametrize("is_there", [True, False])
def test_the_command_tries_it_where_a_run_is_reached_through_the_store(
    is_there: bool, influxd: InfluxServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = uuid.uuid4().hex[:10]
    names = [f"hw-{mark}", f"long-{mark}", f"requests-{mark}"]
    for name in names if is_there else names[:2]:
        influxd.query(f'CREATE DATABASE "{name}"')
    (tmp_path / "key").write_text("a secret that is long enough to be one")
    (tmp_path / "key").chmod(0o600)
    config = tmp_path / "trainvitals.toml"
    config.write_text(
        f'store = "influxdb+{influxd.url}"\n[influxdb]\ndatabase = "{names[0]}"\ndatabase_long = "{names[1]}"\n'
        f'database_requests = "{names[2]}"\n[requests]\nkey_files = ["key"]\n[[runs]]\nname = "r"\ndir = "{tmp_path}"\ncontrol_road = "store"\n'
    )
    try:
        code = main(["store", "check", "--json", "--config", str(config)])
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    finally:
        influxd.drop_databases(*names)
    of_requests = [one for one in told if names[2] in one["check"]]
    assert len(of_requests) == 1 and of_requests[0]["ok"] is is_there and code == (0 if is_there else 1), told
