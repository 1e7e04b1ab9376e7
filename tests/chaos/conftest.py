"""Real servers to break, and writers in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_tools import Writer

from tests.services.influx_server import INFLUXD, InfluxServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InfluxServer]:
    """A server of the test's own, because it is going to be broken."""
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    made = InfluxServer(tmp_path / "influxd", index="tsi1").start()
    yield made
    made.kill()


@pytest.fixture
def start_writer(tmp_path: Path) -> Iterator[Callable[..., Writer]]:
    writers: list[Writer] = []

    def start(**spec: Any) -> Writer:
        writers.append(Writer({"spool": str(tmp_path / "spool" / "a.spool"), **spec}, tmp_path / "errors"))
        return writers[-1]

    yield start
    for writer in writers:
        if writer.process.poll() is None or (writer.process.stdout and not writer.process.stdout.closed):
            writer.kill()
    errors = tmp_path / "errors"
    assert not errors.exists() or "Traceback" not in errors.read_text(), errors.read_text()
