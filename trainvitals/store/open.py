"""From the ``store`` setting to a store."""

from __future__ import annotations

from pathlib import Path

from trainvitals.errors import StoreError
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

SCHEME = "sqlite://"


def open_store(url: str, read_only: bool = False) -> Store:
    """Open ``sqlite:///absolute/path``. Nothing is touched before the first call. Raises ``StoreError`` for other urls."""
    if url.startswith(SCHEME):
        path = Path(url.removeprefix(SCHEME))
        if path.is_absolute() and path.name and "\0" not in url:
            return SqliteStore(path, read_only=read_only)
        raise StoreError(
            f"The store {url!r} names no file; write sqlite:// and an absolute path, such as sqlite:///var/lib/tv.db."
        )
    if url.startswith("influxdb"):
        raise StoreError(
            f"The store {url.split(':', 1)[0]!r} is not available: this version has the embedded store only; "
            "write sqlite:// and an absolute path, such as sqlite:///var/lib/trainvitals/trainvitals.db."
        )
    raise StoreError(f"The store {url[:80]!r} is of no known kind; write sqlite:// and an absolute path.")
