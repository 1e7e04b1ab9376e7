"""Remembers what long ``.metadata`` files say, so that each is parsed once and not in every look at its directory.

50 MB of it take 4 s, all of it in Python, and a checkpoint is looked at when a name beside it appears or goes, again when its content is
verified, and again for where its entries lie. A file is the same one while device, inode, size and both times are.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from trainvitals.checkpoints import dcp_metadata
from trainvitals.checkpoints.dcp_metadata import DcpMetadata, PickleTooLarge
from trainvitals.checkpoints.files import Reader

#: A shorter one is parsed as fast as it is looked up.
REMEMBERED_FROM_BYTES = 1 << 20
#: Model and optimizer of one checkpoint. One of a hostile kind needs up to 134 MB.
MAX_REMEMBERED = 2
#: A file that was just written may be written again within the same tick of its file system's clock.
MIN_AGE_NS = 2_000_000_000


class Remembered:
    """Shared by threads. ``now_ns`` is the time of day in nanoseconds."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, ...], DcpMetadata | PickleTooLarge] = OrderedDict()

    def read(self, reader: Reader) -> DcpMetadata | PickleTooLarge:
        """As ``dcp_metadata.read``, but what is too large is returned; raises ``BadMetadata`` or the reader's errors."""
        identity = reader.identity
        with self._lock:
            known = self._known.get(identity) if identity is not None else None
            if known is not None and identity is not None:
                self._known.move_to_end(identity)
                return known
        try:
            found: DcpMetadata | PickleTooLarge = dcp_metadata.read(reader.read, reader.size)
        except PickleTooLarge as error:
            found = PickleTooLarge(str(error))
        if (
            identity is not None
            and reader.size >= REMEMBERED_FROM_BYTES
            and reader.unchanged_for_ns(self._now_ns()) >= MIN_AGE_NS
        ):
            with self._lock:
                self._known[identity] = found
                while len(self._known) > MAX_REMEMBERED:
                    self._known.popitem(last=False)
        return found


REMEMBERED = Remembered()
