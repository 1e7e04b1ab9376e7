"""Looks at everything, each in a thread with a deadline: a file system or a server that hangs is itself a finding.

A thread that does not come back is left behind; it is a daemon, so the program ends all the same.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

from trainvitals.clock import Clock
from trainvitals.doctor.check import Checkup, Finding, Result, fault
from trainvitals.errors import TrainvitalsError

#: Looked at beside each other; those that hang do not count.
AT_ONCE = 8


def examine(checkups: Sequence[Checkup], deadline_s: float, clock: Clock) -> Iterator[Result]:
    """Results in the order of ``checkups``, as soon as they are known. deadline_s: for each of them."""
    news: queue.SimpleQueue[tuple[int, Finding | None]] = queue.SimpleQueue()
    found: list[list[Finding]] = [[] for _ in checkups]
    over: set[int] = set()
    started_s: dict[int, float] = {}
    next_start = head = 0
    while head < len(checkups):
        while next_start < len(checkups) and len(started_s) < AT_ONCE:
            started_s[next_start] = clock.monotonic_s()
            threading.Thread(target=_look, args=(checkups[next_start], next_start, news), daemon=True).start()
            next_start += 1
        try:
            index, finding = news.get(timeout=0.05)
        except queue.Empty:
            pass
        else:
            if index not in over:
                if finding is not None:
                    found[index].append(finding)
                else:
                    over.add(index)
                    started_s.pop(index)
        now_s = clock.monotonic_s()
        for index in [index for index, begun_s in started_s.items() if now_s - begun_s >= deadline_s]:
            text = f"no answer within {deadline_s:g} s: the file system or the server behind it hangs"
            found[index].append(
                fault(text, "look at that mount or server first; a trainer and a dashboard would hang there, too.")
            )
            over.add(index)
            started_s.pop(index)
        while head < len(checkups) and head in over:
            yield from (Result(checkups[head].check, checkups[head].subject, finding) for finding in found[head])
            head += 1


def _look(checkup: Checkup, index: int, news: queue.SimpleQueue[tuple[int, Finding | None]]) -> None:
    try:
        for finding in checkup.look():
            news.put((index, finding))
    except TrainvitalsError as error:
        news.put((index, fault(str(error), "")))
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        news.put((index, fault(f"{where}{error.strerror or error}", "check the path, its rights and the disk.")))
    except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others; it is shown as a fault
        news.put((index, fault(f"the check itself failed ({type(error).__name__}: {error})", "report it with this text.")))
    finally:
        news.put((index, None))
