"""From the ``store`` setting to a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainvitals.errors import StoreError
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from trainvitals.settings import InfluxdbSettings

SCHEME = "sqlite://"
INFLUX_PREFIX = "influxdb+"


def is_remote(url: str) -> bool:
    """Whether a store is a server: then everything that writes goes through a spool."""
    return url.startswith("influxdb")


def open_embedded(url: str, read_only: bool = False) -> SqliteStore:
    """Open ``sqlite:///absolute/path``: a store and a sink. Nothing is touched before the first call."""
    path = Path(url.removeprefix(SCHEME))
    if url.startswith(SCHEME) and path.is_absolute() and path.name and "\0" not in url:
        return SqliteStore(path, read_only=read_only)
    raise StoreError(f"The store {url!r} names no file; write sqlite:// and an absolute path, such as sqlite:///var/lib/tv.db.")


def open_store(url: str, read_only: bool = False, influxdb: InfluxdbSettings | None = None) -> Store:
    """Open ``sqlite:///absolute/path`` or ``influxdb+https://host:8086`` (with ``[influxdb]``).

    Nothing is touched before the first call. Raises ``StoreError`` for other urls.
    """
    if url.startswith(SCHEME):
        return open_embedded(url, read_only)
    if is_remote(url):
        address = influx_address(url)
        if influxdb is None:
            raise StoreError(f"The store at {address} needs the settings of [influxdb]; this program was given none.")
        # Imported here: the client library costs a second that a laptop with the embedded store need not pay.
        from trainvitals.store.influx import InfluxStore

        return InfluxStore(address, influxdb, read_only=read_only)
    raise StoreError(
        f"The store {url[:80]!r} is of no known kind; write sqlite:// and an absolute path, or influxdb+https://host:8086."
    )


def influx_address(url: str) -> str:
    """``https://host:8086`` of ``influxdb+https://host:8086``. Raises ``StoreError`` that repeats no secret."""
    try:
        parts = urlsplit(url.removeprefix(INFLUX_PREFIX))
        is_good = url.startswith(INFLUX_PREFIX) and parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good or re.search(r"[\s\\]", url):
        raise StoreError("The store names no InfluxDB server; write influxdb+https://host:8086 or influxdb+http://host:8086.")
    if parts.username is not None or parts.query or parts.fragment:
        raise StoreError(
            f"The address of the store at {parts.hostname} may hold no user, password or query; "
            "name them in [influxdb]: token_file, or user and password_file."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
