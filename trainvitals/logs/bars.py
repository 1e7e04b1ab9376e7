"""Progress bars that stand one behind another: tqdm's carriage returns are lost in logs that went through a web page or an editor."""

from __future__ import annotations

import re
from itertools import pairwise

#: How every percentage of a bar goes on; what has it at most once needs no look.
MARK = b"%|"
# Behind the bracket that ends a bar where the next one begins, maybe with its name; or before Lightning's, whose end a narrow
# terminal may have cut off.
_BOUNDARY = re.compile(
    rb"(?<=\])(?= {0,400}(?:[A-Za-z][^|\[\]]{0,80}?)?\b\d{1,3}%\|)|(?<=[^\s:])(?=Epoch \d{1,9}(?:/\d{1,9})?: [: ]{0,8}\d{1,3}%\|)"
)


def split_bars(raw: bytes) -> list[bytes]:
    """The pieces that tqdm wrote as lines of their own; ``raw`` itself where there is one bar at most. Joined they are ``raw``."""
    if raw.count(MARK) < 2:
        return [raw]
    places = [0, *(found.start() for found in _BOUNDARY.finditer(raw)), len(raw)]
    return [raw[start:end] for start, end in pairwise(places) if end > start]


def last_boundary(raw: bytes | bytearray) -> int:
    """Where the last bar begins; 0 where none follows another."""
    place = 0
    if raw.count(MARK) >= 2:
        for found in _BOUNDARY.finditer(raw):
            place = found.start()
    return place
