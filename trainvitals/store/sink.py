"""From the settings to what ``watch`` and collectors write to: the embedded store itself, or a spool in front of another one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from trainvitals.clock import Clock
from trainvitals.errors import SettingsError, StoreError, StoreUnavailable
from trainvitals.store.open import SCHEME, open_embedded, open_store
from trainvitals.store.protocol import Sink
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile, SpoolStats
from trainvitals.store.sqlite_connection import refuse_network_file_system

if TYPE_CHECKING:
    from trainvitals.settings import Settings

#: Below this a spool would hold less than a few requests.
SMALLEST_BYTES = 1024 * 1024
SUFFIX = ".spool"


class ClosableSink(Sink, Protocol):
    """A sink that its opener closes."""

    def close(self) -> None: ...


def open_sink(
    settings: Settings, owner: str, say: Callable[[str], None] | None = None, clock: Clock | None = None
) -> ClosableSink:
    """What ``owner`` ("watch/RUN", "collector/gpu/NODE") writes to. Each owner has a spool file of its own: one that fills
    up takes nothing from the others. Raises ``StoreError`` for a store of no known kind, ``SettingsError`` for a spool
    that cannot be kept where the settings say.
    """
    if settings.store.startswith(SCHEME):
        return open_embedded(settings.store)
    file = spool_file(settings, owner, clock)
    return Spool(file, open_store(settings.store, influxdb=settings.influxdb), say)


def spool_file(settings: Settings, owner: str, clock: Clock | None = None) -> SpoolFile:
    """The owner's file, as the settings bound it; nothing is touched before the first call."""
    if settings.spool.max_bytes < SMALLEST_BYTES:
        raise SettingsError(f"[spool] max_bytes must be at least {SMALLEST_BYTES:,}, not {settings.spool.max_bytes:,}.")
    path = settings.spool_directory / file_name(owner)
    try:
        refuse_network_file_system(path)
    except StoreError as error:
        raise SettingsError(
            f"The spool {path} would lie on a network file system, where SQLite loses data; "
            "name a directory on a local disk in [spool] dir."
        ) from error
    return SpoolFile(
        path,
        clock,
        owner=owner,
        max_bytes=settings.spool.max_bytes,
        max_age_s=settings.spool.max_age_s,
        max_dead_letters=settings.spool.max_dead_letters,
    )


def spool_files(settings: Settings) -> Iterator[SpoolFile]:
    """All spool files of this machine, by name; their owners need not run."""
    for path in sorted(settings.spool_directory.glob(f"*{SUFFIX}")):
        yield SpoolFile(
            path,
            max_bytes=settings.spool.max_bytes,
            max_age_s=settings.spool.max_age_s,
            max_dead_letters=settings.spool.max_dead_letters,
        )


def file_name(owner: str) -> str:
    """A plain file name for any owner; different owners never share one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", owner)[:80].lstrip(".")
    return f"{plain}-{zlib.crc32(owner.encode('utf-8', 'replace')):08x}{SUFFIX}"


def spool_stats(sink: object) -> SpoolStats | None:
    """What waits in the spool of a sink, None when it has none. A file that cannot be read is a fault in words.
    Sinks in front of another one name it ``inner``."""
    spool = _spool_of(sink)
    if spool is None:
        return None
    try:
        return spool.stats()
    except StoreUnavailable as error:
        return SpoolStats(fault=str(error))


def replacements(sink: object) -> tuple[int, str]:
    """How often the file behind a sink was deleted or replaced under it, and which it is. Sinks in front of another one name it ``inner``."""
    while (inner := getattr(sink, "inner", None)) is not None:
        sink = inner
    found: tuple[int, str] = getattr(sink, "replaced", (0, ""))
    return found


def _spool_of(sink: object) -> Spool | None:
    while (inner := getattr(sink, "inner", None)) is not None:
        sink = inner
    return sink if isinstance(sink, Spool) else None


def waiting_s(sink: object) -> float:
    """Age in seconds of the oldest row that has not reached the store; 0 without a spool. Raises ``StoreUnavailable`` when
    that cannot be known: 0 would close windows whose rows still wait."""
    spool = _spool_of(sink)
    return 0.0 if spool is None else spool.stats().oldest_age_s


def heartbeat_fields(sink: object) -> dict[str, float | int | str | bool]:
    """The spool's numbers as fields of `heartbeat`; none without a spool."""
    stats = spool_stats(sink)
    if stats is None:
        return {}
    return {
        "spool_depth": stats.waiting,
        "spool_age_s": stats.oldest_age_s,
        "spool_dropped": stats.dropped,
        "spool_dead": stats.dead_letters,
    }
