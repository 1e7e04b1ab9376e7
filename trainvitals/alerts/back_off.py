"""When a message that was not delivered is tried again."""

from __future__ import annotations

import random
import re
from email.utils import parsedate_to_datetime

#: Seconds from one try to the next. On-call needs the second and third try sooner than Standard Webhooks proposes.
SCHEDULE_S = (0.0, 5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0)
TRIES = len(SCHEDULE_S)
LONGEST_WAIT_S = SCHEDULE_S[-1]
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


def wait_s(tries: int, retry_after_s: float | None = None, random_share: float | None = None) -> float | None:
    """Seconds until the next try after ``tries`` tries, None when there is no further one.

    The wait lies anywhere in the upper half of the scheduled one, so that many senders do not come back together. Jitter
    from zero on would let the tries end within an hour, which is how long a chat service may well be away. What the
    receiver asks for in Retry-After is the least wait, up to two hours.
    """
    if tries >= TRIES:
        return None
    share = random.random() if random_share is None else random_share  # noqa: S311 (no secret depends on it)
    wait = SCHEDULE_S[tries] * (0.5 + share / 2)
    return max(wait, min(retry_after_s or 0.0, LONGEST_WAIT_S))


def retry_after_s(header: str, now_ns: int) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date), None when it says nothing."""
    text = header.strip()[:64]
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_ns / 1e9)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
