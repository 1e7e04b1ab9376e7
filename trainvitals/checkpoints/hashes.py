"""Hashes and checksums of files through the one door: 4 MiB at a time, at a given pace, stopped at once when asked.

Which libraries are there decides the speed, not the result (checkpoint research, A3, GB per CPU-second: xxh3_128 16, sha256 1.6,
CRC32 of isal 15, of zlib 3.4). They are optional: without them the standard library's sha256 and CRC32 do the same work.
"""

from __future__ import annotations

import hashlib
import importlib
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from trainvitals.checkpoints.files import Reader
from trainvitals.clock import Clock

BLOCK_BYTES = 4 * 1024 * 1024
MB = 1_000_000


class Stopped(Exception):
    """Somebody asked to stop; nothing is known of the file that was being read."""


class Cut(Exception):
    """The file ended before the part that was to be read: somebody cut it short meanwhile."""


class Hash(Protocol):
    """What hashlib, xxhash and blake3 have in common."""

    def update(self, data: Any, /) -> object: ...

    def hexdigest(self) -> str: ...


def _optional(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None


_MAKERS: dict[str, Callable[[], Hash] | None] = {
    "xxh3_128": _optional("xxhash", "xxh3_128"),
    "blake3": _optional("blake3", "blake3"),
    "sha256": hashlib.sha256,
}
#: The same checksum from the fastest library that is there.
crc32: Callable[..., int] = (
    _optional("isal.isal_zlib", "crc32") or _optional("zlib_ng.zlib_ng", "crc32") or zlib.crc32
)  # pragma: no branch


#: Ten times as fast as a disk: a second thread would cost more than it wins.
FAST = ("xxh3_128",)


def is_available(algorithm: str) -> bool:
    """Whether hashes of this algorithm can be taken here."""
    return _MAKERS.get(algorithm) is not None


def own_algorithm() -> str:
    """What we hash with when nobody prescribes it."""
    return "xxh3_128" if is_available("xxh3_128") else "sha256"


def new(algorithm: str) -> Hash:
    """A hash to update; the algorithm is one that ``is_available``."""
    maker = _MAKERS[algorithm]
    assert maker is not None, algorithm
    return maker()


class _Crc32:
    """CRC32 with the manners of a hash."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: Any, /) -> object:
        self.value = crc32(data, self.value)
        return None

    def hexdigest(self) -> str:
        return f"{self.value:08x}"


class Pace:
    """How fast files are read, and whether to go on.

    mb_per_s: 0 = no limit. ``stop`` is asked before every block; ``tell`` is given the number of bytes of each block.
    One object paces all reads of one worker, so that many small files keep the pace too.
    """

    def __init__(
        self,
        clock: Clock,
        mb_per_s: float = 0.0,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._clock = clock
        self._bytes_per_s = mb_per_s * MB
        self._stop = stop
        self._tell = tell
        self._free_at_s = clock.monotonic_s()
        self.bytes = 0

    def before(self, count: int) -> None:
        """Wait until ``count`` more bytes may be read; raises ``Stopped``."""
        if self._stop():
            raise Stopped
        if self._bytes_per_s > 0:
            now_s = self._clock.monotonic_s()
            # Time that was not used is not saved up: a pause must not be followed by a burst.
            self._free_at_s = max(self._free_at_s, now_s)
            while (wait_s := self._free_at_s - self._clock.monotonic_s()) > 0:
                self._clock.sleep(min(wait_s, 0.5))
                if self._stop():
                    raise Stopped
            self._free_at_s += count / self._bytes_per_s

    def is_stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop()

    def after(self, count: int) -> None:
        """So many bytes were read."""
        self.bytes += count
        self._tell(count)


def digest(reader: Reader, algorithm: str, pace: Pace, offset: int = 0, length: int | None = None) -> str:
    """The hash of a file, or of a part of it, in hexadecimal. Raises ``Stopped``, ``Cut`` or ``Unreadable``."""
    taken = new(algorithm)
    size = reader.size - offset if length is None else length
    feed(reader, offset, size, taken.update, pace, is_slow=algorithm not in FAST)
    return taken.hexdigest()


def checksum(reader: Reader, pace: Pace, offset: int, length: int) -> int:
    """The CRC32 of a part. Raises as ``digest``."""
    taken = _Crc32()
    feed(reader, offset, length, taken.update, pace)
    return taken.value


def feed(reader: Reader, offset: int, length: int, update: Callable[[Any], object], pace: Pace, *, is_slow: bool = True) -> None:
    """Read a part in blocks and give each to ``update``; when that ``is_slow``, a thread reads the next one meanwhile.

    Raises as ``digest``.

    Without the overlap disk and hash take turns, and neither works at more than half its speed. (Asking the kernel to read ahead
    does it too, but measured four times the CPU time of reading: it fills the page cache page by page.)
    """
    end = offset + length
    starts = range(offset, end, BLOCK_BYTES)
    if len(starts) < 2 or not is_slow:
        buffer = memoryview(bytearray(min(length, BLOCK_BYTES)))
        for at in starts:
            update(_read(reader, buffer[: end - at], at, pace))
        return
    buffers = (memoryview(bytearray(BLOCK_BYTES)), memoryview(bytearray(BLOCK_BYTES)))
    with ThreadPoolExecutor(1, "checkpoint-read") as ahead:
        waiting: Future[memoryview] | None = None
        for number, at in enumerate(starts):
            following = ahead.submit(_read, reader, buffers[number % 2][: end - at], at, pace)
            if waiting is not None:
                update(waiting.result())
            waiting = following
        if waiting is not None:
            update(waiting.result())


def _read(reader: Reader, block: memoryview, offset: int, pace: Pace) -> memoryview:
    """Fill one block; its pages are not needed again."""
    pace.before(len(block))
    if reader.read_into(block, offset) < len(block):
        raise Cut
    reader.give_back(offset, len(block))
    pace.after(len(block))
    return block
