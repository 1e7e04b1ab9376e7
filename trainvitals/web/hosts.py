"""Names of machines: which of them a start of the trainer runs on, and when two names mean one machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from trainvitals.incidents.verdict_word import VerdictWord
from trainvitals.web.view import RunView

#: More machines than any run has; what a hostile list names beyond that is left out.
MAX_HOSTS = 20_000
MISSED_NS = 86_400 * 10**9
_GONE = frozenset({VerdictWord.STOPPED, VerdictWord.HISTORY, VerdictWord.UNKNOWN})
_PART = re.compile(r"([^,\[\]]{1,200})(?:\[([0-9,\-]{1,4000})\])?([^,\[\]]{0,200})", re.ASCII)
_ADDRESS = re.compile(r"[0-9.]{7,15}|[0-9a-f:]{2,39}", re.ASCII)


@lru_cache(maxsize=1 << 16)
def short(name: str) -> str:
    """``GPU1.cluster.example`` -> ``gpu1``; an address stays whole."""
    lowered = name.strip().lower()
    return lowered if _ADDRESS.fullmatch(lowered) else lowered.partition(".")[0]


class Names:
    """Looks names up as people and programs write them: with a domain or without, in any case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._whole: dict[str, str] = {}
        self._short: dict[str, list[str]] = {}
        for name in names:
            self._whole[name.lower()] = name
            self._short.setdefault(short(name), []).append(name)

    def find(self, name: str) -> tuple[str, ...]:
        """The known names that may be that machine: the same one, else those that differ by a domain that one of the two lacks."""
        asked = name.strip().lower()
        whole = self._whole.get(asked)
        if whole is not None:
            return (whole,)
        return tuple(one for one in self._short.get(short(asked), ()) if short(one) in (one.lower(), asked))


def expanded(hostlist: str) -> tuple[str, ...]:
    """``gpu[001,003-004],login1`` as Slurm writes it -> the names; what is no such list -> none."""
    found: list[str] = []
    at = 0
    while at < len(hostlist):
        match = _PART.match(hostlist, at)
        if match is None:
            return ()
        at = match.end()
        if at < len(hostlist):
            if hostlist[at] != ",":
                return ()
            at += 1
        before, inside, after = match[1], match[2], match[3]
        numbers = _numbers(inside, MAX_HOSTS - len(found)) if inside is not None else [""]
        found += [f"{before}{number}{after}".strip() for number in numbers]
        if len(found) >= MAX_HOSTS:
            break
    return tuple(name for name in found[:MAX_HOSTS] if name)


def _numbers(inside: str, room: int) -> list[str]:
    numbers: list[str] = []
    for one in inside.split(","):
        first, dash, last = one.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
            return []
        end = min(int(last) if dash else int(first), int(first) + room - len(numbers))
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), end + 1)]
    return numbers


def _is_over(run: RunView, started_ns: int) -> bool:
    """A trainer that was killed says no end. What it ran on is missed for a day, for whoever looks why it died; then it uses nothing."""
    if run.verdict.word is VerdictWord.FINISHED:
        return True
    newest_ns = max(started_ns, run.last_step_time_ns or 0)
    return run.verdict.word in _GONE and run.taken_at_ns - newest_ns > MISSED_NS


def hosts_of(run: RunView) -> tuple[str, ...]:
    """Machines of the start that runs now, by what the trainer told of its ranks, else by the scheduler's list; none when neither is
    known or no start runs."""
    newest = run.attempt
    if newest is None or newest.ended_ns is not None or _is_over(run, newest.started_ns):
        return ()
    told = next((one for one in run.configurations if one.attempt == newest.number), None)
    if told is None:
        return ()
    ranks: Mapping[str, str] = told.sections.get("ranks", {})
    hosts = dict.fromkeys(place.partition("/")[0].strip() for rank, place in ranks.items() if rank.isdecimal())
    hosts.pop("", None)
    return tuple(hosts)[:MAX_HOSTS] or expanded(told.sections.get("job", {}).get("hostlist", ""))
