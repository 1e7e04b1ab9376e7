"""XID numbers by what they ask of people, after NVIDIA's XID catalogue; and the one that speaks for a GPU that reported several. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: After these the GPU or the node must leave service (RESET_GPU, RESTART_BM and alike).
FATAL_XIDS = frozenset((46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158))
#: The application's own doing: looked for in code and data, not in hardware.
APPLICATION_XIDS = frozenset((8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 45, 68, 69, 70, 71, 72, 80, 137))
#: They only follow another one, or the end of a process: 45 comes on every GPU of a job that ends badly (NVIDIA/NVSentinel issue 1748),
#: 154 says that the recovery action changed, which is asked for by itself.
FOLLOWING_XIDS = frozenset((45, 154))
#: An XID counts for so long; the number itself stays in the record. A value that sticks for ever would hide the next one.
XID_COUNTS_S = 3600.0
MAX_XIDS = 32


def gravity(xid: int) -> int:
    """The higher, the graver: fatal, unknown (to be looked into), the application's, one that only follows."""
    if xid in FATAL_XIDS:
        return 3
    if xid in FOLLOWING_XIDS:
        return 0
    return 1 if xid in APPLICATION_XIDS else 2


def speaking(ages_s: Mapping[int, float]) -> tuple[int, float]:
    """(XID, seconds since it came) of the gravest that still counts, else of the newest: what follows hides no cause."""
    counting = {xid: age_s for xid, age_s in ages_s.items() if age_s < XID_COUNTS_S}
    if counting:
        return min(counting.items(), key=lambda one: (-gravity(one[0]), one[1], one[0]))
    return min(ages_s.items(), key=lambda one: (one[1], one[0]))
