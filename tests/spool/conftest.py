"""A spool file on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainvitals.clock import ManualClock
from trainvitals.store.spool_file import SpoolFile


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_file(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., SpoolFile]]:
    opened: list[SpoolFile] = []

    def open_one(**options: object) -> SpoolFile:
        opened.append(SpoolFile(tmp_path / "spool" / "a.spool", clock, owner="test", **options))
        return opened[-1]

    yield open_one
    for file in opened:
        file.close()


@pytest.fixture
def file(open_file: Callable[..., SpoolFile]) -> SpoolFile:
    return open_file()
