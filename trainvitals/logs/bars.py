"""Progress bars that stand one behind another: tqdm's carriage returns are lost in logs that went through a web page or an editor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

#: How every percentage of a bar goes on; what has it at most once needs no look.
MARK = b"%|"
# Behind the bracket that ends a bar where the next one begins, maybe with its name (torchtune's is ``1|12|Loss: 1.9:``); or before Lightning's, whose end a narrow
# terminal may have cut off.
_BOUNDARY = re.compile(
    rb"(?<=\])(?= {0,400}(?:\d{1,9}\|\d{1,9}\|)?(?:[A-Za-z][^|\[\]]{0,80}?)?\b\d{1,3}%\|)|(?<=[^\s:])(?=Epoch \d{1,9}(?:/\d{1,9})?: [: ]{0,8}\d{1,3}%\|)"
)


def split_bars(raw: bytes) -> list[bytes]:
    """The pieces that tqdm wrote as lines of their own; ``raw`` itself where there is one bar at most. Joined they are ``raw``."""
    if raw.count(MARK) < 2:
        return [raw]
    places = [0, *_places(raw), len(raw)]
    return [raw[start:end] for start, end in pairwise(places) if end > start]


def last_boundary(raw: bytes | bytearray) -> int:
    """Where the last bar begins; 0 where none follows another."""
    return max(_places(raw), default=0) if raw.count(MARK) >= 2 else 0


def _places(raw: bytes | bytearray) -> Iterator[int]:
    last = 0
    for found in _BOUNDARY.finditer(raw):
        if raw.find(MARK, last, found.start()) >= 0:  # else it is the bracket of a prefix
            last = found.start()
            yield last
